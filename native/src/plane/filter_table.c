/* The table of compiled conditions. A slot's version is even while control fills it, so that a death leaves an empty slot. */
#include "plane/filter_table.h"

#include "base/name_hash.h"
#include "plane/ring.h"

static struct rmq_filter_slot *slot_at(struct rmq_plane *plane, uint32_t slot)
{
    return (struct rmq_filter_slot *)(plane->base + rmq_header(plane)->filters.slots_at) + slot;
}

/* Never 0, which marks a slot that was never filled. */
static uint32_t hash_of(struct rmq_plane *plane, const char *text, uint32_t length)
{
    return rmq_name_hash(rmq_header(plane)->name_secret, (const uint8_t *)text, length) | 1;
}

static void withdraw(struct rmq_filter_slot *s)
{
    if (s->version & 1)
        rmq_store(&s->version, s->version + 1);
    rmq_fence(); /* before the bytes change */
}

uint32_t rmq_filter_put(struct rmq_plane *plane, uint32_t slot, const char *text, uint32_t length, const char *program,
                        uint32_t bytes)
{
    if (slot >= RMQ_FILTERS_MAX || length > RMQ_FILTER_TEXT_MAX || bytes > RMQ_FILTER_PROGRAM_MAX)
        return 0;
    struct rmq_filter_slot *s = slot_at(plane, slot);
    withdraw(s);
    RMQ_CRASH("control-filter-withdrawn");
    memcpy(s->text, text, length);
    memcpy(s->program, program, bytes);
    s->text_length = length;
    s->program_bytes = bytes;
    rmq_store(&rmq_header(plane)->filters.hashes[slot], hash_of(plane, text, length));
    RMQ_CRASH("control-filter-filled");
    rmq_store(&s->version, s->version + 1);
    RMQ_CRASH("control-filter-published");
    return s->version;
}

void rmq_filters_clear(struct rmq_plane *plane)
{
    uint32_t *hashes = rmq_header(plane)->filters.hashes;
    for (uint32_t i = 0; i < RMQ_FILTERS_MAX; i++) {
        if (!hashes[i])
            continue; /* its pages stay untouched */
        withdraw(slot_at(plane, i));
        rmq_store(&hashes[i], 0);
    }
}

uint32_t rmq_filter_find(struct rmq_plane *plane, const char *text, uint32_t length, uint32_t *version)
{
    const uint32_t *hashes = rmq_header(plane)->filters.hashes;
    if (length > RMQ_FILTER_TEXT_MAX)
        return RMQ_NONE;
    uint32_t hash = hash_of(plane, text, length);
    for (uint32_t i = 0; i < RMQ_FILTERS_MAX; i++) {
        if (rmq_load_relaxed(&hashes[i]) != hash)
            continue;
        struct rmq_filter_slot *s = slot_at(plane, i);
        uint32_t seen = rmq_load(&s->version);
        if (!(seen & 1) || rmq_load_relaxed(&s->text_length) != length || memcmp(s->text, text, length) != 0)
            continue;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (rmq_load_relaxed(&s->version) == seen) {
            *version = seen;
            return i;
        }
    }
    return RMQ_NONE;
}

uint32_t rmq_filter_copy(struct rmq_plane *plane, uint32_t slot, uint32_t version, void *to)
{
    if (slot >= RMQ_FILTERS_MAX || !(version & 1))
        return 0;
    struct rmq_filter_slot *s = slot_at(plane, slot);
    if (rmq_load(&s->version) != version)
        return 0;
    uint32_t bytes = rmq_load_relaxed(&s->program_bytes);
    if (bytes > RMQ_FILTER_PROGRAM_MAX)
        return 0;
    memcpy(to, s->program, bytes);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return rmq_load_relaxed(&s->version) == version ? bytes : 0;
}
