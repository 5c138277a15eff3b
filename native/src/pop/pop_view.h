/* pop_view.h: a look at the open messages of all groups, or of one: sums, the oldest ones, shares of queues and clients.
 *
 * The entries are looked at in steps, so that requests come between. A message that is given or ends meanwhile may count or not.
 *
 * A look at one group counts the messages of orderly batches that block their queues, too. A look at all groups leaves them out:
 * its sums are those of metrics, for which messages of orderly groups are not open.
 * Twin: ringmq/pop/view_twin.py.
 */
#ifndef RMQ_POP_VIEW_H
#define RMQ_POP_VIEW_H

#include "plane/plane.h"
#include "pop/pop_index.h"
#include "pop/pop_windows.h"

/* cdef-begin */
#define RMQ_POP_VIEW_ROWS 16384      /* of queues, and of clients; a power of two. A quarter stays free */
#define RMQ_POP_VIEW_OLDEST 64
#define RMQ_POP_VIEW_TOPICS 3

/* The share of a queue or of a client. */
struct rmq_pop_view_row {
    uint64_t key;                /* place of the window, or hash of the client, plus 1; 0: the row is free */
    uint64_t messages;
    int64_t oldest_ms;           /* the earliest pop time */
    int64_t next_due_ms;         /* the earliest time at which a message comes again */
};

/* An entry with open messages, or a batch of an orderly group. */
struct rmq_pop_view_open {
    uint32_t place, client;
    uint32_t messages;
    uint16_t is_due;             /* the time is over, and the copies are on their way */
    uint16_t attempts;           /* pops that have given the first message of a batch, with this one; 0: of an entry */
    int64_t queue_offset;        /* of the first one */
    int64_t pop_time_ms, due_ms; /* of the wall clock */
};

struct rmq_pop_view {
    /* set before the first step */
    const struct rmq_pop_windows *windows;
    const struct rmq_pop_index *index;
    struct rmq_plane *plane;
    int64_t now_ms;              /* wall clock: messages of an earlier time are due */
    uint32_t group_id;           /* RMQ_NONE: all */
    uint32_t topic_count;        /* 0: all */
    uint32_t topics[RMQ_POP_VIEW_TOPICS];
    uint32_t oldest_max;         /* at most RMQ_POP_VIEW_OLDEST */
    struct rmq_pop_view_row *queues, *clients; /* RMQ_POP_VIEW_ROWS zeroed rows each; NULL: not wanted */
    /* goes on from step to step */
    uint32_t next, next_order;
    /* results */
    uint32_t queue_count, client_count, oldest_count;
    uint64_t entries;            /* of these messages */
    uint64_t messages;           /* that consumers have, or that are due and have no copy in the log */
    uint64_t returned;           /* that no consumer has received: the next pop begins with them */
    uint64_t due;
    uint64_t queue_rest, client_rest; /* messages of queues and clients that found no row */
    int64_t oldest_ms;           /* the earliest pop time, and the earliest time of a due message; INT64_MAX: there is none */
    int64_t oldest_due_ms;
    struct rmq_pop_view_open oldest[RMQ_POP_VIEW_OLDEST]; /* the earliest pop time first */
};

/* Clears the results. */
void rmq_pop_view_begin(struct rmq_pop_view *v);
/* Looks at `room` entries and batches at most. 1: more are left. */
int rmq_pop_view_step(struct rmq_pop_view *v, uint32_t room);
/* The rows with the most messages, at most `room`: that with the most first, of equals that with the smaller key. */
uint32_t rmq_pop_view_top(const struct rmq_pop_view_row *rows, struct rmq_pop_view_row *top, uint32_t room);
/* cdef-end */
#endif
