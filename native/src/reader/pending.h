/* pending.h: requests under way, of which another role has the next word: a send that write will complete, an ask that an
 * answerer will answer. What only one kind needs is in the payload, which that kind's file knows (sends.h, cold.h).
 *
 * What stays true:
 * - An entry is free, or of one kind. counts[kind] is the number of entries of a kind.
 * - An id names an entry and its turn. A release ends the turn, so a late word finds nothing.
 * - `ref` owns the frame as long as the entry lives, and the scratch of the entry is the entry's own.
 */
#ifndef RMQ_PENDING_H
#define RMQ_PENDING_H

#include "codec/frame_header.h"
#include "reader/connections.h"

enum rmq_pending_kind { RMQ_PENDING_FREE, RMQ_PENDING_APPEND, RMQ_PENDING_COLD, RMQ_PENDING_KINDS };

#define RMQ_PENDING_INDEX_BITS 20
#define RMQ_PENDING_TURN_MASK 0xfffu
#define RMQ_PENDING_PAYLOAD_BYTES 48u

struct rmq_pending {
    uint32_t connection;
    uint32_t connection_generation;
    int32_t opaque;
    int32_t code;
    uint16_t turn;           /* upper bits of the id */
    uint8_t kind;
    uint8_t serialise : 1, oneway : 1;
    uint32_t next;           /* free list, or a queue of its kind */
    struct rmq_frame_ref ref;
    uint32_t frame_length;
    int64_t received_ns;
    uint64_t payload[RMQ_PENDING_PAYLOAD_BYTES / 8];
};

struct rmq_pendings {
    struct rmq_arena *arena;
    struct rmq_connections *connections;
    struct rmq_pending *table;
    uint32_t capacity, used, free;
    uint32_t counts[RMQ_PENDING_KINDS];
    uint32_t appends_max;    /* sends under way */
    int refuses;             /* requests that would wait are refused: their bytes hold the last receive buffers */
};

/* 0, -ENOMEM, or -EINVAL if the arena has no room for their scratch. */
int rmq_pendings_open(struct rmq_pendings *pendings, struct rmq_arena *arena, struct rmq_connections *connections);
void rmq_pendings_close(struct rmq_pendings *pendings);
/* NULL: every entry is taken. Its payload is of the last user. */
struct rmq_pending *rmq_pending_take(struct rmq_pendings *pendings, enum rmq_pending_kind kind, struct rmq_connection *c,
                                     const struct rmq_frame_header *h);
void rmq_pending_release(struct rmq_pendings *pendings, struct rmq_pending *p);
struct rmq_pending *rmq_pending_find(struct rmq_pendings *pendings, uint32_t id); /* NULL: stale */

static inline uint32_t rmq_pending_id(const struct rmq_pendings *pendings, const struct rmq_pending *p)
{
    return (uint32_t)(p - pendings->table) | (uint32_t)p->turn << RMQ_PENDING_INDEX_BITS;
}

/* No further send fits. */
static inline int rmq_pendings_are_full(const struct rmq_pendings *pendings)
{
    uint32_t sends = pendings->counts[RMQ_PENDING_APPEND];
    return sends >= pendings->appends_max || sends + pendings->counts[RMQ_PENDING_COLD] >= pendings->capacity;
}

/* Bytes of the arena for pairs that the broker adds to a request. They live as long as the entry. */
static inline uint8_t *rmq_pending_scratch(const struct rmq_pendings *pendings, const struct rmq_pending *p)
{
    return pendings->arena->bytes + pendings->arena->scratch_at + (uint64_t)(p - pendings->table) * RMQ_SCRATCH_BYTES;
}

/* Its connection, if that is still open. */
static inline struct rmq_connection *rmq_pending_connection(const struct rmq_pendings *pendings, const struct rmq_pending *p)
{
    return rmq_connection_get(pendings->connections, p->connection, p->connection_generation);
}
#endif
