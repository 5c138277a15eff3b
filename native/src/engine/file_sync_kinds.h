/* file_sync_kinds.h: the two kinds of file_sync.h. Of this room alone. */
#ifndef RMQ_FILE_SYNC_KINDS_H
#define RMQ_FILE_SYNC_KINDS_H

#include <unistd.h>

#include "engine/file_sync.h"

struct rmq_file_sync {
    uint32_t kind;
    int bell_fd;
};

/* The bell was rung: it is taken, so that it can ring again. */
static inline void rmq_sync_bell_take(struct rmq_file_sync *sync)
{
    uint64_t count;
    ssize_t n = read(sync->bell_fd, &count, sizeof count);
    (void)n; /* EAGAIN: this ring was taken before the wait */
}

struct rmq_uring_sync;

int rmq_uring_sync_open(struct rmq_uring_sync **sync, uint32_t places);
void rmq_uring_sync_close(struct rmq_uring_sync *sync);
void rmq_uring_sync_put(struct rmq_uring_sync *sync, int fd, int data_only);
int rmq_uring_sync_submit(struct rmq_uring_sync *sync);
int rmq_uring_sync_listen(struct rmq_uring_sync *sync);
int rmq_uring_sync_wait(struct rmq_uring_sync *sync, int64_t wait_ms, int *result);

/* A thread that starts with the first submit, so that a process without syncs has none. It takes one sync after the other.
 * Where it cannot be started, a submit does the syncs itself. */
struct rmq_thread_sync;

int rmq_thread_sync_open(struct rmq_thread_sync **sync, uint32_t places);
void rmq_thread_sync_close(struct rmq_thread_sync *sync);
void rmq_thread_sync_put(struct rmq_thread_sync *sync, int fd, int data_only);
int rmq_thread_sync_submit(struct rmq_thread_sync *sync);
int rmq_thread_sync_listen(struct rmq_thread_sync *sync);
int rmq_thread_sync_wait(struct rmq_thread_sync *sync, int64_t wait_ms, int *result);
#endif
