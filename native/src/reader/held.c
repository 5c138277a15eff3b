#include "reader/held.h"

#include <stdlib.h>
#include <string.h>

#define HOLD_NS_MAX 3600000000000ll

int rmq_held_open(struct rmq_held *held, struct rmq_read_context *context, struct rmq_connections *connections)
{
    held->context = context;
    held->connections = connections;
    held->capacity = context->settings->held_polls_max;
    if (held->capacity > RMQ_HELD_SLOTS)
        held->capacity = RMQ_HELD_SLOTS;
    held->table = calloc(held->capacity + 1, sizeof *held->table); /* touched as far as used, and so are the others */
    held->heap = calloc(held->capacity + 1, sizeof *held->heap);
    held->of = calloc(connections->max, sizeof *held->of);
    return held->table && held->heap && held->of ? 0 : -ENOMEM;
}

void rmq_held_close(struct rmq_held *held)
{
    for (uint32_t i = 0; held->table && i < held->used; i++)
        free(held->table[i].bytes);
    for (uint32_t a = 0; a < RMQ_ANSWERERS_MAX; a++)
        free(held->slots[a]);
    free(held->table);
    free(held->heap);
    free(held->of);
}

/* --- the heap of deadlines ------------------------------------------------------------------------------------------ */

static void heap_set(struct rmq_held *held, uint32_t at, uint32_t index)
{
    held->heap[at] = index;
    held->table[index].heap_at = at;
}

static int64_t heap_time(const struct rmq_held *held, uint32_t at) { return held->table[held->heap[at]].deadline_ns; }

/* The poll at `at` goes to its place, upwards or downwards. */
static void heap_settle(struct rmq_held *held, uint32_t at, uint32_t size)
{
    uint32_t index = held->heap[at];
    int64_t deadline_ns = held->table[index].deadline_ns;
    for (; at && heap_time(held, (at - 1) / 2) > deadline_ns; at = (at - 1) / 2)
        heap_set(held, at, held->heap[(at - 1) / 2]);
    for (uint32_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && heap_time(held, child + 1) < heap_time(held, child))
            child++;
        if (heap_time(held, child) >= deadline_ns)
            break;
        heap_set(held, at, held->heap[child]);
    }
    heap_set(held, at, index);
}

static void heap_remove(struct rmq_held *held, uint32_t at, uint32_t size)
{
    uint32_t last = held->heap[size - 1];
    if (at == size - 1)
        return;
    heap_set(held, at, last);
    heap_settle(held, at, size - 1);
}

/* --- slots and queues ------------------------------------------------------------------------------------------------- */

static void leave_slot(struct rmq_held *held, struct rmq_held_poll *poll)
{
    uint32_t *slot = &held->slots[poll->answerer][poll->slot];
    RMQ_INVARIANT(*slot == rmq_held_name(held, poll), *slot, poll->slot, poll->serial);
    *slot = 0;
}

static void leave_queue(struct rmq_held *held, struct rmq_held_poll *poll)
{
    struct rmq_held_queue *queue = &held->again[poll->answerer];
    if (poll->queue_previous)
        rmq_held_at(held, poll->queue_previous)->queue_next = poll->queue_next;
    else
        queue->first = poll->queue_next;
    if (poll->queue_next)
        rmq_held_at(held, poll->queue_next)->queue_previous = poll->queue_previous;
    else
        queue->last = poll->queue_previous;
}

static void leave(struct rmq_held *held, struct rmq_held_poll *poll)
{
    if (poll->state == RMQ_HELD_IN_SLOT)
        leave_slot(held, poll);
    else if (poll->state == RMQ_HELD_AGAIN)
        leave_queue(held, poll);
    held->asked_of[poll->answerer] -= poll->state == RMQ_HELD_ASKED;
}

void rmq_held_again(struct rmq_held *held, struct rmq_held_poll *poll)
{
    leave(held, poll);
    struct rmq_held_queue *queue = &held->again[poll->answerer];
    uint32_t name = rmq_held_name(held, poll);
    poll->state = RMQ_HELD_AGAIN;
    poll->queue_next = 0;
    poll->queue_previous = queue->last;
    if (queue->last)
        rmq_held_at(held, queue->last)->queue_next = name;
    else
        queue->first = name;
    queue->last = name;
}

void rmq_held_asked(struct rmq_held *held, struct rmq_held_poll *poll, uint32_t pending)
{
    leave(held, poll);
    poll->state = RMQ_HELD_ASKED;
    poll->pending = pending;
    held->asked_of[poll->answerer]++;
}

void rmq_held_begin(struct rmq_held *held, uint32_t answerer, uint32_t generation)
{
    held->generation[answerer] = generation;
    for (uint32_t i = 0; held->counts[answerer] && i < held->used; i++)
        if (held->table[i].state == RMQ_HELD_IN_SLOT && held->table[i].answerer == answerer)
            rmq_held_again(held, &held->table[i]);
}

struct rmq_held_poll *rmq_held_in(struct rmq_held *held, uint32_t answerer, uint32_t slot)
{
    return held->slots[answerer] && slot < RMQ_HELD_SLOTS ? rmq_held_at(held, held->slots[answerer][slot]) : NULL;
}

/* --- polls -------------------------------------------------------------------------------------------------------------- */

static uint32_t bytes_of(const struct rmq_hold *hold)
{
    return (uint32_t)sizeof(struct rmq_asked_again) + hold->ask_bytes + hold->answer_bytes;
}

/* A free entry with room for the bytes; NULL: beyond the bounds, or no memory. */
static struct rmq_held_poll *take_poll(struct rmq_held *held, const struct rmq_held_ask *ask)
{
    const struct rmq_settings *s = held->context->settings;
    uint32_t index = rmq_connection_index(held->connections, ask->c);
    if (held->count >= held->capacity || held->of[index].count >= s->held_connection_polls_max ||
        held->bytes + bytes_of(ask->hold) > s->held_bytes_max)
        return NULL;
    if (!held->slots[ask->answerer])
        held->slots[ask->answerer] = calloc(RMQ_HELD_SLOTS, sizeof *held->slots[ask->answerer]);
    uint8_t *bytes = held->slots[ask->answerer] ? malloc(bytes_of(ask->hold)) : NULL;
    if (!bytes)
        return NULL;
    struct rmq_held_poll *poll = held->free ? rmq_held_at(held, held->free) : &held->table[held->used++];
    if (held->free)
        held->free = poll->queue_next;
    *poll = (struct rmq_held_poll){.bytes = bytes};
    return poll;
}

struct rmq_held_poll *rmq_held_put(struct rmq_held *held, const struct rmq_held_ask *ask)
{
    struct rmq_held_poll *poll = take_poll(held, ask);
    if (!poll)
        return NULL;
    const struct rmq_hold *hold = ask->hold;
    int64_t latest_ns = held->context->now_ns + HOLD_NS_MAX;
    uint32_t index = rmq_connection_index(held->connections, ask->c), name = rmq_held_name(held, poll);
    *poll = (struct rmq_held_poll){
        .connection = index, .connection_generation = ask->c->generation, .slot = hold->slot, .serial = ask->serial,
        .opaque = ask->opaque, .code = ask->code, .frame_bytes = ask->frame_bytes, .ask_bytes = hold->ask_bytes,
        .answer_bytes = hold->answer_bytes, .deadline_ns = hold->deadline_ns < latest_ns ? hold->deadline_ns : latest_ns,
        .bytes = poll->bytes, .next = held->of[index].first, .answerer = ask->answerer, .state = RMQ_HELD_IN_SLOT,
        .serialise = ask->serialise,
    };
    struct rmq_asked_again again = {.deadline_ns = poll->deadline_ns};
    memcpy(poll->bytes, &again, sizeof again);
    memcpy(poll->bytes + sizeof again, hold + 1, hold->ask_bytes + hold->answer_bytes);
    if (poll->next)
        rmq_held_at(held, poll->next)->previous = name;
    held->of[index].first = name;
    held->of[index].count++;
    held->slots[poll->answerer][poll->slot] = name;
    held->counts[poll->answerer]++;
    held->bytes += bytes_of(hold);
    heap_set(held, held->count, name - 1);
    held->count++;
    heap_settle(held, held->count - 1, held->count);
    return poll;
}

void rmq_held_release(struct rmq_held *held, struct rmq_held_poll *poll)
{
    RMQ_INVARIANT(poll->state != RMQ_HELD_FREE && held->count, poll->slot, poll->serial, held->count);
    leave(held, poll);
    if (poll->previous)
        rmq_held_at(held, poll->previous)->next = poll->next;
    else
        held->of[poll->connection].first = poll->next;
    if (poll->next)
        rmq_held_at(held, poll->next)->previous = poll->previous;
    held->of[poll->connection].count--;
    held->counts[poll->answerer]--;
    held->bytes -= sizeof(struct rmq_asked_again) + poll->ask_bytes + poll->answer_bytes;
    heap_remove(held, poll->heap_at, held->count);
    held->count--;
    free(poll->bytes);
    poll->bytes = NULL;
    poll->state = RMQ_HELD_FREE;
    poll->queue_next = held->free;
    held->free = rmq_held_name(held, poll);
}
