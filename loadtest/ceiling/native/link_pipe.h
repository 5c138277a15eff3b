/* One direction of a slow link: what came in leaves a delay later, in order, at whatever rate it came. No loss. */
#ifndef RINGMQ_LINK_PIPE_H
#define RINGMQ_LINK_PIPE_H

#include <stdint.h>

#include "mirror.h"

enum { LINK_MARKS = 1 << 16 };

/* Bytes before position `end` may leave at `due_ns`. */
struct link_mark {
    uint64_t end, due_ns;
};

struct link_pipe {
    struct mirror buffer; /* its size bounds what is on the way; a full pipe does not read */
    struct link_mark *marks;
    uint32_t first, count;
    uint64_t in_bytes, out_bytes;
    uint64_t delay_ns;
    int ended; /* the source has ended; the rest still leaves in time */
    int held;  /* no byte leaves */
};

/* 0 or negative errno. */
int link_pipe_init(struct link_pipe *p, size_t buffer_bytes, uint64_t delay_ns);
void link_pipe_free(struct link_pipe *p);

/* True while it takes more. */
int link_pipe_has_room(const struct link_pipe *p);

/* Reads once from a non-blocking socket: 0, or negative errno when the connection is broken. */
int link_pipe_read(struct link_pipe *p, int fd, uint64_t now_ns);

/* Writes what is due. 0: all of it left; 1: the socket takes no more now; negative errno: broken. */
int link_pipe_write(struct link_pipe *p, int fd, uint64_t now_ns);

/* The time at which bytes are due next; UINT64_MAX: none are under way. */
uint64_t link_pipe_due(const struct link_pipe *p);

/* True when the source has ended and everything has left. */
int link_pipe_done(const struct link_pipe *p);

#endif
