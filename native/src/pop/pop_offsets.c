/* pop_offsets.c: consumer offsets of windows. Twin: ringmq/pop/offsets_twin.py. */
#include "pop/pop_offsets.h"

#include <errno.h>

#include "metrics/pull_stats.h"
#include "plane/ring.h"

int rmq_pop_offsets_are_stored(const struct rmq_pop_offsets *o)
{
    return !rmq_ring_used(&rmq_port_at(o->plane, o->port)->commit);
}

void rmq_pop_offsets_begin(struct rmq_pop_offsets *o)
{
    o->next = o->changed_count = 0;
    o->may_compare = (uint32_t)rmq_pop_offsets_are_stored(o);
}

/* The offset that the next message of the queue gets. Behind a start the log reaches further than dispatch has come. */
static int64_t queue_end(const struct rmq_pop_offsets *o, uint32_t slot)
{
    const struct rmq_queue *queue = rmq_queue_at(o->plane, slot);
    uint64_t max_offset = rmq_load(&queue->max_offset), log_end = rmq_load(&queue->log_end);
    return (int64_t)(max_offset > log_end ? max_offset : log_end);
}

/* Compares the table with the last report. 1, or 0: the window is listed as changed. */
static int compare(struct rmq_pop_offsets *o, uint32_t place, const struct rmq_pop_window *window, int64_t table)
{
    const struct rmq_pop_offset *row = &o->at[place];
    int is_told = window->reported_start == o->start_id;
    if (table == window->committed && is_told)
        return 1;
    if (table >= window->committed) {
        int64_t end = queue_end(o, row->queue_slot);
        rmq_pop_skip_to(o->windows, place, table < end ? table : end);
        rmq_pop_set_committed(o->windows, place, table, o->start_id);
        return 1;
    }
    if (!is_told || !rmq_offset_is_known(o->plane, row->group_id, row->queue_slot))
        return 1;
    o->changed[o->changed_count++] = place;
    return 0;
}

static void tell_open(struct rmq_pop_offsets *o, uint32_t place, const struct rmq_pop_window *window)
{
    struct rmq_pop_offset *row = &o->at[place];
    uint32_t open = rmq_pop_open_messages(o->windows, place);
    if (row->told_open == open + 1 && row->told_next == window->next_offset)
        return;
    rmq_pull_stats_set_open(o->plane, o->port, row->group_id, row->queue_slot, open, (uint64_t)window->next_offset);
    row->told_open = open + 1;
    row->told_next = window->next_offset;
}

/* 0, or -ENOSPC. */
static int look_at(struct rmq_pop_offsets *o, uint32_t place)
{
    const struct rmq_pop_offset *row = &o->at[place];
    const struct rmq_pop_window *window = rmq_pop_window_at(o->windows, place);
    if (!row->window || !window || window->id != row->window)
        return 0;
    tell_open(o, place, window);
    int64_t table = rmq_offset_get(o->plane, row->group_id, row->queue_slot);
    if (o->may_compare && !compare(o, place, window, table))
        return 0;
    int64_t committed = window->committed;
    rmq_pop_leave_returned(o->windows, place, committed);
    int64_t first_open = rmq_pop_first_open_from(o->windows, place, committed);
    int is_lost = o->may_compare && table < committed; /* control could not store it, or has read an older file */
    int is_beyond = o->may_compare && committed > window->next_offset; /* of the queue's end: the table gets the end */
    if (first_open <= committed && !is_lost && !is_beyond)
        return 0;
    int64_t known = is_beyond ? window->next_offset : committed;
    struct rmq_offset_commit commit = {row->group_id, row->queue_slot, first_open > known ? first_open : known};
    if (!rmq_port_commit(o->plane, o->port, &commit, 1))
        return -ENOSPC;
    o->reported++;
    rmq_pop_set_committed(o->windows, place, commit.offset, o->start_id);
    return 0;
}

int rmq_pop_offsets_look(struct rmq_pop_offsets *o, uint32_t room)
{
    for (uint32_t looked = 0; o->next < o->count; o->next++, looked++) {
        if (looked == room)
            return 1;
        if (o->changed_count == RMQ_POP_OFFSETS_CHANGED || look_at(o, o->next) < 0)
            return -ENOSPC;
    }
    return 0;
}
