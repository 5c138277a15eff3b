/* Both kinds behind one name, as in engine.c. */
#include "engine/file_sync_kinds.h"

static inline int is_thread(const struct rmq_file_sync *sync) { return sync->kind == RMQ_ENGINE_EPOLL; }

static inline struct rmq_thread_sync *thread_of(struct rmq_file_sync *sync) { return (struct rmq_thread_sync *)sync; }

static inline struct rmq_uring_sync *uring_of(struct rmq_file_sync *sync) { return (struct rmq_uring_sync *)sync; }

int rmq_file_sync_open(struct rmq_file_sync **out, uint32_t kind, uint32_t places, int bell_fd)
{
    int rc;
    if (kind == RMQ_ENGINE_EPOLL) {
        struct rmq_thread_sync *sync;
        rc = rmq_thread_sync_open(&sync, places);
        *out = (struct rmq_file_sync *)sync;
    } else {
        struct rmq_uring_sync *sync;
        rc = rmq_uring_sync_open(&sync, places);
        *out = (struct rmq_file_sync *)sync;
    }
    if (rc == 0)
        **out = (struct rmq_file_sync){.kind = kind, .bell_fd = bell_fd};
    return rc;
}

void rmq_file_sync_close(struct rmq_file_sync *sync)
{
    if (!sync)
        return;
    if (is_thread(sync))
        rmq_thread_sync_close(thread_of(sync));
    else
        rmq_uring_sync_close(uring_of(sync));
}

void rmq_file_sync_put(struct rmq_file_sync *sync, int fd, int data_only)
{
    if (is_thread(sync))
        rmq_thread_sync_put(thread_of(sync), fd, data_only);
    else
        rmq_uring_sync_put(uring_of(sync), fd, data_only);
}

int rmq_file_sync_submit(struct rmq_file_sync *sync)
{
    return is_thread(sync) ? rmq_thread_sync_submit(thread_of(sync)) : rmq_uring_sync_submit(uring_of(sync));
}

int rmq_file_sync_listen(struct rmq_file_sync *sync)
{
    return is_thread(sync) ? rmq_thread_sync_listen(thread_of(sync)) : rmq_uring_sync_listen(uring_of(sync));
}

int rmq_file_sync_wait(struct rmq_file_sync *sync, int64_t wait_ms, int *result)
{
    return is_thread(sync) ? rmq_thread_sync_wait(thread_of(sync), wait_ms, result)
                           : rmq_uring_sync_wait(uring_of(sync), wait_ms, result);
}
