/* Both engines behind one name: a branch that is always taken the same way, no call through a pointer. */
#include "engine/engine.h"

#include <unistd.h>

#include "engine/epoll.h"
#include "engine/uring.h"

static inline int is_epoll(const struct rmq_engine *engine) { return engine->kind == RMQ_ENGINE_EPOLL; }

static inline struct rmq_epoll *epoll_of(struct rmq_engine *engine) { return (struct rmq_epoll *)engine; }

static inline struct rmq_uring *uring_of(struct rmq_engine *engine) { return (struct rmq_uring *)engine; }

int rmq_engine_open(struct rmq_engine **out, const struct rmq_engine_options *options, const char **call)
{
    int rc;
    if (options->kind == RMQ_ENGINE_EPOLL) {
        struct rmq_epoll *engine;
        rc = rmq_epoll_open(&engine, options, call);
        *out = (struct rmq_engine *)engine;
    } else {
        struct rmq_uring *engine;
        rc = rmq_uring_open(&engine, options, call);
        *out = (struct rmq_engine *)engine;
    }
    return rc;
}

void rmq_engine_close(struct rmq_engine *engine)
{
    if (!engine)
        return;
    if (is_epoll(engine))
        rmq_epoll_close(epoll_of(engine));
    else
        rmq_uring_close(uring_of(engine));
}

int rmq_engine_accept(struct rmq_engine *engine, int listen_fd, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_accept(epoll_of(engine), listen_fd, tag) : rmq_uring_accept(uring_of(engine), listen_fd, tag);
}

int rmq_engine_accept_stop(struct rmq_engine *engine, int listen_fd, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_accept_stop(epoll_of(engine), listen_fd, tag) : rmq_uring_accept_stop(uring_of(engine), tag);
}

int rmq_engine_receive(struct rmq_engine *engine, int fd, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_receive(epoll_of(engine), fd, tag, 0) : rmq_uring_receive(uring_of(engine), fd, tag);
}

int rmq_engine_receive_once(struct rmq_engine *engine, int fd, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_receive(epoll_of(engine), fd, tag, 1) : rmq_uring_receive_once(uring_of(engine), fd, tag);
}

int rmq_engine_receive_stop(struct rmq_engine *engine, int fd, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_receive_stop(epoll_of(engine), fd, tag) : rmq_uring_receive_stop(uring_of(engine), tag);
}

int rmq_engine_send(struct rmq_engine *engine, int fd, const struct msghdr *message, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_send(epoll_of(engine), fd, message, tag) : rmq_uring_send(uring_of(engine), fd, message, tag);
}

void rmq_engine_hang_up(struct rmq_engine *engine, int fd)
{
    if (is_epoll(engine))
        rmq_epoll_forget(epoll_of(engine), fd);
    close(fd);
}

int rmq_engine_read_mapped(struct rmq_engine *engine, const void *at, uint32_t bytes, uint64_t tag)
{
    return is_epoll(engine) ? rmq_epoll_read_mapped(epoll_of(engine), at, bytes, tag)
                            : rmq_uring_read_mapped(uring_of(engine), at, bytes, tag);
}

void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count)
{
    if (is_epoll(engine))
        rmq_epoll_lend(epoll_of(engine), buffers, count);
    else
        rmq_uring_lend(uring_of(engine), buffers, count);
}

int rmq_engine_wait(struct rmq_engine *engine, int64_t timeout_ns)
{
    return is_epoll(engine) ? rmq_epoll_wait(epoll_of(engine), timeout_ns) : rmq_uring_wait(uring_of(engine), timeout_ns);
}

uint32_t rmq_engine_take(struct rmq_engine *engine, struct rmq_event *events, uint32_t room)
{
    return is_epoll(engine) ? rmq_epoll_take(epoll_of(engine), events, room) : rmq_uring_take(uring_of(engine), events, room);
}

int rmq_engine_queued(struct rmq_engine *engine) { return is_epoll(engine) ? 0 : rmq_uring_queued(uring_of(engine)); }

int rmq_engine_ready(struct rmq_engine *engine)
{
    return is_epoll(engine) ? rmq_epoll_ready(epoll_of(engine)) : rmq_uring_ready(uring_of(engine));
}
