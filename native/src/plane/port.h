/* port.h: the table of ports, and the calls of a port's owner. layout.h has a request's way (3 and 4) and the first steps of
 * the replacement of a dead owner (7). The arena's bytes of a request stay unchanged until the owner has returned its
 * completion.
 */
#ifndef RMQ_PORT_H
#define RMQ_PORT_H

#include "plane/plane.h"

/* cdef-begin */
#define RMQ_PORT_APPENDED 0  /* rings of completions */
#define RMQ_PORT_COMPLETED 1

/* The role's first port, RMQ_NONE = it has none. */
uint32_t rmq_port_find(struct rmq_plane *plane, uint32_t role);
struct rmq_port *rmq_port_at(struct rmq_plane *plane, uint32_t port);

/* The owner's process begins: requests carry its role's generation from now on, write drops older ones. */
void rmq_port_claim(struct rmq_plane *plane, uint32_t port);

/* Puts up to `count` requests into the ring in their order, with the port's generation, publishes them by one store and
 * wakes write. The number that found room. A chain (RMQ_APPEND_FLAG_WITH_NEXT) is published with its end or not at all. */
uint32_t rmq_port_submit(struct rmq_plane *plane, uint32_t port, const struct rmq_request *requests, uint32_t count);

/* Copies up to `room` completions that wait in one of the two rings, oldest first, of any generation. Their number. */
uint32_t rmq_port_peek(struct rmq_plane *plane, uint32_t port, int ring, struct rmq_completion *out, uint32_t room);
/* The same as a sum, for owners of ordered ports whose tokens are marks (ports_layout.h). stored[lane] is raised to one
 * behind the largest source offset that was stored. Lanes from `lanes` on are ignored. Returns the number of completions;
 * `tally` counts on. */
struct rmq_port_tally {
    uint64_t stored;             /* a record is in the log, synced in time or not */
    uint64_t refused;            /* no record was stored */
    uint64_t inherited;          /* requests of a dead predecessor */
    uint64_t end;                /* raised to the end of the last stored record in the log */
    struct rmq_completion first; /* of the refused ones, if refused was 0 before; of a chain the one that has the cause */
};
uint32_t rmq_port_tally(struct rmq_plane *plane, uint32_t port, int ring, uint32_t room, uint64_t *stored, uint32_t lanes,
                        struct rmq_port_tally *tally);
/* Asks dispatch for the next arrival at a queue (RMQ_PORT_ARRIVALS). What the owner reads of the queue afterwards is not older
 * than the wish: an arrival is told, or found by that look. */
void rmq_port_want_arrival(struct rmq_plane *plane, uint32_t port, uint32_t queue_slot);
/* Gives the oldest `count` completions of that ring back. */
void rmq_port_done(struct rmq_plane *plane, uint32_t port, int ring, uint32_t count);
/* Both at once, for the next completion of this generation in either ring: 1, or 0 when there is none. */
int rmq_port_take(struct rmq_plane *plane, uint32_t port, struct rmq_completion *out);
/* The same, up to the first completion of this generation where `(token & mask) == of` is not `wanted`, which stays. */
int rmq_port_take_where(struct rmq_plane *plane, uint32_t port, uint64_t mask, uint64_t of, int wanted, struct rmq_completion *out);
/* A completion waits; to be looked at between arming the owner's bell and waiting. */
int rmq_port_has_answers(struct rmq_plane *plane, uint32_t port);

/* The owner of a port with RMQ_PORT_COMMITS: consumer offsets for control, which stores them in this order before it next reads
 * offsets. The number that found room; the owner reports the others at a later turn. A death keeps what was published; a
 * replacement reports the newest offsets again. */
uint32_t rmq_port_commit(struct rmq_plane *plane, uint32_t port, const struct rmq_offset_commit *commits, uint32_t count);

/* End of the log behind everything that was submitted, or -EAGAIN while write still has some of it. */
int64_t rmq_port_settled(struct rmq_plane *plane, uint32_t port);
/* 1 = settled, and each request has its completion in one of the two rings. Settled alone is not enough: a writer that dies
 * behind its journal has taken the requests, and their completions come with the next writer. */
int rmq_port_answered(struct rmq_plane *plane, uint32_t port);

/* The owner of an ordered port has seen a refusal: write accepts its requests from now on. Call it once for each refusal with a
 * cause other than BEHIND_REFUSED and CHAIN_REFUSED, before the next submit. A second call may cover a refusal that the owner
 * has not seen. */
void rmq_port_acknowledge(struct rmq_plane *plane, uint32_t port);
/* cdef-end */

/* producer -> role that a completion wakes. */
static inline uint32_t rmq_port_role(const struct rmq_plane_header *header, uint32_t port)
{
    return header->ports.port[port].role;
}

/* The refusal that still applies to `position` of an ordered port's request ring, as the journal keeps it. 0 = none. Twin:
 * refusal_at in ipc/ports.py. */
static inline uint64_t rmq_port_refusal(uint64_t refused_at, uint64_t acknowledged, uint64_t position)
{
    return acknowledged >= refused_at && position >= acknowledged ? 0 : refused_at;
}
#endif
