/* engine.h: the event engine: accept, receive, send, sleep. There are two, over io_uring (uring.c) and over epoll (epoll.h says
 * what differs inside). The caller chooses one when it opens its engine, and does not see which one runs.
 *
 * One engine belongs to one thread. All calls are asynchronous: a call asks for work, rmq_engine_wait has the kernel do it or
 * waits until it can be done, rmq_engine_take returns the results. A result carries the caller's 56-bit tag. Received bytes are
 * in buffers that the caller has lent to the engine (one contiguous area cut into equal pieces). A buffer belongs to the caller
 * from its event until rmq_engine_lend. The caller keeps timers: the wait has a deadline.
 *
 * A socket has one receive and one send under way at most, and any number of reads. The caller shuts a socket down to end both,
 * takes their last events, and hangs up then.
 */
#ifndef RMQ_ENGINE_H
#define RMQ_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "plane/settings_layout.h"

/* cdef-begin */
#define RMQ_EVENT_ACCEPTED 1 /* result: socket or -errno */
#define RMQ_EVENT_RECEIVED 2 /* result: bytes in `buffer`, 0 = end, -errno (-ENOBUFS: no buffer was lent) */
#define RMQ_EVENT_SENT 3     /* result: bytes or -errno */
#define RMQ_EVENT_WOKEN 4    /* the wake descriptor was written */
#define RMQ_EVENT_READ 5     /* mapped bytes are in memory, or could not be brought there */

/* 0 when io_uring works here; else -errno and one sentence in `why`: the refused call and the setting that allows it. */
int rmq_uring_probe(char *why, size_t why_bytes);
/* cdef-end */

#define RMQ_NO_BUFFER 0xffffu

struct rmq_engine;

struct rmq_event {
    uint64_t tag;
    int32_t result;
    uint16_t buffer; /* RMQ_NO_BUFFER: none */
    uint8_t kind;
    uint8_t more;    /* the accept or receive goes on without being asked again */
};

struct rmq_engine_options {
    uint32_t kind;          /* RMQ_ENGINE_IO_URING, RMQ_ENGINE_EPOLL */
    uint8_t *buffers;       /* NULL: no receiving */
    uint32_t buffer_bytes;
    uint32_t buffer_count;  /* power of two, at most 32768; none is lent at first */
    uint32_t entries;
    int wake_fd;            /* eventfd, -1 = none */
};

/* 0 or -errno; *call names the refused call. */
int rmq_engine_open(struct rmq_engine **engine, const struct rmq_engine_options *options, const char **call);
void rmq_engine_close(struct rmq_engine *engine);

/* Without descriptors or memory for a connection the accept ends with that error (more = 0): the caller asks again later. */
int rmq_engine_accept(struct rmq_engine *engine, int listen_fd, uint64_t tag);
/* Connections that come from now on wait in the socket; the last event of `tag` has more = 0. */
int rmq_engine_accept_stop(struct rmq_engine *engine, int listen_fd, uint64_t tag);
int rmq_engine_receive(struct rmq_engine *engine, int fd, uint64_t tag);
/* The same for one buffer at most: its event has more = 0. */
int rmq_engine_receive_once(struct rmq_engine *engine, int fd, uint64_t tag);
/* Ends the receive of `tag`; its last event has more = 0. */
int rmq_engine_receive_stop(struct rmq_engine *engine, int fd, uint64_t tag);
/* `message` and the memory it points to must not change until the event, which may report a part of the bytes. */
int rmq_engine_send(struct rmq_engine *engine, int fd, const struct msghdr *message, uint64_t tag);
/* Closes a socket that has no receive and no send under way. */
void rmq_engine_hang_up(struct rmq_engine *engine, int fd);
/* Brings mapped bytes into memory, without waiting here: a helper thread waits for the disk. */
int rmq_engine_read_mapped(struct rmq_engine *engine, const void *at, uint32_t bytes, uint64_t tag);
/* Lends buffers. They are used in the order of lending, so few and warm ones are better than many. */
void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count);

/* Submits, then returns when an event is there or the time is over. 0 = do not wait, < 0 = no deadline. 0 or -errno
 * (-EINTR: a signal came). */
int rmq_engine_wait(struct rmq_engine *engine, int64_t timeout_ns);
/* Up to `room` events; it is 2 at least. */
uint32_t rmq_engine_take(struct rmq_engine *engine, struct rmq_event *events, uint32_t room);
/* 1 when calls wait to be handed to the kernel. */
int rmq_engine_queued(struct rmq_engine *engine);
/* 1 when a take or an unwaited wait would bring something. For callers that spin: cheap, mostly without a system call. */
int rmq_engine_ready(struct rmq_engine *engine);
#endif
