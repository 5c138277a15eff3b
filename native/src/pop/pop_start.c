/* pop_start.c: reads the memory of POP at a start. Twin: pop/window_twin.py. */
#include <errno.h>
#include <stdlib.h>

#include "pop/pop_entries.h"

struct start {
    int64_t now_ms;
    uint64_t damaged_windows, damaged_entries;
    uint32_t last_free;          /* entry + 1: the list of free entries begins with the lowest one */
    int has_moving;
};

static uint64_t receipt_hash_of(const void *owner, uint32_t entry)
{
    const struct rmq_pop_entry *e = &((const struct rmq_pop_windows *)owner)->entries[entry];
    return rmq_pop_receipt_hash(e->window, rmq_pop_start_of(e), e->pop_time_ms);
}

static uint64_t block_hash_of(const void *owner, uint32_t entry)
{
    const struct rmq_pop_entry *e = &((const struct rmq_pop_windows *)owner)->entries[entry];
    return rmq_pop_block_hash(e->window, e->base_offset / RMQ_POP_ENTRY_MESSAGES);
}

static struct rmq_pop_windows *allocate(struct rmq_pop_pages *pages, struct rmq_pop_layout layout, int64_t mono_ms)
{
    struct rmq_pop_windows *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->pages = pages;
    w->layout = layout;
    w->windows = (struct rmq_pop_window *)(void *)(pages->memory + layout.windows_at);
    w->entries = (struct rmq_pop_entry *)(void *)(pages->memory + layout.entries_at);
    w->revived = (struct rmq_pop_list){RMQ_NONE, RMQ_NONE};
    w->records.free = RMQ_NONE;
    w->mono_ms = mono_ms;
    w->sides = calloc(layout.windows_max, sizeof *w->sides);
    w->spare_windows = calloc(layout.windows_max, sizeof *w->spare_windows);
    w->places = calloc(RMQ_POP_WINDOW_IDS, sizeof *w->places);
    int rc = rmq_pop_hash_open(&w->receipts, layout.entries_max, 0, receipt_hash_of, w);
    rc |= rmq_pop_hash_open(&w->blocks, layout.entries_max, 1, block_hash_of, w);
    rc |= rmq_pop_wheel_open(&w->wheel, layout.entries_max, mono_ms);
    rc |= rmq_pop_orders_open(w);
    if (w->sides && w->spare_windows && w->places && !rc)
        return w;
    rmq_pop_windows_close(w);
    return NULL;
}

void rmq_pop_windows_close(struct rmq_pop_windows *w)
{
    if (!w)
        return;
    rmq_pop_hash_close(&w->receipts);
    rmq_pop_hash_close(&w->blocks);
    rmq_pop_wheel_close(&w->wheel);
    rmq_pop_orders_close(w);
    free(w->sides);
    free(w->spare_windows);
    free(w->places);
    free(w->records.all);
    free(w->records.stored);
    free(w);
}

/* --- windows -------------------------------------------------------------------------------------------------------------- */

static int is_window(const struct rmq_pop_windows *w, const struct rmq_pop_window *window)
{
    return window->id < RMQ_POP_WINDOW_IDS && window->check == rmq_pop_window_check(window) && window->next_offset >= 0 &&
           !w->places[window->id];
}

static void read_windows(struct rmq_pop_windows *w, struct start *start)
{
    for (uint32_t place = 0; place < w->layout.windows_max; place++) {
        struct rmq_pop_window *window = &w->windows[place];
        if (!rmq_pop_is_there(w->pages, window) || !window->id)
            continue;
        if (!is_window(w, window)) {
            start->damaged_windows++;
            rmq_pop_touch(w->pages, window);
            RMQ_POP_STORE(window->id, 0);
            RMQ_CRASH("pop-start-window");
            continue;
        }
        w->sides[place] = (struct rmq_pop_side){.low = window->next_offset, .floor = window->next_offset,
                                                .again = {RMQ_NONE, RMQ_NONE}};
        w->places[window->id] = place + 1;
        w->windows_end = place + 1;
        w->counts.windows++;
    }
    for (uint32_t place = w->windows_end; place-- > 0;)
        if (!rmq_pop_is_there(w->pages, &w->windows[place]) || !w->windows[place].id)
            w->spare_windows[w->spare_window_count++] = place;
}

/* --- entries -------------------------------------------------------------------------------------------------------------- */

static int is_entry(const struct rmq_pop_entry *e)
{
    return e->state <= RMQ_POP_MOVING && e->check == rmq_pop_entry_check(e) && e->present & 1 &&
           !((e->acked | e->copied) & ~e->present) && e->base_offset < INT64_MAX - RMQ_POP_ENTRY_MESSAGES &&
           e->start_delta <= e->base_offset && e->invisible_ms <= RMQ_POP_INVISIBLE_MS_MAX &&
           (!e->copied || e->state == RMQ_POP_REVIVING || e->state == RMQ_POP_REVIVED);
}

/* Of a REVIVING entry, too: after a power cut some of its messages may not be due yet. */
static int64_t due_of(const struct rmq_pop_windows *w, const struct rmq_pop_entry *e, int64_t now_ms)
{
    int64_t left;
    if (__builtin_add_overflow(e->pop_time_ms, (int64_t)e->invisible_ms, &left) ||
        __builtin_sub_overflow(left, now_ms, &left) || left < 0)
        left = 0;
    return w->mono_ms + (left > e->invisible_ms ? e->invisible_ms : left);
}

/* No answer with these messages was put: next_offset moves after the entries and before the answer. A pop may have several entries,
 * so it moves when all are taken back. Messages that are done move nothing: a clamp has made those done that lie beyond the queue's
 * end. */
static void take_back(struct rmq_pop_windows *w, struct rmq_pop_entry *e, uint32_t place)
{
    int64_t end = (int64_t)e->base_offset + 64 - __builtin_clzll(rmq_pop_open_bits(e) | e->copied);
    if (end > w->sides[place].found_end)
        w->sides[place].found_end = end;
    if ((int64_t)e->base_offset >= w->windows[place].next_offset && e->state == RMQ_POP_OPEN) {
        rmq_pop_touch(w->pages, e);
        RMQ_POP_STORE(e->state, RMQ_POP_RETURNED);
        RMQ_CRASH("pop-start-returned");
    }
}

/* Returns 1 if the entry is in use. */
static int read_entry(struct rmq_pop_windows *w, struct start *start, uint32_t entry)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    if (e->state == RMQ_POP_FREE)
        return 0;
    uint32_t place = rmq_pop_window_place(w, e->window);
    if (place == RMQ_NONE || !(rmq_pop_open_bits(e) | e->copied)) {
        rmq_pop_touch(w->pages, e);
        RMQ_POP_STORE(e->state, RMQ_POP_FREE);
        RMQ_CRASH("pop-start-freed");
        return 0;
    }
    if (!rmq_pop_open_bits(e) && e->state != RMQ_POP_REVIVED) {
        rmq_pop_touch(w->pages, e);
        RMQ_POP_STORE(e->state, RMQ_POP_REVIVED);
        RMQ_CRASH("pop-start-revived");
    }
    take_back(w, e, place);
    start->has_moving |= e->state == RMQ_POP_MOVING;
    rmq_pop_entry_link(w, entry, place, due_of(w, e, start->now_ms));
    return 1;
}

static void add_free(struct rmq_pop_windows *w, struct start *start, uint32_t entry)
{
    if (start->last_free)
        w->receipts.next[start->last_free - 1] = entry + 1;
    else
        w->free_entry = entry + 1;
    w->receipts.next[entry] = 0;
    start->last_free = entry + 1;
    w->free_count++;
}

static int is_used(const struct rmq_pop_windows *w, uint32_t entry)
{
    return rmq_pop_is_there(w->pages, &w->entries[entry]) && w->entries[entry].state != RMQ_POP_FREE;
}

/* Finds damage before any entry is freed. The hashes expect the others, because splits of buckets cost more than all the rest of a
 * start with a million entries. */
static void look_at_entries(struct rmq_pop_windows *w, struct start *start)
{
    uint32_t count = 0;
    for (uint32_t entry = 0; entry < w->layout.entries_max; entry++) {
        if (!is_used(w, entry))
            continue;
        count++;
        start->damaged_entries += !is_entry(&w->entries[entry]);
    }
    rmq_pop_hash_expect(&w->receipts, count);
    rmq_pop_hash_expect(&w->blocks, count);
}

static void read_entries(struct rmq_pop_windows *w, struct start *start)
{
    for (uint32_t entry = 0; entry < w->layout.entries_max; entry++) {
        if (!rmq_pop_is_there(w->pages, &w->entries[entry]) || !read_entry(w, start, entry))
            continue;
        while (w->entries_end < entry)
            add_free(w, start, w->entries_end++);
        w->entries_end++;
    }
    for (uint32_t place = 0; place < w->windows_end; place++) {
        if (!rmq_pop_window_at(w, place))
            continue;
        rmq_pop_skip_to(w, place, w->sides[place].found_end);
        const struct rmq_pop_order *order = rmq_pop_order_at(w, place);
        if (order && order->acked)
            rmq_pop_skip_to(w, place, rmq_pop_order_next(w, place));
    }
}

/* --- moves that a death has interrupted ------------------------------------------------------------------------------------------ */

static int rank_old(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit)
{
    return w->entries[entry].state != RMQ_POP_MOVING && rmq_pop_open_bits(&w->entries[entry]) & bit;
}

/* The old entry keeps the messages that are open in it. */
static void end_move(struct rmq_pop_windows *w, uint32_t entry)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t open = rmq_pop_open_bits(e), old = 0;
    for (uint64_t left = open; left; left &= left - 1)
        if (rmq_pop_entry_best(w, e->window, (int64_t)e->base_offset + __builtin_ctzll(left), rank_old) != RMQ_NONE)
            old |= left & -left;
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | old);
    RMQ_CRASH("pop-start-move-done");
    if (open & ~old) {
        RMQ_POP_STORE(e->state, RMQ_POP_OPEN);
        RMQ_CRASH("pop-start-moved");
    }
    rmq_pop_entry_changed(w, entry, open);
}

static void end_moves(struct rmq_pop_windows *w)
{
    for (uint32_t entry = 0; entry < w->entries_end; entry++)
        if (is_used(w, entry) && w->entries[entry].state == RMQ_POP_MOVING)
            end_move(w, entry);
}

/* Before a damaged entry is freed: a start that finds the windows without it would take its messages for done. */
static void end_windows(struct rmq_pop_windows *w)
{
    for (uint32_t place = 0; place < w->windows_end; place++)
        if (rmq_pop_window_at(w, place))
            rmq_pop_window_drop(w, place);
}

struct rmq_pop_windows *rmq_pop_windows_open(struct rmq_pop_pages *pages, struct rmq_pop_layout layout, int64_t now_ms,
                                             int64_t mono_ms, uint64_t *damaged)
{
    struct rmq_pop_windows *w = allocate(pages, layout, mono_ms);
    struct start start = {.now_ms = now_ms};
    if (!w)
        return NULL;
    read_windows(w, &start);
    look_at_entries(w, &start);
    if (start.damaged_entries)
        end_windows(w);
    uint32_t damaged_orders = rmq_pop_orders_read(w, now_ms);
    read_entries(w, &start);
    if (start.has_moving)
        end_moves(w);
    *damaged = start.damaged_windows + start.damaged_entries + damaged_orders;
    return w;
}
