/* File syncs over io_uring. */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>

#include "engine/file_sync_kinds.h"

enum { SYNC = 0, BELL = 1 }; /* data of a completion */

struct rmq_uring_sync {
    struct rmq_file_sync head;
    struct io_uring ring;
    unsigned put;     /* since the last submit */
    int bell_watched; /* the ring holds a poll of the bell, one at a time: a poll for each wait would fill it */
};

int rmq_uring_sync_open(struct rmq_uring_sync **out, uint32_t places)
{
    *out = NULL;
    struct rmq_uring_sync *sync = calloc(1, sizeof *sync);
    if (!sync)
        return -ENOMEM;
    int rc = io_uring_queue_init(places + 1, &sync->ring, 0);
    if (rc < 0) {
        free(sync);
        return rc;
    }
    *out = sync;
    return 0;
}

void rmq_uring_sync_close(struct rmq_uring_sync *sync)
{
    io_uring_queue_exit(&sync->ring);
    free(sync);
}

void rmq_uring_sync_put(struct rmq_uring_sync *sync, int fd, int data_only)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&sync->ring);
    io_uring_prep_fsync(sqe, fd, data_only ? IORING_FSYNC_DATASYNC : 0);
    io_uring_sqe_set_data64(sqe, SYNC);
    sync->put++;
}

int rmq_uring_sync_submit(struct rmq_uring_sync *sync)
{
    unsigned put = sync->put;
    sync->put = 0;
    int rc = put ? io_uring_submit(&sync->ring) : 0;
    return rc < 0 ? rc : (unsigned)rc == put ? 0 : -EIO;
}

int rmq_uring_sync_listen(struct rmq_uring_sync *sync)
{
    if (sync->bell_watched)
        return 0;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&sync->ring);
    io_uring_prep_poll_add(sqe, sync->head.bell_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, BELL);
    int rc = io_uring_submit(&sync->ring);
    sync->bell_watched = rc == 1;
    return rc < 0 ? rc : rc == 1 ? 0 : -EIO;
}

int rmq_uring_sync_wait(struct rmq_uring_sync *sync, int64_t wait_ms, int *result)
{
    struct __kernel_timespec limit = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
    struct io_uring_cqe *cqe;
    int rc = io_uring_wait_cqe_timeout(&sync->ring, &cqe, &limit);
    if (rc < 0)
        return rc == -ETIME ? RMQ_SYNC_TIME : rc;
    int is_bell = io_uring_cqe_get_data64(cqe) == BELL;
    if (!is_bell)
        *result = cqe->res;
    io_uring_cqe_seen(&sync->ring, cqe);
    if (!is_bell)
        return RMQ_SYNC_DONE;
    rmq_sync_bell_take(&sync->head);
    sync->bell_watched = 0;
    return RMQ_SYNC_RUNG;
}
