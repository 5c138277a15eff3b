/* epoll.h: the event engine over epoll, for hosts that refuse io_uring. It calls nothing of io_uring. Of this room alone: others
 * call engine.h, which says what each function does.
 *
 * io_uring does the work and reports it; epoll reports that work can be done, and this engine does it. So the two differ in when
 * things happen:
 *
 * | Step          | io_uring                             | here                                                          |
 * |---------------|--------------------------------------|---------------------------------------------------------------|
 * | send          | at the next wait                     | at once; a socket without room keeps the message until it has |
 * | receive       | when bytes come, into a lent buffer  | in take, after the socket was reported as readable            |
 * | no buffer     | ends a receive when it is asked for  | ends it when bytes come                                       |
 * | no descriptor | ends an accept when it is asked for  | ends it when a connection comes                               |
 * | stop, cancel  | when the kernel comes to it          | at once; the last event is in the next take                   |
 * | mapped reads  | helper threads of the kernel's       | threads of this process (read_pool.h)                         |
 *
 * The order of events of one operation is the same: data, then the last event (more = 0), then nothing. One operation of a kind
 * is under way for a socket. A take gives one receive and one send of a socket, so a socket with many bytes waits for the others.
 *
 * Sockets are level-triggered. Edge-triggered ones would need a receive until EAGAIN: a receive that took less than it could is no
 * proof that nothing is left, because it also ends at a byte of urgent data. A client could hide bytes in this way from a reader
 * that trusts the proof, and the watchdog would take the reader for hung. Level-triggered interest that is wanted no more is taken
 * away when the kernel reports it in vain. So a receive that is stopped and asked for again within a turn costs no system call, and
 * a socket is watched for room (EPOLLOUT) only while a message waits.
 */
#ifndef RMQ_EPOLL_H
#define RMQ_EPOLL_H

#include "engine/engine_kinds.h"

struct rmq_epoll;

int rmq_epoll_open(struct rmq_epoll **engine, const struct rmq_engine_options *options, const char **call);
void rmq_epoll_close(struct rmq_epoll *engine);
int rmq_epoll_accept(struct rmq_epoll *engine, int listen_fd, uint64_t tag);
int rmq_epoll_accept_stop(struct rmq_epoll *engine, int listen_fd, uint64_t tag);
int rmq_epoll_receive(struct rmq_epoll *engine, int fd, uint64_t tag, int once);
int rmq_epoll_receive_stop(struct rmq_epoll *engine, int fd, uint64_t tag);
int rmq_epoll_send(struct rmq_epoll *engine, int fd, const struct msghdr *message, uint64_t tag);
void rmq_epoll_forget(struct rmq_epoll *engine, int fd); /* before the socket is closed */
int rmq_epoll_read_mapped(struct rmq_epoll *engine, const void *at, uint32_t bytes, uint64_t tag);
void rmq_epoll_lend(struct rmq_epoll *engine, const uint32_t *buffers, uint32_t count);
int rmq_epoll_wait(struct rmq_epoll *engine, int64_t timeout_ns);
uint32_t rmq_epoll_take(struct rmq_epoll *engine, struct rmq_event *events, uint32_t room);
int rmq_epoll_ready(struct rmq_epoll *engine);
#endif
