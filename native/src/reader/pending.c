#include "reader/pending.h"

#include <stdlib.h>

#define INDEX_MASK ((1u << RMQ_PENDING_INDEX_BITS) - 1)

static uint32_t capacity_for(uint32_t request_slots)
{
    uint64_t capacity = (uint64_t)request_slots * 2;
    return capacity > INDEX_MASK ? INDEX_MASK : (uint32_t)capacity;
}

uint64_t rmq_reader_scratch_bytes(uint32_t request_slots) { return (uint64_t)capacity_for(request_slots) * RMQ_SCRATCH_BYTES; }

int rmq_pendings_open(struct rmq_pendings *pendings, struct rmq_arena *arena, struct rmq_connections *connections)
{
    const struct rmq_read_context *context = arena->context;
    uint32_t slots = context->port->request.capacity;
    pendings->arena = arena;
    pendings->connections = connections;
    pendings->capacity = capacity_for(slots);
    if (context->plane->arena_bytes[context->port_number] < arena->scratch_at + rmq_reader_scratch_bytes(slots))
        return -EINVAL;
    pendings->table = calloc(pendings->capacity, sizeof *pendings->table); /* touched as far as used */
    pendings->free = RMQ_NONE;
    return pendings->table ? 0 : -ENOMEM;
}

void rmq_pendings_close(struct rmq_pendings *pendings) { free(pendings->table); }

struct rmq_pending *rmq_pending_take(struct rmq_pendings *pendings, enum rmq_pending_kind kind, struct rmq_connection *c,
                                     const struct rmq_frame_header *h)
{
    struct rmq_pending *p;
    if (pendings->free != RMQ_NONE) {
        p = &pendings->table[pendings->free];
        pendings->free = p->next;
    } else if (pendings->used < pendings->capacity) {
        p = &pendings->table[pendings->used++];
    } else {
        return NULL;
    }
    p->kind = (uint8_t)kind;
    p->connection = rmq_connection_index(pendings->connections, c);
    p->connection_generation = c->generation;
    p->opaque = h->opaque;
    p->code = h->code;
    p->serialise = h->serialise & 1;
    p->oneway = (h->flag & RMQ_FLAG_ONEWAY) != 0;
    p->next = RMQ_NONE;
    p->ref = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
    pendings->counts[kind]++;
    return p;
}

struct rmq_pending *rmq_pending_find(struct rmq_pendings *pendings, uint32_t id)
{
    uint32_t index = id & INDEX_MASK;
    if (index >= pendings->used)
        return NULL;
    struct rmq_pending *p = &pendings->table[index];
    return p->kind != RMQ_PENDING_FREE && p->turn == id >> RMQ_PENDING_INDEX_BITS ? p : NULL;
}

void rmq_pending_release(struct rmq_pendings *pendings, struct rmq_pending *p)
{
    RMQ_INVARIANT(p->kind != RMQ_PENDING_FREE, rmq_pending_id(pendings, p), p->connection, p->code);
    pendings->counts[p->kind]--;
    rmq_frame_ref_release(pendings->arena, &p->ref);
    p->kind = RMQ_PENDING_FREE;
    p->turn = (p->turn + 1) & RMQ_PENDING_TURN_MASK;
    p->next = pendings->free;
    pendings->free = (uint32_t)(p - pendings->table);
}
