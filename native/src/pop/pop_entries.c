/* pop_entries.c: one entry of POP in the memory and beside it. */
#include "pop/pop_entries.h"

#include <errno.h>
#include <libdeflate.h>
#include <string.h>

#define BLOCK 64

uint32_t rmq_pop_window_check(const struct rmq_pop_window *window)
{
    uint32_t crc = libdeflate_crc32(0, window, 16);
    return crc ? crc : 1;
}

uint32_t rmq_pop_entry_check(const struct rmq_pop_entry *e)
{
    uint8_t text[42];
    memcpy(text, e, 16);
    memcpy(text + 16, (const uint8_t *)e + 24, 16);
    memcpy(text + 32, (const uint8_t *)e + 48, 10);
    uint32_t crc = libdeflate_crc32(0, text, sizeof text);
    return crc ? crc : 1;
}

/* --- slots ---------------------------------------------------------------------------------------------------------------- */

static uint32_t ready_of(struct rmq_pop_windows *w, uint32_t count)
{
    uint32_t ready = 0;
    for (uint32_t at = w->free_entry; at && ready < count; at = w->receipts.next[at - 1])
        if (rmq_pop_reserve(w->pages, &w->entries[at - 1]))
            return ready;
        else
            ready++;
    for (uint32_t at = w->entries_end; at < w->layout.entries_max && ready < count; at++)
        if (rmq_pop_reserve(w->pages, &w->entries[at]))
            return ready;
        else
            ready++;
    return ready;
}

int rmq_pop_entries_ready(struct rmq_pop_windows *w, uint32_t count)
{
    while (ready_of(w, count) < count) {
        if (w->revived.head == RMQ_NONE)
            return -ENOSPC;
        rmq_pop_entry_free(w, w->revived.head);
    }
    return 0;
}

static uint32_t take_slot(struct rmq_pop_windows *w)
{
    if (!w->free_entry)
        return w->entries_end++;
    uint32_t entry = w->free_entry - 1;
    w->free_entry = w->receipts.next[entry];
    w->free_count--;
    return entry;
}

uint32_t rmq_pop_entry_make(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, int64_t base, uint64_t present,
                            uint8_t state)
{
    uint32_t entry = take_slot(w);
    struct rmq_pop_entry *e = &w->entries[entry];
    rmq_pop_touch(w->pages, e);
    e->base_offset = (uint64_t)base;
    e->present = present;
    e->acked = e->copied = 0;
    e->pop_time_ms = give->pop_time_ms;
    e->invisible_ms = give->invisible_ms;
    e->start_delta = (uint32_t)(base - give->start_offset);
    e->window = w->windows[place].id;
    e->client = give->client;
    e->revive_queue = give->revive_queue;
    e->attempts = give->in_log ? RMQ_POP_IN_LOG : 0;
    e->check = rmq_pop_entry_check(e);
    RMQ_CRASH("pop-entry-filled");
    RMQ_POP_STORE(e->state, state);
    RMQ_CRASH("pop-entry-published");
    rmq_pop_entry_link(w, entry, place, give->mono_ms + give->invisible_ms);
    return entry;
}

/* --- states --------------------------------------------------------------------------------------------------------------- */

/* The RETURNED entries of a window are few, and a new one is mostly the last. */
static void add_returned(struct rmq_pop_windows *w, struct rmq_pop_side *side, uint32_t entry)
{
    uint32_t after = side->again.tail;
    while (after != RMQ_NONE && w->entries[after].base_offset > w->entries[entry].base_offset)
        after = w->wheel.prev[after];
    rmq_pop_list_put(&w->wheel, &side->again, after, entry);
}

static void enter(struct rmq_pop_windows *w, uint32_t entry, uint32_t place, int64_t due_ms)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    uint32_t open = (uint32_t)__builtin_popcountll(rmq_pop_open_bits(e));
    switch (e->state) {
    case RMQ_POP_REVIVED:
        w->wheel.due[entry] = (uint32_t)w->mono_ms;
        rmq_pop_list_put(&w->wheel, &w->revived, w->revived.tail, entry);
        w->counts.revived++;
        return;
    case RMQ_POP_RETURNED:
        add_returned(w, &w->sides[place], entry);
        w->sides[place].returned += open;
        w->counts.returned += open;
        return;
    case RMQ_POP_REVIVING:
        w->counts.reviving++; /* fall through */
    default:
        rmq_pop_wheel_add(&w->wheel, entry, due_ms);
    }
}

static void leave(struct rmq_pop_windows *w, uint32_t entry)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    struct rmq_pop_side *side = &w->sides[rmq_pop_place_of(w, e)];
    uint32_t open = (uint32_t)__builtin_popcountll(rmq_pop_open_bits(e));
    switch (e->state) {
    case RMQ_POP_REVIVED:
        rmq_pop_list_take(&w->wheel, &w->revived, entry);
        w->counts.revived--;
        return;
    case RMQ_POP_RETURNED:
        rmq_pop_list_take(&w->wheel, &side->again, entry);
        side->returned -= open;
        w->counts.returned -= open;
        return;
    case RMQ_POP_REVIVING:
        w->counts.reviving--; /* fall through */
    default:
        if (rmq_pop_record_of(w, entry))
            rmq_pop_record_drop(&w->records, w->wheel.prev[entry]);
        else
            rmq_pop_wheel_remove(&w->wheel, entry);
    }
}

void rmq_pop_entry_link(struct rmq_pop_windows *w, uint32_t entry, uint32_t place, int64_t due_ms)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    struct rmq_pop_side *side = &w->sides[place];
    int64_t base = (int64_t)e->base_offset;
    uint32_t open = (uint32_t)__builtin_popcountll(rmq_pop_open_bits(e));
    rmq_pop_hash_add(&w->receipts, entry);
    rmq_pop_hash_add(&w->blocks, entry);
    side->low = base < side->low ? base : side->low;
    side->floor = base < side->floor || !side->entries ? base : side->floor;
    side->entries++;
    side->open += open;
    w->counts.open += open;
    w->counts.entries++;
    enter(w, entry, place, due_ms);
}

void rmq_pop_entry_free(struct rmq_pop_windows *w, uint32_t entry)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    struct rmq_pop_side *side = &w->sides[rmq_pop_place_of(w, e)];
    uint32_t open = (uint32_t)__builtin_popcountll(rmq_pop_open_bits(e));
    leave(w, entry);
    rmq_pop_hash_remove(&w->receipts, entry);
    rmq_pop_hash_remove(&w->blocks, entry);
    side->entries--;
    side->open -= open;
    w->counts.open -= open;
    w->counts.entries--;
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->state, RMQ_POP_FREE);
    RMQ_CRASH("pop-entry-freed");
    w->receipts.next[entry] = w->free_entry;
    w->free_entry = entry + 1;
    w->free_count++;
}

void rmq_pop_entry_turn(struct rmq_pop_windows *w, uint32_t entry, uint8_t state, int64_t due_ms)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    leave(w, entry);
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->state, state);
    RMQ_CRASH("pop-entry-turned");
    enter(w, entry, rmq_pop_place_of(w, e), due_ms);
}

void rmq_pop_entry_changed(struct rmq_pop_windows *w, uint32_t entry, uint64_t before)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    struct rmq_pop_side *side = &w->sides[rmq_pop_place_of(w, e)];
    uint64_t open = rmq_pop_open_bits(e);
    uint32_t fewer = (uint32_t)(__builtin_popcountll(before) - __builtin_popcountll(open));
    side->open -= fewer;
    w->counts.open -= fewer;
    if (e->state == RMQ_POP_RETURNED) {
        side->returned -= fewer;
        w->counts.returned -= fewer;
    }
    if (open || rmq_pop_record_of(w, entry))
        return;
    if (!e->copied)
        rmq_pop_entry_free(w, entry);
    else if (e->state == RMQ_POP_REVIVING)
        rmq_pop_entry_turn(w, entry, RMQ_POP_REVIVED, 0);
}

/* --- look-ups by offset --------------------------------------------------------------------------------------------------- */

/* An entry is in the chain of the block of its base offset, so it may reach into the next block. */
uint32_t rmq_pop_entry_best(struct rmq_pop_windows *w, uint32_t window, int64_t offset,
                            int (*rank)(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit))
{
    uint32_t best = RMQ_NONE;
    int highest = 0;
    for (uint64_t block = (uint64_t)offset / BLOCK, i = 0; i < 2 && block - i <= block; i++) {
        uint32_t at = rmq_pop_hash_first(&w->blocks, rmq_pop_block_hash(window, block - i));
        for (; at; at = w->blocks.next[at - 1]) {
            const struct rmq_pop_entry *e = &w->entries[at - 1];
            uint64_t bit = e->window == window ? rmq_pop_bit(e, offset) & e->present : 0;
            int found = bit ? rank(w, at - 1, bit) : 0;
            if (found > highest || (found && found == highest && at - 1 < best)) {
                highest = found;
                best = at - 1;
            }
        }
    }
    return best;
}

static void act_on_block(struct rmq_pop_windows *w, uint32_t window, uint64_t block,
                         void (*act)(struct rmq_pop_windows *w, uint32_t entry, void *with), void *with)
{
    uint32_t at = rmq_pop_hash_first(&w->blocks, rmq_pop_block_hash(window, block));
    while (at) {
        uint32_t entry = at - 1;
        at = w->blocks.next[entry];
        if (w->entries[entry].window == window && w->entries[entry].base_offset / BLOCK == block)
            act(w, entry, with);
    }
}

/* Block by block, or over all entries where these are fewer. */
void rmq_pop_entries_from(struct rmq_pop_windows *w, uint32_t place, uint32_t window, int64_t from,
                          void (*act)(struct rmq_pop_windows *w, uint32_t entry, void *with), void *with)
{
    struct rmq_pop_side *side = &w->sides[place];
    int64_t first = from - (BLOCK - 1) > side->floor ? from - (BLOCK - 1) : side->floor;
    uint64_t block = (uint64_t)first / BLOCK, end = (uint64_t)w->windows[place].next_offset / BLOCK;
    if (end >= block && end - block < w->entries_end) {
        for (; block <= end && side->entries; block++)
            act_on_block(w, window, block, act, with);
        return;
    }
    for (uint32_t entry = 0; entry < w->entries_end && side->entries; entry++)
        if (rmq_pop_is_there(w->pages, &w->entries[entry]) && w->entries[entry].state && w->entries[entry].window == window &&
            (int64_t)w->entries[entry].base_offset >= first)
            act(w, entry, with);
}
