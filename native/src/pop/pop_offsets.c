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

/* Compares the table with the last report. 1, or 0: the window is listed as changed. */
static int compare(struct rmq_pop_offsets *o, uint32_t place, const struct rmq_pop_window *window, int64_t table)
{
    const struct rmq_pop_offset *row = &o->at[place];
    int is_told = window->reported_start == o->start_id;
    if (table == window->committed && is_told)
        return 1;
    if (table >= window->committed) {
        rmq_pop_skip_to(o->windows, place, table);
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
    int64_t first_open = rmq_pop_first_open(o->windows, place), committed = window->committed;
    int is_lost = o->may_compare && table < committed; /* control could not store it, or has read an older file */
    if (first_open <= committed && !is_lost)
        return 0;
    struct rmq_offset_commit commit = {row->group_id, row->queue_slot, first_open > committed ? first_open : committed};
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
