/* reader_park.c: held pulls. Dispatch sees the flag byte of (reader, queue slot) and pushes the slot when its queue grows. A
 * scan every 5 s answers pulls that would otherwise be held for ever, because of a lost wake-up or a filter. Stock does the
 * same, without a check of tags.
 */
#include <stdlib.h>

#include "reader/reader_state.h"

#define PARKED_MAX 65536u
#define PARKED_PER_CONNECTION_MAX 16384u /* a client holds one a queue and group */
#define PARKED_BYTES_MAX (64u << 20) /* of the frames kept */
#define SCAN_MS 5000
#define POSTPONE_MS 20

int rmq_park_open(struct rmq_reader *r)
{
    r->parked_capacity = PARKED_MAX;
    r->parked = calloc(r->parked_capacity, sizeof *r->parked); /* touched as far as used */
    r->parked_slots = calloc(r->context.header->tables.queue_capacity, sizeof *r->parked_slots);
    r->parked_flags = (uint8_t *)r->context.plane->base + r->context.port->parked_flags_at;
    r->parked_free = RMQ_NONE;
    r->long_polling = rmq_load(&r->context.settings->long_polling_enable);
    if (!r->parked || !r->parked_slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < rmq_load(&r->context.header->tables.queue_count); i++)
        if (r->parked_flags[i])
            rmq_store_relaxed(&r->parked_flags[i], 0); /* of the dead process */
    struct rmq_ring *arrived = &r->context.port->arrived;
    rmq_store(&arrived->tail, rmq_load(&arrived->head));
    r->parked_next_ms = INT64_MAX;
    r->scan_next_ms = r->context.now_ms + SCAN_MS;
    return 0;
}

void rmq_park_close(struct rmq_reader *r)
{
    for (uint32_t i = 0; r->parked && i < r->parked_used; i++)
        free(r->parked[i].frame);
    free(r->parked);
    free(r->parked_slots);
}

static struct rmq_parked_pull *parked_at(struct rmq_reader *r, uint32_t name) { return &r->parked[name - 1]; }

int rmq_park(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_pull *pull, const uint8_t *frame, uint32_t length,
             int64_t hold_ms)
{
    uint32_t index = r->parked_free;
    if ((index == RMQ_NONE && r->parked_used == r->parked_capacity) || length > PARKED_BYTES_MAX - r->parked_bytes ||
        c->parked_count >= PARKED_PER_CONNECTION_MAX)
        return -ENOMEM;
    uint8_t *copy = malloc(length);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, frame, length);
    if (index != RMQ_NONE)
        r->parked_free = r->parked[index].next_free;
    else
        index = r->parked_used++;
    if (hold_ms < 0)
        hold_ms = 0;
    if (hold_ms > 3600000)
        hold_ms = 3600000;
    struct rmq_parked_pull *p = &r->parked[index];
    uint32_t name = index + 1, *slot = &r->parked_slots[pull->queue_slot];
    *p = (struct rmq_parked_pull){
        .connection = rmq_connection_index(&r->connections, c),
        .connection_generation = c->generation,
        .queue_slot = pull->queue_slot,
        .frame = copy,
        .frame_length = length,
        .offset = pull->offset,
        .scanned = pull->offset,
        .deadline_ms = r->context.now_ms + hold_ms,
        .slot_next = *slot,
        .connection_next = c->parked,
    };
    if (*slot)
        parked_at(r, *slot)->slot_previous = name;
    if (c->parked)
        parked_at(r, c->parked)->connection_previous = name;
    *slot = c->parked = name;
    r->parked_count++;
    c->parked_count++;
    r->parked_bytes += length;
    if (p->deadline_ms < r->parked_next_ms)
        r->parked_next_ms = p->deadline_ms;
    rmq_store(&r->parked_flags[pull->queue_slot], 1);
    RMQ_CRASH("reader-parked-flagged");
    rmq_fence();
    return 0;
}

static void unpark(struct rmq_reader *r, struct rmq_parked_pull *p)
{
    struct rmq_connection *c = rmq_connection_at(&r->connections, p->connection);
    if (p->slot_previous)
        parked_at(r, p->slot_previous)->slot_next = p->slot_next;
    else
        r->parked_slots[p->queue_slot] = p->slot_next;
    if (p->slot_next)
        parked_at(r, p->slot_next)->slot_previous = p->slot_previous;
    if (p->connection_previous)
        parked_at(r, p->connection_previous)->connection_next = p->connection_next;
    else
        c->parked = p->connection_next;
    if (p->connection_next)
        parked_at(r, p->connection_next)->connection_previous = p->connection_previous;
    if (!r->parked_slots[p->queue_slot])
        rmq_store(&r->parked_flags[p->queue_slot], 0);
    RMQ_CRASH("reader-unparked");
    free(p->frame);
    p->frame = NULL;
    p->next_free = r->parked_free;
    r->parked_free = (uint32_t)(p - r->parked);
    r->parked_count--;
    c->parked_count--;
    r->parked_bytes -= p->frame_length;
}

void rmq_unpark_last(struct rmq_reader *r, struct rmq_connection *c) { unpark(r, parked_at(r, c->parked)); }

void rmq_park_forget(struct rmq_reader *r, struct rmq_connection *c)
{
    while (c->parked)
        unpark(r, parked_at(r, c->parked));
}

static void postpone(struct rmq_reader *r, struct rmq_parked_pull *p)
{
    p->deadline_ms = r->context.now_ms + POSTPONE_MS;
    if (p->deadline_ms < r->parked_next_ms)
        r->parked_next_ms = p->deadline_ms;
}

/* Runs a held pull; with `look` only if something may match. It may be gone afterwards. */
static void run(struct rmq_reader *r, struct rmq_parked_pull *p, int look)
{
    struct rmq_connection *c = rmq_connection_at(&r->connections, p->connection);
    uint8_t *frame = p->frame;
    uint32_t generation = p->connection_generation;
    if (c->state != RMQ_CONNECTION_OPEN || c->generation != generation) {
        unpark(r, p);
        return;
    }
    if (c->output && c->output->bytes > rmq_output_soft_limit(&r->outputs)) {
        postpone(r, p); /* many pulls woken at once must not flood their own connection */
        return;
    }
    p->frame = NULL; /* the entry may go with the connection, the frame must not */
    int done = rmq_pull_again(r, c, frame, p->frame_length, look, &p->scanned);
    if (c->state != RMQ_CONNECTION_OPEN) {
        free(frame); /* the entry is gone: rmq_park_forget */
        return;
    }
    p->frame = frame;
    if (done)
        unpark(r, p);
    else if (!look)
        postpone(r, p);
}

static void run_slot(struct rmq_reader *r, uint32_t slot)
{
    for (uint32_t name = r->parked_slots[slot]; name;) {
        struct rmq_parked_pull *p = parked_at(r, name);
        uint32_t next = p->slot_next;
        run(r, p, 1);
        /* closing a connection takes all its pulls out: begin again when the next one went with it */
        name = next && !parked_at(r, next)->frame ? r->parked_slots[slot] : next;
    }
}

uint32_t rmq_arrivals_drain(struct rmq_reader *r)
{
    struct rmq_ring *ring = &r->context.port->arrived;
    uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
    uint32_t count = (uint32_t)(head - tail);
    if (!count)
        return 0;
    if (count == ring->capacity)
        r->scan_next_ms = r->context.now_ms; /* some may not have fitted */
    for (; tail < head; tail++) {
        uint32_t slot = *(const uint32_t *)rmq_ring_slot(r->context.plane->base, ring, tail);
        RMQ_INVARIANT(slot < r->context.header->tables.queue_capacity, slot, r->context.header->tables.queue_capacity, tail);
        if (r->parked_slots[slot])
            run_slot(r, slot);
    }
    RMQ_CRASH("reader-arrivals-run");
    rmq_store(&ring->tail, tail);
    return count;
}

void rmq_park_apply_settings(struct rmq_reader *r)
{
    uint32_t long_polling = rmq_load(&r->context.settings->long_polling_enable);
    int64_t latest_ms = r->context.now_ms + rmq_load(&r->context.settings->short_polling_ms);
    for (uint32_t i = 0; r->long_polling && !long_polling && i < r->parked_used; i++) {
        struct rmq_parked_pull *p = &r->parked[i];
        if (p->frame && p->deadline_ms > latest_ms)
            p->deadline_ms = latest_ms;
        if (p->frame && p->deadline_ms < r->parked_next_ms)
            r->parked_next_ms = p->deadline_ms;
    }
    r->long_polling = long_polling;
}

void rmq_park_tick(struct rmq_reader *r)
{
    int scan = r->context.now_ms >= r->scan_next_ms;
    if (scan)
        r->scan_next_ms = r->context.now_ms + SCAN_MS;
    if (!scan && r->context.now_ms < r->parked_next_ms)
        return;
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < r->parked_used && r->parked_count; i++) {
        struct rmq_parked_pull *p = &r->parked[i];
        if (!p->frame)
            continue;
        int grown = scan && (int64_t)rmq_load(&rmq_queue_at(r->context.plane, p->queue_slot)->max_offset) > p->offset;
        if (grown || r->context.now_ms >= p->deadline_ms)
            run(r, p, 0);
        if (p->frame && p->deadline_ms < next)
            next = p->deadline_ms;
    }
    r->parked_next_ms = next == INT64_MAX ? next : next < r->context.now_ms + 20 ? r->context.now_ms + 20 : next;
}
