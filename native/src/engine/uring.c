/* The event engine over io_uring. liburing 2.3 is enough; flags that the kernel does not know are left out one by one. */
#include "engine/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GROUP 1
#define TAG_BITS 56
#define TAG_MASK ((1ull << TAG_BITS) - 1)
#define KIND_STOP 15

struct rmq_uring {
    struct rmq_engine head;
    struct io_uring ring;
    struct io_uring_buf_ring *lent;
    size_t lent_bytes;
    uint8_t *buffers;
    uint32_t buffer_bytes;
    uint32_t buffer_mask;
    int wake_fd;
    int wake_armed;
};

static int ring_open(struct io_uring *ring, uint32_t entries)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        0,
    };
    int rc = -EINVAL;
    for (unsigned i = 0; i < sizeof flags / sizeof *flags && rc == -EINVAL; i++) {
        struct io_uring_params params;
        memset(&params, 0, sizeof params);
        params.flags = flags[i] | IORING_SETUP_CQSIZE;
        params.cq_entries = entries * 4;
        rc = io_uring_queue_init_params(entries, ring, &params);
    }
    return rc;
}

static int buffers_open(struct rmq_uring *engine, const struct rmq_engine_options *options)
{
    struct io_uring_buf_reg reg = {.ring_entries = options->buffer_count, .bgid = GROUP};
    engine->lent_bytes = options->buffer_count * sizeof(struct io_uring_buf);
    void *at = mmap(NULL, engine->lent_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    engine->lent = at;
    reg.ring_addr = (uintptr_t)at;
    io_uring_buf_ring_init(engine->lent);
    engine->buffers = options->buffers;
    engine->buffer_bytes = options->buffer_bytes;
    engine->buffer_mask = options->buffer_count - 1;
    return io_uring_register_buf_ring(&engine->ring, &reg, 0);
}

static struct io_uring_sqe *next_sqe(struct rmq_uring *engine)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring);
    if (__builtin_expect(!sqe, 0)) {
        io_uring_submit(&engine->ring);
        sqe = io_uring_get_sqe(&engine->ring);
    }
    return sqe;
}

static inline uint64_t user_data(unsigned kind, uint64_t tag) { return (uint64_t)kind << TAG_BITS | (tag & TAG_MASK); }

static int wake_arm(struct rmq_uring *engine)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_poll_multishot(sqe, engine->wake_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, user_data(RMQ_EVENT_WOKEN, 0));
    engine->wake_armed = 1;
    return 0;
}

int rmq_uring_open(struct rmq_uring **out, const struct rmq_engine_options *options, const char **call)
{
    *out = NULL;
    *call = "malloc";
    struct rmq_uring *engine = calloc(1, sizeof *engine);
    if (!engine)
        return -ENOMEM;
    *call = "io_uring_setup";
    int rc = ring_open(&engine->ring, options->entries);
    if (rc < 0) {
        free(engine);
        return rc;
    }
    io_uring_register_ring_fd(&engine->ring); /* only saves a look-up: may fail */
    engine->head.kind = RMQ_ENGINE_IO_URING;
    engine->wake_fd = options->wake_fd;
    *call = "io_uring_register(IORING_REGISTER_PBUF_RING)";
    if (options->buffers)
        rc = buffers_open(engine, options);
    if (rc >= 0 && engine->wake_fd >= 0)
        rc = wake_arm(engine);
    if (rc < 0) {
        rmq_uring_close(engine);
        return rc;
    }
    *out = engine;
    return 0;
}

void rmq_uring_close(struct rmq_uring *engine)
{
    if (!engine)
        return;
    io_uring_queue_exit(&engine->ring);
    if (engine->lent)
        munmap(engine->lent, engine->lent_bytes);
    free(engine);
}

int rmq_uring_accept(struct rmq_uring *engine, int listen_fd, uint64_t tag)
{
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags >= 0 && flags & O_NONBLOCK) /* left by the epoll engine: a listener outlives brokers (ipc/fd_store.py) */
        fcntl(listen_fd, F_SETFL, flags & ~O_NONBLOCK);
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_multishot_accept(sqe, listen_fd, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data64(sqe, user_data(RMQ_EVENT_ACCEPTED, tag));
    return 0;
}

int rmq_uring_accept_stop(struct rmq_uring *engine, uint64_t tag)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_cancel64(sqe, user_data(RMQ_EVENT_ACCEPTED, tag), 0);
    io_uring_sqe_set_data64(sqe, user_data(KIND_STOP, tag));
    return 0;
}

static int receive(struct rmq_uring *engine, int fd, uint64_t tag, int once)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    if (once)
        io_uring_prep_recv(sqe, fd, NULL, engine->buffer_bytes, 0);
    else
        io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
    io_uring_sqe_set_data64(sqe, user_data(RMQ_EVENT_RECEIVED, tag));
    return 0;
}

int rmq_uring_receive(struct rmq_uring *engine, int fd, uint64_t tag) { return receive(engine, fd, tag, 0); }

int rmq_uring_receive_once(struct rmq_uring *engine, int fd, uint64_t tag) { return receive(engine, fd, tag, 1); }

int rmq_uring_receive_stop(struct rmq_uring *engine, uint64_t tag)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_cancel64(sqe, user_data(RMQ_EVENT_RECEIVED, tag), 0);
    io_uring_sqe_set_data64(sqe, user_data(KIND_STOP, tag));
    return 0;
}

int rmq_uring_send(struct rmq_uring *engine, int fd, const struct msghdr *message, uint64_t tag)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    if (message->msg_iovlen == 1)
        io_uring_prep_send(sqe, fd, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, MSG_NOSIGNAL);
    else
        io_uring_prep_sendmsg(sqe, fd, message, MSG_NOSIGNAL);
    io_uring_sqe_set_data64(sqe, user_data(RMQ_EVENT_SENT, tag));
    return 0;
}

int rmq_uring_read_mapped(struct rmq_uring *engine, const void *at, uint32_t bytes, uint64_t tag)
{
    struct io_uring_sqe *sqe = next_sqe(engine);
    if (!sqe)
        return -EBUSY;
    uintptr_t in_page = (uintptr_t)at % (uintptr_t)sysconf(_SC_PAGESIZE);
    io_uring_prep_madvise(sqe, (void *)((uintptr_t)at - in_page), (off_t)(bytes + in_page), MADV_POPULATE_READ);
    io_uring_sqe_set_data64(sqe, user_data(RMQ_EVENT_READ, tag));
    return 0;
}

void rmq_uring_lend(struct rmq_uring *engine, const uint32_t *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        io_uring_buf_ring_add(engine->lent, engine->buffers + (size_t)buffers[i] * engine->buffer_bytes, engine->buffer_bytes,
                              (unsigned short)buffers[i], (int)engine->buffer_mask, (int)i);
    io_uring_buf_ring_advance(engine->lent, (int)count);
}

int rmq_uring_queued(struct rmq_uring *engine) { return io_uring_sq_ready(&engine->ring) != 0; }

int rmq_uring_ready(struct rmq_uring *engine)
{
    if (io_uring_cq_ready(&engine->ring))
        return 1;
    return (IO_URING_READ_ONCE(*engine->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

int rmq_uring_wait(struct rmq_uring *engine, int64_t timeout_ns)
{
    struct io_uring *ring = &engine->ring;
    int rc = 0;
    if (engine->wake_fd >= 0 && !engine->wake_armed)
        wake_arm(engine);
    if (timeout_ns == 0 || io_uring_cq_ready(ring)) {
        if (io_uring_sq_ready(ring) || rmq_uring_ready(engine))
            rc = io_uring_submit_and_get_events(ring);
    } else if (timeout_ns < 0) {
        rc = io_uring_submit_and_wait(ring, 1);
    } else {
        struct __kernel_timespec ts = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
        struct io_uring_cqe *cqe;
        rc = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &ts, NULL);
    }
    return rc >= 0 || rc == -ETIME || rc == -EBUSY || rc == -EAGAIN ? 0 : rc;
}

uint32_t rmq_uring_take(struct rmq_uring *engine, struct rmq_event *events, uint32_t room)
{
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    uint32_t count = 0;
    io_uring_for_each_cqe(&engine->ring, head, cqe) {
        if (count == room)
            break;
        seen++;
        uint64_t data = cqe->user_data;
        unsigned kind = (unsigned)(data >> TAG_BITS);
        if (kind == KIND_STOP)
            continue;
        struct rmq_event *event = &events[count++];
        event->tag = data & TAG_MASK;
        event->result = cqe->res;
        event->kind = (uint8_t)kind;
        event->more = (cqe->flags & IORING_CQE_F_MORE) != 0;
        event->buffer = cqe->flags & IORING_CQE_F_BUFFER ? (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT)
                                                         : (uint16_t)RMQ_NO_BUFFER;
        if (kind == RMQ_EVENT_WOKEN) {
            if (!event->more)
                engine->wake_armed = 0;
        }
    }
    io_uring_cq_advance(&engine->ring, seen);
    return count;
}
