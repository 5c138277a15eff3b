/* Requests under way: an append that write will complete, or a frame that control will judge. */
#include <stdlib.h>

#include "reader/reader_state.h"

#define INDEX_MASK ((1u << RMQ_PENDING_INDEX_BITS) - 1)
#define TURN_MASK 0xfffu

static uint32_t capacity_for(uint32_t request_slots)
{
    uint64_t capacity = (uint64_t)request_slots * 2;
    return capacity > INDEX_MASK ? INDEX_MASK : (uint32_t)capacity;
}

uint64_t rmq_reader_scratch_bytes(uint32_t request_slots) { return (uint64_t)capacity_for(request_slots) * RMQ_SCRATCH_BYTES; }

int rmq_pendings_open(struct rmq_reader *r)
{
    r->pending_capacity = capacity_for(r->requests->capacity);
    if (r->context.plane->arena_bytes[r->context.port_number] < r->arena.scratch_at + rmq_reader_scratch_bytes(r->requests->capacity))
        return -EINVAL;
    r->pending = calloc(r->pending_capacity, sizeof *r->pending); /* touched as far as used */
    r->pending_free = RMQ_NONE;
    r->redo_head = r->redo_tail = RMQ_NONE;
    return r->pending ? 0 : -ENOMEM;
}

void rmq_pendings_close(struct rmq_reader *r)
{
    for (uint32_t i = 0; i < r->pending_used; i++)
        free(r->pending[i].answer);
    free(r->pending);
}

struct rmq_pending *rmq_pending_take(struct rmq_reader *r, enum rmq_pending_kind kind, struct rmq_connection *c,
                                     const struct rmq_frame_header *h)
{
    struct rmq_pending *p;
    if (r->pending_free != RMQ_NONE) {
        p = &r->pending[r->pending_free];
        r->pending_free = p->next;
    } else if (r->pending_used < r->pending_capacity) {
        p = &r->pending[r->pending_used++];
    } else {
        return NULL;
    }
    p->kind = (uint8_t)kind;
    p->connection = rmq_connection_index(&r->connections, c);
    p->connection_generation = c->generation;
    p->opaque = h->opaque;
    p->code = h->code;
    p->serialise = h->serialise & 1;
    p->oneway = (h->flag & RMQ_FLAG_ONEWAY) != 0;
    p->redone = 0;
    p->dead = 0;
    p->next = RMQ_NONE;
    p->ref = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
    if (kind == RMQ_PENDING_COLD) {
        r->cold_count++;
        r->asked[p->answerer = RMQ_CONTROL_ANSWERER]++;
        c->cold_count++;
        p->cold_bytes = 0;
    } else {
        r->in_flight++;
    }
    return p;
}

uint8_t *rmq_pending_scratch(const struct rmq_reader *r, const struct rmq_pending *p)
{
    return r->arena.bytes + r->arena.scratch_at + (uint64_t)(p - r->pending) * RMQ_SCRATCH_BYTES;
}

uint32_t rmq_pending_id(const struct rmq_reader *r, const struct rmq_pending *p)
{
    return (uint32_t)(p - r->pending) | (uint32_t)p->turn << RMQ_PENDING_INDEX_BITS;
}

struct rmq_pending *rmq_pending_find(struct rmq_reader *r, uint32_t id)
{
    uint32_t index = id & INDEX_MASK;
    if (index >= r->pending_used)
        return NULL;
    struct rmq_pending *p = &r->pending[index];
    return p->kind != RMQ_PENDING_FREE && p->turn == id >> RMQ_PENDING_INDEX_BITS ? p : NULL;
}

void rmq_pending_release(struct rmq_reader *r, struct rmq_pending *p)
{
    if (p->kind == RMQ_PENDING_COLD) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, p->connection);
        r->cold_count--;
        r->asked[p->answerer]--;
        if (c->generation == p->connection_generation) {
            c->cold_count--;
            c->cold_bytes -= p->cold_bytes;
        }
    } else {
        r->in_flight--;
    }
    rmq_frame_ref_release(&r->arena, &p->ref);
    free(p->answer);
    p->answer = NULL;
    p->answer_length = 0;
    p->kind = RMQ_PENDING_FREE;
    p->turn = (p->turn + 1) & TURN_MASK;
    p->next = r->pending_free;
    r->pending_free = (uint32_t)(p - r->pending);
}
