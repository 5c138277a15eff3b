/* background_sync.h: a thread that syncs files to disk while its owner goes on. C only.
 *
 * The owner hands over descriptors (duplicates: the thread closes them) and starts a round with a mark. At the end of the
 * round, every file handed over before its start is on disk, and `done_mark` is the mark. An error stays in `*fault`
 * (RMQ_FAULT_QUEUE_SYNC, errno in the upper half). It is stored before the process can die, because the kernel reports it only
 * once.
 *
 * The first round syncs the whole file system. A killed predecessor has written files that the new owner does not hand over,
 * and a later mark promises that they are on disk.
 */
#ifndef RMQ_BACKGROUND_SYNC_H
#define RMQ_BACKGROUND_SYNC_H

#include <pthread.h>
#include <stdint.h>

struct rmq_background_sync {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    pthread_t thread;
    int *pending, *working;     /* descriptors */
    uint32_t pending_count, pending_size;
    uint32_t working_count, working_size;
    int64_t working_mark, done_mark;
    uint64_t rounds;
    int pending_whole, working_whole; /* the whole file system, whatever was handed over */
    int busy, stop, started, error;
    uint64_t *fault;
};

/* `folder` is on the file system of all files. The first round runs even if the owner hands nothing over. */
int rmq_background_sync_open(struct rmq_background_sync *sync, const char *folder, uint64_t *fault);
/* 1 if the next round syncs the whole file system, so that no further file need be handed over. */
int rmq_background_sync_all(const struct rmq_background_sync *sync);
/* Hands over `fd`; it is closed whatever happens. 0 or -ENOMEM. */
int rmq_background_sync_add(struct rmq_background_sync *sync, int fd);
/* Starts a round unless one is running; 1 = started. */
int rmq_background_sync_start(struct rmq_background_sync *sync, int64_t mark);
int rmq_background_sync_busy(struct rmq_background_sync *sync);
/* Waits for the running round. Returns the error that stays, or 0. */
int rmq_background_sync_wait(struct rmq_background_sync *sync);
/* Mark of the last round that went through, and the error if one failed. */
int64_t rmq_background_sync_done(struct rmq_background_sync *sync, int *error);
void rmq_background_sync_close(struct rmq_background_sync *sync);
#endif
