/* parked_runs.c: runs parked pulls once more. */
#include "reader/pulls.h"

/* Runs a parked pull; with `look` only if something may match. It may be gone afterwards, alone. */
static void run(struct rmq_pulls *pulls, struct rmq_parked_pull *p, int look)
{
    struct rmq_parking *parking = pulls->parking;
    struct rmq_connection *c = rmq_connection_at(parking->connections, p->connection);
    if (c->state != RMQ_CONNECTION_OPEN || c->generation != p->connection_generation) {
        rmq_unpark(parking, p);
        return;
    }
    if (rmq_output_is_full(pulls->outputs, c)) {
        rmq_park_postpone(parking, p); /* many pulls woken at once must not flood their own connection */
        return;
    }
    int done = rmq_pull_again(pulls, c, p->frame, p->frame_length, look, &p->scanned);
    if (c->state != RMQ_CONNECTION_OPEN)
        return; /* its entry goes when the close is settled: the caller may hold it */
    if (done)
        rmq_unpark(parking, p);
    else if (!look)
        rmq_park_postpone(parking, p);
}

static void run_slot(struct rmq_pulls *pulls, uint32_t slot)
{
    struct rmq_parking *parking = pulls->parking;
    for (uint32_t name = parking->slots[slot], next; name; name = next) {
        struct rmq_parked_pull *p = rmq_parked_at(parking, name);
        next = p->slot_next;
        run(pulls, p, 1);
    }
}

uint32_t rmq_arrivals_drain(struct rmq_pulls *pulls)
{
    struct rmq_parking *parking = pulls->parking;
    struct rmq_ring *ring = &pulls->context->port->arrived;
    uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
    uint32_t count = (uint32_t)(head - tail), slots = parking->slot_count;
    if (!count)
        return 0;
    if (count == ring->capacity)
        parking->scan_next_ms = pulls->context->now_ms; /* some may not have fitted */
    for (; tail < head; tail++) {
        uint32_t slot = *(const uint32_t *)rmq_ring_slot(pulls->context->plane->base, ring, tail);
        RMQ_INVARIANT(slot < slots, slot, slots, tail);
        if (parking->slots[slot])
            run_slot(pulls, slot);
    }
    RMQ_CRASH("reader-arrivals-run");
    rmq_store(&ring->tail, tail);
    return count;
}

void rmq_parked_tick(struct rmq_pulls *pulls)
{
    struct rmq_parking *parking = pulls->parking;
    int scan = pulls->context->now_ms >= parking->scan_next_ms;
    if (scan)
        parking->scan_next_ms = pulls->context->now_ms + RMQ_PARKED_SCAN_MS;
    if (!scan && pulls->context->now_ms < parking->next_ms)
        return;
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < parking->used && parking->count; i++) {
        struct rmq_parked_pull *p = &parking->table[i];
        if (!p->frame)
            continue;
        int grown = scan && (int64_t)rmq_load(&rmq_queue_at(pulls->context->plane, p->queue_slot)->max_offset) > p->offset;
        if (grown || pulls->context->now_ms >= p->deadline_ms)
            run(pulls, p, 0);
        if (p->frame && p->deadline_ms < next)
            next = p->deadline_ms;
    }
    parking->next_ms = next == INT64_MAX ? next : next < pulls->context->now_ms + 20 ? pulls->context->now_ms + 20 : next;
}
