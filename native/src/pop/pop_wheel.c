/* pop_wheel.c: when entries of POP are due. */
#include "pop/pop_wheel.h"

#include <errno.h>
#include <stdlib.h>

#include "plane/tables_layout.h"

#define LEVEL_BITS 6

int rmq_pop_wheel_open(struct rmq_pop_wheel *w, uint32_t entries_max, int64_t now)
{
    *w = (struct rmq_pop_wheel){.now = now};
    for (int i = 0; i < RMQ_POP_WHEEL_LEVELS * RMQ_POP_WHEEL_SLOTS; i++)
        w->slots[i].head = w->slots[i].tail = RMQ_POP_WHEEL_END + (uint32_t)i;
    w->next = calloc(entries_max, sizeof *w->next);
    w->prev = calloc(entries_max, sizeof *w->prev);
    w->due = calloc(entries_max, sizeof *w->due);
    return w->next && w->prev && w->due ? 0 : -ENOMEM;
}

void rmq_pop_wheel_close(struct rmq_pop_wheel *w)
{
    free(w->next);
    free(w->prev);
    free(w->due);
}

/* The level is that of the highest digit in which the time differs from now. */
static uint32_t slot_of(const struct rmq_pop_wheel *w, int64_t due)
{
    uint64_t differs = (uint64_t)due ^ (uint64_t)w->now;
    uint32_t level = (63 - (uint32_t)__builtin_clzll(differs | 1)) / LEVEL_BITS;
    if (level >= RMQ_POP_WHEEL_LEVELS)
        level = RMQ_POP_WHEEL_LEVELS - 1;
    return level * RMQ_POP_WHEEL_SLOTS + (uint32_t)((uint64_t)due >> (level * LEVEL_BITS) & (RMQ_POP_WHEEL_SLOTS - 1));
}

static void add(struct rmq_pop_wheel *w, uint32_t entry, int64_t due)
{
    uint32_t slot = slot_of(w, due), end = RMQ_POP_WHEEL_END + slot, last = w->slots[slot].tail;
    w->next[entry] = end;
    w->prev[entry] = last;
    w->slots[slot].tail = entry;
    if (last == end)
        w->slots[slot].head = entry;
    else
        w->next[last] = entry;
    w->used[slot / RMQ_POP_WHEEL_SLOTS] |= 1ull << slot % RMQ_POP_WHEEL_SLOTS;
}

void rmq_pop_wheel_add(struct rmq_pop_wheel *w, uint32_t entry, int64_t due)
{
    due = due < w->now ? w->now : due > w->now + UINT32_MAX ? w->now + UINT32_MAX : due;
    w->due[entry] = (uint32_t)due;
    add(w, entry, due);
}

void rmq_pop_wheel_remove(struct rmq_pop_wheel *w, uint32_t entry)
{
    uint32_t next = w->next[entry], prev = w->prev[entry], slot = RMQ_NONE;
    if (next >= RMQ_POP_WHEEL_END)
        w->slots[slot = next - RMQ_POP_WHEEL_END].tail = prev;
    else
        w->prev[next] = prev;
    if (prev >= RMQ_POP_WHEEL_END)
        w->slots[slot = prev - RMQ_POP_WHEEL_END].head = next;
    else
        w->next[prev] = next;
    if (next >= RMQ_POP_WHEEL_END && prev >= RMQ_POP_WHEEL_END)
        w->used[slot / RMQ_POP_WHEEL_SLOTS] &= ~(1ull << slot % RMQ_POP_WHEEL_SLOTS);
}

/* The level with the earliest slot, and when that begins. Of two levels the higher one: its entries are not sorted yet. */
static int earliest(const struct rmq_pop_wheel *w, int64_t *begin)
{
    int level = -1;
    *begin = INT64_MAX;
    for (int i = 0; i < RMQ_POP_WHEEL_LEVELS; i++) {
        if (!w->used[i])
            continue;
        uint64_t above = (uint64_t)w->now >> ((i + 1) * LEVEL_BITS) << ((i + 1) * LEVEL_BITS);
        int64_t at = (int64_t)(above | (uint64_t)__builtin_ctzll(w->used[i]) << (i * LEVEL_BITS));
        at = at < w->now ? w->now : at;
        if (at <= *begin) {
            *begin = at;
            level = i;
        }
    }
    return level;
}

uint32_t rmq_pop_wheel_first(struct rmq_pop_wheel *w, int64_t until, uint32_t *steps)
{
    for (;;) {
        int64_t begin;
        int level = earliest(w, &begin);
        if (level < 0 || begin > until) {
            w->now = until > w->now ? until : w->now;
            return RMQ_NONE;
        }
        w->now = begin;
        uint32_t slot = (uint32_t)(level * RMQ_POP_WHEEL_SLOTS + __builtin_ctzll(w->used[level]));
        if (!level)
            return w->slots[slot].head;
        while (w->slots[slot].head < RMQ_POP_WHEEL_END) {
            if (!*steps)
                return RMQ_NONE;
            --*steps;
            uint32_t entry = w->slots[slot].head;
            int64_t due = rmq_pop_wheel_due(w, entry);
            rmq_pop_wheel_remove(w, entry);
            add(w, entry, due);
        }
    }
}

int64_t rmq_pop_wheel_next(const struct rmq_pop_wheel *w)
{
    int64_t begin;
    earliest(w, &begin);
    return begin;
}

/* --- other lists ---------------------------------------------------------------------------------------------------------- */

void rmq_pop_list_put(struct rmq_pop_wheel *w, struct rmq_pop_list *list, uint32_t after, uint32_t entry)
{
    uint32_t next = after == RMQ_NONE ? list->head : w->next[after];
    w->prev[entry] = after;
    w->next[entry] = next;
    if (after == RMQ_NONE)
        list->head = entry;
    else
        w->next[after] = entry;
    if (next == RMQ_NONE)
        list->tail = entry;
    else
        w->prev[next] = entry;
}

void rmq_pop_list_take(struct rmq_pop_wheel *w, struct rmq_pop_list *list, uint32_t entry)
{
    uint32_t next = w->next[entry], prev = w->prev[entry];
    if (prev == RMQ_NONE)
        list->head = next;
    else
        w->next[prev] = next;
    if (next == RMQ_NONE)
        list->tail = prev;
    else
        w->prev[next] = prev;
}
