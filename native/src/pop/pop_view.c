/* pop_view.c: a look at open messages. Twin: ringmq/pop/view_twin.py. */
#include "pop/pop_view.h"

#include <string.h>

#include "pop/pop_entries.h"

#define ROWS_USED (RMQ_POP_VIEW_ROWS / 4 * 3)

void rmq_pop_view_begin(struct rmq_pop_view *v)
{
    v->next = v->next_order = v->queue_count = v->client_count = v->oldest_count = 0;
    v->entries = v->messages = v->returned = v->due = v->queue_rest = v->client_rest = 0;
    v->oldest_ms = v->oldest_due_ms = INT64_MAX;
}

static int is_wanted(const struct rmq_pop_view *v, uint32_t place)
{
    if (v->group_id == RMQ_NONE)
        return 1;
    if (rmq_pop_index_group(v->index, place) != v->group_id)
        return 0;
    uint32_t topic = v->topic_count ? rmq_queue_at(v->plane, rmq_pop_index_queue(v->index, place))->topic_id : 0;
    for (uint32_t i = 0; i < v->topic_count; i++)
        if (v->topics[i] == topic)
            return 1;
    return !v->topic_count;
}

static void add_to_row(struct rmq_pop_view_row *rows, uint32_t value, const struct rmq_pop_view_open *open, uint32_t *count,
                       uint64_t *rest)
{
    if (!rows)
        return;
    uint64_t key = (uint64_t)value + 1;
    uint32_t at = (uint32_t)rmq_pop_mix(key) & (RMQ_POP_VIEW_ROWS - 1);
    while (rows[at].key && rows[at].key != key)
        at = (at + 1) & (RMQ_POP_VIEW_ROWS - 1);
    if (!rows[at].key) {
        if (*count == ROWS_USED) {
            *rest += open->messages;
            return;
        }
        ++*count;
        rows[at] = (struct rmq_pop_view_row){.key = key, .oldest_ms = open->pop_time_ms, .next_due_ms = open->due_ms};
    }
    rows[at].messages += open->messages;
    if (open->pop_time_ms < rows[at].oldest_ms)
        rows[at].oldest_ms = open->pop_time_ms;
    if (open->due_ms < rows[at].next_due_ms)
        rows[at].next_due_ms = open->due_ms;
}

/* Puts an entry among the oldest, behind those of the same time. */
static void add_to_oldest(struct rmq_pop_view *v, const struct rmq_pop_view_open *open)
{
    uint32_t at = v->oldest_count;
    while (at && v->oldest[at - 1].pop_time_ms > open->pop_time_ms)
        at--;
    if (at == v->oldest_max)
        return;
    uint32_t kept = v->oldest_count < v->oldest_max ? v->oldest_count : v->oldest_max - 1;
    memmove(&v->oldest[at + 1], &v->oldest[at], (kept - at) * sizeof *open);
    v->oldest[at] = *open;
    v->oldest_count = kept + 1;
}

static void add_open(struct rmq_pop_view *v, const struct rmq_pop_view_open *open)
{
    v->entries++;
    v->messages += open->messages;
    if (open->is_due) {
        v->due += open->messages;
        v->oldest_due_ms = open->due_ms < v->oldest_due_ms ? open->due_ms : v->oldest_due_ms;
    }
    v->oldest_ms = open->pop_time_ms < v->oldest_ms ? open->pop_time_ms : v->oldest_ms;
    add_to_oldest(v, open);
    add_to_row(v->queues, open->place, open, &v->queue_count, &v->queue_rest);
    add_to_row(v->clients, open->client, open, &v->client_count, &v->client_rest);
}

static void look_at(struct rmq_pop_view *v, const struct rmq_pop_entry *e, uint64_t bits)
{
    uint32_t place = rmq_pop_place_of(v->windows, e), messages = (uint32_t)__builtin_popcountll(bits);
    if (!is_wanted(v, place))
        return;
    if (e->state == RMQ_POP_RETURNED) {
        v->returned += messages;
        return;
    }
    struct rmq_pop_view_open open = {
        .place = place, .client = e->client, .messages = messages, .queue_offset = (int64_t)e->base_offset + __builtin_ctzll(bits),
        .pop_time_ms = e->pop_time_ms, .due_ms = e->pop_time_ms + e->invisible_ms};
    open.is_due = e->state == RMQ_POP_REVIVING || open.due_ms < v->now_ms;
    add_open(v, &open);
}

/* A batch whose time is over blocks nothing, and no consumer has it. */
static void look_at_order(struct rmq_pop_view *v, uint32_t slot)
{
    const struct rmq_pop_windows *w = v->windows;
    const struct rmq_pop_order *o = &w->orders.all[slot];
    uint32_t place = w->orders.places[slot] - 1, bits = w->orders.places[slot] && !o->returned ? rmq_pop_order_open(w, place) : 0;
    if (!bits || !is_wanted(v, place))
        return;
    uint32_t first = (uint32_t)__builtin_ctz(bits), visible_ms = 0;
    for (uint32_t i = first; i < o->count; i++)
        if (bits >> i & 1 && o->visible_ms[i] > visible_ms)
            visible_ms = o->visible_ms[i];
    struct rmq_pop_view_open open = {
        .place = place, .client = o->client, .messages = (uint32_t)__builtin_popcount(bits),
        .attempts = (uint16_t)(o->consumed[first] + (o->consumed[first] < UINT16_MAX)),
        .queue_offset = rmq_pop_order_offset(o, first), .pop_time_ms = o->pop_time_ms, .due_ms = o->pop_time_ms + visible_ms};
    if (open.due_ms >= v->now_ms)
        add_open(v, &open);
}

/* Messages without a copy in the log: a stored one may be popped before it is flushed. */
static uint64_t open_bits(const struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_entry *e = &w->entries[entry];
    if (!rmq_pop_is_there(w->pages, e) || !e->state)
        return 0;
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    return rmq_pop_open_bits(e) & ~(record ? record->stored : 0);
}

int rmq_pop_view_step(struct rmq_pop_view *v, uint32_t room)
{
    const struct rmq_pop_windows *w = v->windows;
    uint32_t orders_end = v->group_id == RMQ_NONE ? 0 : w->orders.end;
    for (; room && v->next < w->entries_end; v->next++, room--) {
        uint64_t bits = open_bits(w, v->next);
        if (bits)
            look_at(v, &w->entries[v->next], bits);
    }
    for (; room && v->next_order < orders_end; v->next_order++, room--)
        look_at_order(v, v->next_order);
    return v->next < w->entries_end || v->next_order < orders_end;
}

uint32_t rmq_pop_view_top(const struct rmq_pop_view_row *rows, struct rmq_pop_view_row *top, uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < RMQ_POP_VIEW_ROWS && room; i++) {
        const struct rmq_pop_view_row *row = &rows[i];
        uint32_t at = count;
        while (row->key && at &&
               (top[at - 1].messages < row->messages || (top[at - 1].messages == row->messages && top[at - 1].key > row->key)))
            at--;
        if (!row->key || at == room)
            continue;
        uint32_t kept = count < room ? count : room - 1;
        memmove(&top[at + 1], &top[at], (kept - at) * sizeof *row);
        top[at] = *row;
        count = kept + 1;
    }
    return count;
}
