#include "reader/parking.h"

#include <stdlib.h>
#include <string.h>

#define PARKED_MAX 65536u
#define PARKED_PER_CONNECTION_MAX 16384u /* a client holds one a queue and group */
#define PARKED_BYTES_MAX (64u << 20) /* of the frames kept */

int rmq_parking_open(struct rmq_parking *parking, struct rmq_read_context *context, struct rmq_connections *connections)
{
    parking->context = context;
    parking->connections = connections;
    parking->capacity = PARKED_MAX;
    parking->table = calloc(parking->capacity, sizeof *parking->table); /* touched as far as used */
    parking->slot_count = parking->context->header->tables.queue_capacity;
    parking->slots = calloc(parking->slot_count, sizeof *parking->slots);
    parking->flags = (uint8_t *)parking->context->plane->base + parking->context->port->parked_flags_at;
    parking->free = RMQ_NONE;
    parking->long_polling = rmq_load(&parking->context->settings->long_polling_enable);
    parking->was_master = rmq_is_master(parking->context->plane->watermarks);
    if (!parking->table || !parking->slots)
        return -ENOMEM;
    uint32_t queues = rmq_load(&parking->context->header->tables.queue_count);
    RMQ_INVARIANT(queues <= parking->slot_count, queues, parking->slot_count);
    for (uint32_t i = 0; i < queues; i++)
        if (parking->flags[i])
            rmq_store_relaxed(&parking->flags[i], 0); /* of the dead process */
    struct rmq_ring *arrived = &parking->context->port->arrived;
    rmq_store(&arrived->tail, rmq_load(&arrived->head));
    parking->next_ms = INT64_MAX;
    parking->scan_next_ms = parking->context->now_ms + RMQ_PARKED_SCAN_MS;
    return 0;
}

void rmq_parking_close(struct rmq_parking *parking)
{
    for (uint32_t i = 0; parking->table && i < parking->used; i++)
        free(parking->table[i].frame);
    free(parking->table);
    free(parking->slots);
}

int rmq_park(struct rmq_parking *parking, struct rmq_connection *c, uint32_t queue_slot, int64_t offset, const uint8_t *frame,
             uint32_t length, int64_t hold_ms)
{
    uint32_t index = parking->free;
    RMQ_INVARIANT(queue_slot < parking->slot_count, queue_slot, parking->slot_count); /* control's tables named it */
    if ((index == RMQ_NONE && parking->used == parking->capacity) || length > PARKED_BYTES_MAX - parking->bytes ||
        c->parked.count >= PARKED_PER_CONNECTION_MAX)
        return -ENOMEM;
    uint8_t *copy = malloc(length);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, frame, length);
    if (index != RMQ_NONE)
        parking->free = parking->table[index].next_free;
    else
        index = parking->used++;
    if (hold_ms < 0)
        hold_ms = 0;
    if (hold_ms > 3600000)
        hold_ms = 3600000;
    struct rmq_parked_pull *p = &parking->table[index];
    uint32_t name = index + 1, *slot = &parking->slots[queue_slot];
    *p = (struct rmq_parked_pull){
        .connection = rmq_connection_index(parking->connections, c),
        .connection_generation = c->generation,
        .queue_slot = queue_slot,
        .frame = copy,
        .frame_length = length,
        .offset = offset,
        .scanned = offset,
        .deadline_ms = parking->context->now_ms + hold_ms,
        .slot_next = *slot,
        .connection_next = c->parked.first,
    };
    if (*slot)
        rmq_parked_at(parking, *slot)->slot_previous = name;
    if (c->parked.first)
        rmq_parked_at(parking, c->parked.first)->connection_previous = name;
    *slot = c->parked.first = name;
    parking->count++;
    c->parked.count++;
    parking->bytes += length;
    if (p->deadline_ms < parking->next_ms)
        parking->next_ms = p->deadline_ms;
    rmq_store(&parking->flags[queue_slot], 1);
    RMQ_CRASH("reader-parked-flagged");
    rmq_fence();
    return 0;
}

void rmq_unpark(struct rmq_parking *parking, struct rmq_parked_pull *p)
{
    struct rmq_connection *c = rmq_connection_at(parking->connections, p->connection);
    uint8_t flag = rmq_load_relaxed(&parking->flags[p->queue_slot]);
    RMQ_INVARIANT(flag == 1, flag, p->queue_slot, parking->count); /* without it dispatch reports no growth of the queue */
    if (p->slot_previous)
        rmq_parked_at(parking, p->slot_previous)->slot_next = p->slot_next;
    else
        parking->slots[p->queue_slot] = p->slot_next;
    if (p->slot_next)
        rmq_parked_at(parking, p->slot_next)->slot_previous = p->slot_previous;
    if (p->connection_previous)
        rmq_parked_at(parking, p->connection_previous)->connection_next = p->connection_next;
    else
        c->parked.first = p->connection_next;
    if (p->connection_next)
        rmq_parked_at(parking, p->connection_next)->connection_previous = p->connection_previous;
    if (!parking->slots[p->queue_slot])
        rmq_store(&parking->flags[p->queue_slot], 0);
    RMQ_CRASH("reader-unparked");
    free(p->frame);
    p->frame = NULL;
    p->next_free = parking->free;
    parking->free = (uint32_t)(p - parking->table);
    parking->count--;
    c->parked.count--;
    parking->bytes -= p->frame_length;
}

void rmq_unpark_last(struct rmq_parking *parking, struct rmq_connection *c)
{
    rmq_unpark(parking, rmq_parked_at(parking, c->parked.first));
}

void rmq_park_forget(struct rmq_parking *parking, struct rmq_connection *c)
{
    while (c->parked.first)
        rmq_unpark(parking, rmq_parked_at(parking, c->parked.first));
}

void rmq_park_postpone(struct rmq_parking *parking, struct rmq_parked_pull *p)
{
    p->deadline_ms = parking->context->now_ms + RMQ_PARKED_POSTPONE_MS;
    if (p->deadline_ms < parking->next_ms)
        parking->next_ms = p->deadline_ms;
}

void rmq_park_apply_settings(struct rmq_parking *parking)
{
    uint32_t long_polling = rmq_load(&parking->context->settings->long_polling_enable);
    int64_t latest_ms = parking->context->now_ms + rmq_load(&parking->context->settings->short_polling_ms);
    for (uint32_t i = 0; parking->long_polling && !long_polling && i < parking->used; i++) {
        struct rmq_parked_pull *p = &parking->table[i];
        if (p->frame && p->deadline_ms > latest_ms)
            p->deadline_ms = latest_ms;
        if (p->frame && p->deadline_ms < parking->next_ms)
            parking->next_ms = p->deadline_ms;
    }
    parking->long_polling = long_polling;
}

void rmq_park_watch_side(struct rmq_parking *parking)
{
    int is_master = rmq_is_master(parking->context->plane->watermarks), yields = parking->was_master && !is_master;
    parking->was_master = is_master;
    for (uint32_t i = 0; yields && i < parking->used; i++)
        if (parking->table[i].frame)
            parking->table[i].deadline_ms = parking->next_ms = parking->context->now_ms;
}
