#include "pulled.h"

#include "ring.h"

static struct rmq_pulled *entry_of(struct rmq_plane *plane, uint32_t reader, uint64_t key)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_pulled *entries = (struct rmq_pulled *)(plane->base + h->pulled_at) + (uint64_t)reader * RMQ_PULLED_CAPACITY;
    uint32_t *cells = (uint32_t *)(plane->base + h->pulled_cells_at) + (uint64_t)reader * RMQ_PULLED_CELLS;
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & (RMQ_PULLED_CELLS - 1);
    for (; cells[at]; at = (at + 1) & (RMQ_PULLED_CELLS - 1))
        if (entries[cells[at] - 1].key == key)
            return &entries[cells[at] - 1];
    struct rmq_pulled_table *table = &h->pulled[reader];
    if (table->count >= RMQ_PULLED_CAPACITY) {
        rmq_store_relaxed(&table->overflow, table->overflow + 1);
        return NULL;
    }
    struct rmq_pulled *entry = &entries[table->count];
    *entry = (struct rmq_pulled){.key = key};
    rmq_store(&table->count, table->count + 1);
    cells[at] = (uint32_t)table->count;
    return entry;
}

void rmq_pulled_count(struct rmq_plane *plane, uint32_t reader, uint32_t group_id, uint32_t queue_slot, uint32_t messages,
                      uint32_t bytes, uint64_t next_offset, int64_t now_ms)
{
    struct rmq_pulled *entry = entry_of(plane, reader, (uint64_t)group_id << 32 | queue_slot);
    if (!entry)
        return;
    rmq_store_relaxed(&entry->messages, entry->messages + messages);
    rmq_store_relaxed(&entry->bytes, entry->bytes + bytes);
    rmq_store_relaxed(&entry->next_offset, next_offset);
    rmq_store_relaxed(&entry->time_mono_ms, now_ms);
}
