/* uring.h: the event engine over io_uring. Of this room alone: others call engine.h, which says what each function does. */
#ifndef RMQ_URING_H
#define RMQ_URING_H

#include "engine/engine_kinds.h"

struct rmq_uring;

int rmq_uring_open(struct rmq_uring **engine, const struct rmq_engine_options *options, const char **call);
void rmq_uring_close(struct rmq_uring *engine);
int rmq_uring_accept(struct rmq_uring *engine, int listen_fd, uint64_t tag);
int rmq_uring_accept_stop(struct rmq_uring *engine, uint64_t tag);
int rmq_uring_receive(struct rmq_uring *engine, int fd, uint64_t tag);
int rmq_uring_receive_once(struct rmq_uring *engine, int fd, uint64_t tag);
int rmq_uring_receive_stop(struct rmq_uring *engine, uint64_t tag);
int rmq_uring_send(struct rmq_uring *engine, int fd, const struct msghdr *message, uint64_t tag);
int rmq_uring_read_mapped(struct rmq_uring *engine, const void *at, uint32_t bytes, uint64_t tag);
void rmq_uring_lend(struct rmq_uring *engine, const uint32_t *buffers, uint32_t count);
int rmq_uring_wait(struct rmq_uring *engine, int64_t timeout_ns);
uint32_t rmq_uring_take(struct rmq_uring *engine, struct rmq_event *events, uint32_t room);
int rmq_uring_queued(struct rmq_uring *engine);
int rmq_uring_ready(struct rmq_uring *engine);
#endif
