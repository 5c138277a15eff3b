/* held.h: polls that wait for an answerer (RMQ_VERDICT_HOLD). Each is in a slot that the answerer has named, with a copy of its
 * ask and of its answer at the deadline. held_asks.c does what verdicts, deadlines and new answerers want.
 *
 * What stays true:
 * - A poll is free, HELD in a slot of its answerer, in the queue of asks to be made AGAIN, or ASKED again.
 * - The slots of an answerer are those of `generation`, and name polls that are HELD.
 * - A poll that is not free is in the list of its connection and in the heap of deadlines. `count` and `bytes` are those of
 *   all, counts[a] of answerer a. asked_of[a] is the number of those of answerer a that are ASKED.
 */
#ifndef RMQ_HELD_H
#define RMQ_HELD_H

#include "plane/asks.h"
#include "reader/connections.h"

enum rmq_held_state { RMQ_HELD_FREE, RMQ_HELD_IN_SLOT, RMQ_HELD_AGAIN, RMQ_HELD_ASKED };

struct rmq_held_poll {
    uint32_t connection, connection_generation;
    uint32_t slot, serial;
    int32_t opaque, code;
    uint32_t frame_bytes;            /* of the record of its ask */
    uint32_t ask_bytes, answer_bytes;
    uint32_t pending;                /* ASKED: the id of its ask */
    int64_t deadline_ns;
    uint8_t *bytes;                  /* struct rmq_asked_again, the ask, the answer */
    uint32_t next, previous;         /* of the same connection; index + 1 */
    uint32_t queue_next, queue_previous; /* AGAIN; queue_next of the free list, too */
    uint32_t heap_at;
    uint8_t answerer, state, serialise;
    uint8_t deaths;                  /* of answerers that were asked again, and may have died of it */
};
_Static_assert(sizeof(struct rmq_held_poll) <= 96, "a reader has one for each poll");

struct rmq_held_queue {
    uint32_t first, last;            /* index + 1 */
};

struct rmq_held {
    struct rmq_read_context *context;
    struct rmq_connections *connections;
    struct rmq_held_poll *table;
    uint32_t capacity, used, free, count;
    uint32_t asked_of[RMQ_ANSWERERS_MAX];
    uint64_t bytes;
    uint32_t *heap;                  /* indexes; the earliest deadline first */
    uint32_t *slots[RMQ_ANSWERERS_MAX]; /* index + 1; NULL: it has held nothing yet */
    uint32_t generation[RMQ_ANSWERERS_MAX];
    uint32_t counts[RMQ_ANSWERERS_MAX];
    struct rmq_held_queue again[RMQ_ANSWERERS_MAX];
    struct {
        uint32_t first, count;
    } *of;                           /* by connection */
};

/* The parts of a poll. */
struct rmq_held_ask {
    struct rmq_connection *c;
    int32_t opaque, code;
    uint32_t frame_bytes, serial;
    uint8_t answerer, serialise;
    const struct rmq_hold *hold;     /* its payload follows */
};

int rmq_held_open(struct rmq_held *held, struct rmq_read_context *context, struct rmq_connections *connections); /* 0, -ENOMEM */
void rmq_held_close(struct rmq_held *held);
/* The slot is free. NULL: there is no room. */
struct rmq_held_poll *rmq_held_put(struct rmq_held *held, const struct rmq_held_ask *ask);
struct rmq_held_poll *rmq_held_in(struct rmq_held *held, uint32_t answerer, uint32_t slot); /* NULL: nothing */
void rmq_held_release(struct rmq_held *held, struct rmq_held_poll *poll);
/* Its state changes: it is to be asked again, or is. `pending`: the id of the ask. */
void rmq_held_again(struct rmq_held *held, struct rmq_held_poll *poll);
void rmq_held_asked(struct rmq_held *held, struct rmq_held_poll *poll, uint32_t pending);
/* The slots of an older generation are emptied: their polls are to be asked again. */
void rmq_held_begin(struct rmq_held *held, uint32_t answerer, uint32_t generation);

static inline struct rmq_held_poll *rmq_held_at(const struct rmq_held *held, uint32_t name)
{
    return name ? &held->table[name - 1] : NULL;
}

static inline uint32_t rmq_held_name(const struct rmq_held *held, const struct rmq_held_poll *poll)
{
    return (uint32_t)(poll - held->table) + 1;
}

/* The one that is to be asked again first. */
static inline struct rmq_held_poll *rmq_held_next(const struct rmq_held *held, uint32_t answerer)
{
    return rmq_held_at(held, held->again[answerer].first);
}

/* A poll of the connection; NULL: it has none. */
static inline struct rmq_held_poll *rmq_held_first_of(const struct rmq_held *held, const struct rmq_connection *c)
{
    return rmq_held_at(held, held->of[rmq_connection_index(held->connections, c)].first);
}

static inline uint32_t rmq_held_count(const struct rmq_held *held, const struct rmq_connection *c)
{
    return held->of[rmq_connection_index(held->connections, c)].count;
}

/* The time at which the reader answers the first one itself. */
static inline int64_t rmq_held_due_ns(const struct rmq_held *held)
{
    return held->count ? held->table[held->heap[0]].deadline_ns + RMQ_HELD_GRACE_MS * 1000000ll : INT64_MAX;
}

static inline const uint8_t *rmq_held_answer(const struct rmq_held_poll *poll)
{
    return poll->bytes + sizeof(struct rmq_asked_again) + poll->ask_bytes;
}
#endif
