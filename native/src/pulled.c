#include "pulled.h"

#include "ring.h"

static struct rmq_pulled *entries_of(struct rmq_plane *plane, uint32_t reader)
{
    return (struct rmq_pulled *)(plane->base + rmq_header(plane)->pulled_at) + (uint64_t)reader * RMQ_PULLED_CAPACITY;
}

/* The cell that leads to the key's entry, or the free one where it would stand. */
static uint32_t *cell_of(struct rmq_plane *plane, uint32_t reader, uint64_t key)
{
    struct rmq_pulled *entries = entries_of(plane, reader);
    uint32_t *cells = (uint32_t *)(plane->base + rmq_header(plane)->pulled_cells_at) + (uint64_t)reader * RMQ_PULLED_CELLS;
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & (RMQ_PULLED_CELLS - 1), cell;
    while ((cell = rmq_load(&cells[at])) && entries[cell - 1].key != key)
        at = (at + 1) & (RMQ_PULLED_CELLS - 1);
    return &cells[at];
}

/* Pulls that find nothing need no messages, only names: they leave half of the table to the others. */
static struct rmq_pulled *entry_of(struct rmq_plane *plane, uint32_t reader, uint64_t key, uint32_t messages)
{
    struct rmq_pulled *entries = entries_of(plane, reader);
    struct rmq_pulled_table *table = &rmq_header(plane)->pulled[reader];
    uint32_t *cell = cell_of(plane, reader, key);
    if (*cell)
        return &entries[*cell - 1];
    if (table->count >= (messages ? RMQ_PULLED_CAPACITY : RMQ_PULLED_CAPACITY / 2)) {
        if (messages)
            rmq_store_relaxed(&table->overflow, table->overflow + 1);
        return NULL;
    }
    struct rmq_pulled *entry = &entries[table->count];
    *entry = (struct rmq_pulled){.key = key};
    rmq_store(&table->count, table->count + 1);
    rmq_store(cell, (uint32_t)table->count);
    return entry;
}

void rmq_pulled_count(struct rmq_plane *plane, uint32_t reader, uint32_t group_id, uint32_t queue_slot, uint32_t messages,
                      uint32_t bytes, uint64_t next_offset, int64_t now_ms)
{
    struct rmq_pulled *entry = entry_of(plane, reader, (uint64_t)group_id << 32 | queue_slot, messages);
    if (!entry)
        return;
    rmq_store_relaxed(&entry->messages, entry->messages + messages);
    rmq_store_relaxed(&entry->bytes, entry->bytes + bytes);
    rmq_store_relaxed(&entry->next_offset, next_offset);
    rmq_store_relaxed(&entry->time_mono_ms, now_ms);
}

int64_t rmq_pulled_next(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    uint64_t key = (uint64_t)group_id << 32 | queue_slot;
    int64_t next = -1, latest_ms = -1;
    for (uint32_t reader = 0; reader < rmq_header(plane)->settings.readers && reader < RMQ_READERS_MAX; reader++) {
        uint32_t cell = rmq_load(cell_of(plane, reader, key));
        if (!cell)
            continue;
        const struct rmq_pulled *entry = &entries_of(plane, reader)[cell - 1];
        int64_t time_ms = rmq_load_relaxed(&entry->time_mono_ms);
        if (time_ms >= latest_ms) {
            latest_ms = time_ms;
            next = (int64_t)rmq_load_relaxed(&entry->next_offset);
        }
    }
    return next;
}
