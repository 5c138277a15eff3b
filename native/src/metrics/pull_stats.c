#include "metrics/pull_stats.h"

#include "base/name_hash.h"
#include "plane/port.h"
#include "plane/ring.h"

static struct rmq_pull_stats *entries_of(struct rmq_plane *plane, const struct rmq_port *port)
{
    return (struct rmq_pull_stats *)(plane->base + port->pull_stats_at);
}

/* The cell that leads to the key's entry, or the free one where it would stand. */
static uint32_t *cell_of(struct rmq_plane *plane, const struct rmq_port *port, uint64_t key)
{
    struct rmq_pull_stats *entries = entries_of(plane, port);
    uint32_t *cells = (uint32_t *)(plane->base + port->pull_stats_cells_at);
    uint32_t hash = rmq_pair_hash(rmq_header(plane)->name_secret, (uint32_t)(key >> 32), (uint32_t)key), cell;
    uint32_t at = hash & (RMQ_PULL_STATS_CELLS - 1);
    while ((cell = rmq_load(&cells[at])) && entries[cell - 1].key != key)
        at = (at + 1) & (RMQ_PULL_STATS_CELLS - 1);
    return &cells[at];
}

/* Pulls that find nothing need no messages, only names: they leave half of the table to the others. */
static struct rmq_pull_stats *entry_of(struct rmq_plane *plane, struct rmq_port *port, uint64_t key, uint32_t messages)
{
    struct rmq_pull_stats *entries = entries_of(plane, port);
    struct rmq_pull_stats_table *table = &port->pull_stats;
    if (!port->pull_stats_at)
        return NULL;
    uint32_t *cell = cell_of(plane, port, key);
    if (*cell)
        return &entries[*cell - 1];
    if (table->count >= (messages ? RMQ_PULL_STATS_CAPACITY : RMQ_PULL_STATS_CAPACITY / 2)) {
        if (messages)
            rmq_store_relaxed(&table->overflow, table->overflow + 1);
        return NULL;
    }
    struct rmq_pull_stats *entry = &entries[table->count];
    *entry = (struct rmq_pull_stats){.key = key};
    rmq_store(&table->count, table->count + 1);
    rmq_store(cell, (uint32_t)table->count);
    return entry;
}

void rmq_pull_stats_add(struct rmq_plane *plane, uint32_t port, uint32_t group_id, uint32_t queue_slot, uint32_t messages,
                      uint32_t bytes, uint64_t next_offset, int64_t now_ms)
{
    struct rmq_pull_stats *entry = entry_of(plane, rmq_port_at(plane, port), (uint64_t)group_id << 32 | queue_slot, messages);
    if (!entry)
        return;
    rmq_store_relaxed(&entry->messages, entry->messages + messages);
    rmq_store_relaxed(&entry->bytes, entry->bytes + bytes);
    rmq_store_relaxed(&entry->next_offset, next_offset);
    rmq_store_relaxed(&entry->time_mono_ms, now_ms);
}

void rmq_pull_stats_set_open(struct rmq_plane *plane, uint32_t port, uint32_t group_id, uint32_t queue_slot, uint64_t open,
                             uint64_t next_offset)
{
    struct rmq_pull_stats *entry = entry_of(plane, rmq_port_at(plane, port), (uint64_t)group_id << 32 | queue_slot, open > 0);
    if (!entry)
        return;
    rmq_store_relaxed(&entry->next_offset, next_offset);
    rmq_store_relaxed(&entry->open, open);
}

/* The entry of the group's latest pull or pop of the queue, NULL: none is known. *is_pop: a pop has made it. */
static const struct rmq_pull_stats *latest_of(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot, int *is_pop)
{
    uint64_t key = (uint64_t)group_id << 32 | queue_slot;
    const struct rmq_pull_stats *latest = NULL;
    int64_t latest_ms = -1;
    *is_pop = 0;
    for (uint32_t number = 0; number < rmq_header(plane)->ports.count; number++) {
        const struct rmq_port *port = rmq_port_at(plane, number);
        uint32_t cell = port->pull_stats_at ? rmq_load(cell_of(plane, port, key)) : 0;
        if (!cell)
            continue;
        const struct rmq_pull_stats *entry = &entries_of(plane, port)[cell - 1];
        int64_t time_ms = rmq_load_relaxed(&entry->time_mono_ms);
        if (time_ms >= latest_ms) {
            latest_ms = time_ms;
            latest = entry;
            *is_pop = !(port->flags & RMQ_PORT_CONNECTIONS);
        }
    }
    return latest;
}

int64_t rmq_pull_stats_next_offset(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    int is_pop;
    const struct rmq_pull_stats *latest = latest_of(plane, group_id, queue_slot, &is_pop);
    return latest ? (int64_t)rmq_load_relaxed(&latest->next_offset) : -1;
}

int64_t rmq_pull_stats_open(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    int is_pop;
    const struct rmq_pull_stats *latest = latest_of(plane, group_id, queue_slot, &is_pop);
    return latest && is_pop ? (int64_t)rmq_load_relaxed(&latest->open) : -1;
}

uint64_t rmq_pull_stats_popped(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    uint64_t key = (uint64_t)group_id << 32 | queue_slot, popped = 0;
    for (uint32_t number = 0; number < rmq_header(plane)->ports.count; number++) {
        const struct rmq_port *port = rmq_port_at(plane, number);
        uint32_t cell = port->pull_stats_at && ~port->flags & RMQ_PORT_CONNECTIONS ? rmq_load(cell_of(plane, port, key)) : 0;
        if (cell)
            popped += rmq_load_relaxed(&entries_of(plane, port)[cell - 1].messages);
    }
    return popped;
}
