/* pop_windows.c: pops, acknowledgements and changes of invisible times. Twin: pop/window_twin.py. */
#include "pop/pop_windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pop/pop_entries.h"

#define BLOCKS_A_CALL 4096
#define SPAN RMQ_POP_ENTRY_MESSAGES

const struct rmq_pop_counts *rmq_pop_counts_of(const struct rmq_pop_windows *w) { return &w->counts; }

/* --- windows -------------------------------------------------------------------------------------------------------------- */

static uint32_t take_window(struct rmq_pop_windows *w)
{
    uint32_t place;
    if (w->spare_window_count)
        place = w->spare_windows[w->spare_window_count - 1];
    else if (w->windows_end < w->layout.windows_max)
        place = w->windows_end;
    else
        return RMQ_NONE;
    if (rmq_pop_reserve(w->pages, &w->windows[place]))
        return RMQ_NONE;
    if (w->spare_window_count)
        w->spare_window_count--;
    else
        w->windows_end++;
    return place;
}

int rmq_pop_window_make(struct rmq_pop_windows *w, uint32_t id, uint32_t queue_id, uint64_t birth, int64_t next_offset, uint32_t *place)
{
    if (!id || id >= RMQ_POP_WINDOW_IDS || w->places[id] || next_offset < 0)
        return -EINVAL;
    *place = take_window(w);
    if (*place == RMQ_NONE)
        return -ENOSPC;
    struct rmq_pop_window *window = &w->windows[*place];
    struct rmq_pop_window made = {.id = id, .queue_id = queue_id, .birth = birth};
    rmq_pop_touch(w->pages, window);
    window->queue_id = queue_id;
    window->birth = birth;
    window->next_offset = next_offset;
    window->committed = -1;
    window->reported_start = 0;
    window->unmarked_start = 0;
    window->last_pop_ms = 0;
    window->order = 0;
    window->check = rmq_pop_window_check(&made);
    RMQ_CRASH("pop-window-filled");
    RMQ_POP_STORE(window->id, id);
    RMQ_CRASH("pop-window-made");
    w->sides[*place] = (struct rmq_pop_side){.low = next_offset, .floor = next_offset, .again = {RMQ_NONE, RMQ_NONE}};
    w->places[id] = *place + 1;
    w->counts.windows++;
    return 0;
}

static void free_one(struct rmq_pop_windows *w, uint32_t entry, void *with)
{
    (void)with;
    rmq_pop_entry_free(w, entry);
}

/* The id goes first. A start frees entries without a window. */
uint32_t rmq_pop_window_drop(struct rmq_pop_windows *w, uint32_t place)
{
    if (!rmq_pop_window_at(w, place))
        return 0;
    struct rmq_pop_window *window = &w->windows[place];
    uint32_t id = window->id, entries = w->sides[place].entries, order = window->order;
    rmq_pop_touch(w->pages, window);
    RMQ_POP_STORE(window->id, 0);
    RMQ_CRASH("pop-window-ended");
    rmq_pop_entries_from(w, place, id, 0, free_one, NULL);
    rmq_pop_order_forget(w, order);
    w->places[id] = 0;
    w->spare_windows[w->spare_window_count++] = place;
    w->counts.windows--;
    return entries;
}

uint32_t rmq_pop_window_place(struct rmq_pop_windows *w, uint32_t id)
{
    return id < RMQ_POP_WINDOW_IDS && w->places[id] ? w->places[id] - 1 : RMQ_NONE;
}

const struct rmq_pop_window *rmq_pop_window_at(struct rmq_pop_windows *w, uint32_t place)
{
    return place < w->windows_end && rmq_pop_is_there(w->pages, &w->windows[place]) && w->windows[place].id ? &w->windows[place] : NULL;
}

uint32_t rmq_pop_open_messages(struct rmq_pop_windows *w, uint32_t place) { return w->sides[place].open; }
uint32_t rmq_pop_held_messages(struct rmq_pop_windows *w, uint32_t place)
{
    return w->sides[place].open - w->sides[place].returned;
}

uint32_t rmq_pop_entries_of(const struct rmq_pop_windows *w, uint32_t place) { return w->sides[place].entries; }

/* The lowest open offset from `from` on of the entries whose base offset is in the block, or `lowest`. */
static int64_t lowest_open(struct rmq_pop_windows *w, uint32_t window, uint64_t block, int64_t from, int64_t lowest)
{
    uint32_t at = rmq_pop_hash_first(&w->blocks, rmq_pop_block_hash(window, block));
    for (; at; at = w->blocks.next[at - 1]) {
        const struct rmq_pop_entry *e = &w->entries[at - 1];
        if (e->window != window || e->base_offset / SPAN != block)
            continue;
        int64_t base = (int64_t)e->base_offset;
        uint64_t open = rmq_pop_open_bits(e);
        if (from > base)
            open = from - base < SPAN ? open >> (from - base) << (from - base) : 0;
        if (open && base + __builtin_ctzll(open) < lowest)
            lowest = base + __builtin_ctzll(open);
    }
    return lowest;
}

/* The lowest open offset from `low` on, or the place of the next look for it. */
static int64_t look_for_open(struct rmq_pop_windows *w, uint32_t window, int64_t low, int64_t limit)
{
    for (int i = 0; i < BLOCKS_A_CALL && low < limit; i++) {
        uint64_t block = (uint64_t)low / SPAN;
        int64_t end = (int64_t)(block + 1) * SPAN;
        int64_t found = block ? lowest_open(w, window, block - 1, low, end) : end;
        low = lowest_open(w, window, block, low, found);
        if (low < end)
            break;
    }
    return low;
}

int64_t rmq_pop_first_open(struct rmq_pop_windows *w, uint32_t place)
{
    struct rmq_pop_side *side = &w->sides[place];
    const struct rmq_pop_window *window = &w->windows[place];
    if (!side->open)
        return side->low = window->next_offset;
    return side->low = look_for_open(w, window->id, side->low, INT64_MAX);
}

int64_t rmq_pop_first_open_from(struct rmq_pop_windows *w, uint32_t place, int64_t from)
{
    const struct rmq_pop_window *window = &w->windows[place];
    int64_t low = rmq_pop_first_open(w, place), end = window->next_offset;
    if (low >= from)
        return low;
    low = look_for_open(w, window->id, from, end);
    return low < end ? low : end;
}

void rmq_pop_skip_to(struct rmq_pop_windows *w, uint32_t place, int64_t next_offset)
{
    struct rmq_pop_window *window = &w->windows[place];
    if (next_offset <= window->next_offset)
        return;
    rmq_pop_touch(w->pages, window);
    RMQ_POP_STORE(window->next_offset, next_offset);
    RMQ_CRASH("pop-next-offset");
}

/* A death between the two stores leaves a table that has the offset, or one that is told of it again. */
void rmq_pop_set_committed(struct rmq_pop_windows *w, uint32_t place, int64_t committed, uint64_t start_id)
{
    rmq_pop_touch(w->pages, &w->windows[place]);
    RMQ_POP_STORE(w->windows[place].committed, committed);
    RMQ_CRASH("pop-offset-committed");
    RMQ_POP_STORE(w->windows[place].reported_start, start_id);
    RMQ_CRASH("pop-offset-reported");
}

void rmq_pop_set_unmarked(struct rmq_pop_windows *w, uint32_t place, uint64_t start_id)
{
    rmq_pop_touch(w->pages, &w->windows[place]);
    RMQ_POP_STORE(w->windows[place].unmarked_start, start_id);
    RMQ_CRASH("pop-window-unmarked");
}

/* --- pops ----------------------------------------------------------------------------------------------------------------- */

static int is_receipt(const struct rmq_pop_entry *e, uint32_t window, int64_t start, int64_t pop_time_ms)
{
    return e->window == window && e->pop_time_ms == pop_time_ms && rmq_pop_start_of(e) == start;
}

/* The next entry + 1 with this receipt, from the chain's entry + 1 `at` on. */
static uint32_t with_receipt(const struct rmq_pop_windows *w, uint32_t at, uint32_t window, int64_t start, int64_t pop_time_ms)
{
    while (at && !is_receipt(&w->entries[at - 1], window, start, pop_time_ms))
        at = w->receipts.next[at - 1];
    return at;
}

uint32_t rmq_pop_receipt_first(const struct rmq_pop_windows *w, uint32_t window, int64_t start, int64_t pop_time_ms)
{
    uint32_t at = rmq_pop_hash_first(&w->receipts, rmq_pop_receipt_hash(window, start, pop_time_ms));
    return with_receipt(w, at, window, start, pop_time_ms);
}

uint32_t rmq_pop_receipt_next(const struct rmq_pop_windows *w, uint32_t at, uint32_t window, int64_t start, int64_t pop_time_ms)
{
    return with_receipt(w, w->receipts.next[at - 1], window, start, pop_time_ms);
}

int64_t rmq_pop_time_for(struct rmq_pop_windows *w, const uint32_t *places, const int64_t *starts, uint32_t count, int64_t pop_time_ms)
{
    for (uint32_t i = 0; i < count; i++)
        if (rmq_pop_receipt_first(w, w->windows[places[i]].id, starts[i], pop_time_ms)) {
            pop_time_ms++;
            i = (uint32_t)-1;
        }
    return pop_time_ms;
}

/* The offsets from `at` on that fit into one entry, as its bits. Returns the index behind them. */
static uint32_t span_of(const int64_t *offsets, uint32_t at, uint32_t count, uint64_t *present)
{
    int64_t base = offsets[at];
    for (*present = 0; at < count && offsets[at] - base < SPAN; at++)
        *present |= 1ull << (offsets[at] - base);
    return at;
}

static uint32_t spans_of(const int64_t *offsets, uint32_t count)
{
    uint32_t spans = 0;
    uint64_t present;
    for (uint32_t at = 0; at < count; spans++)
        at = span_of(offsets, at, count, &present);
    return spans;
}

static void make_entries(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const int64_t *offsets,
                         uint32_t count, uint8_t state)
{
    for (uint32_t at = 0; at < count;) {
        int64_t base = offsets[at];
        uint64_t present;
        at = span_of(offsets, at, count, &present);
        rmq_pop_entry_make(w, place, give, base, present, state);
    }
}

void rmq_pop_note_pop(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms)
{
    rmq_pop_touch(w->pages, &w->windows[place]);
    w->windows[place].last_pop_ms = pop_time_ms;
    RMQ_CRASH("pop-time-noted");
}

int rmq_pop_window_give(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const int64_t *offsets, uint32_t count)
{
    int rc = rmq_pop_entries_ready(w, spans_of(offsets, count));
    if (rc)
        return rc;
    make_entries(w, place, give, offsets, count, RMQ_POP_OPEN);
    rmq_pop_skip_to(w, place, give->next_offset);
    rmq_pop_note_pop(w, place, give->pop_time_ms);
    return 0;
}

/* Puts an offset among those found, in order. One that is there already is not put again. */
static uint32_t put_sorted(int64_t *offsets, uint32_t count, uint32_t room, int64_t offset)
{
    uint32_t at = count;
    while (at && offsets[at - 1] > offset)
        at--;
    if ((at && offsets[at - 1] == offset) || at == room)
        return count;
    uint32_t kept = count < room ? count : room - 1;
    memmove(offsets + at + 1, offsets + at, (kept - at) * sizeof *offsets);
    offsets[at] = offset;
    return kept + 1;
}

uint32_t rmq_pop_returned(struct rmq_pop_windows *w, uint32_t place, int64_t *offsets, uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t entry = w->sides[place].again.head; room && entry != RMQ_NONE; entry = w->wheel.next[entry]) {
        const struct rmq_pop_entry *e = &w->entries[entry];
        int64_t base = (int64_t)e->base_offset;
        if (count == room && base > offsets[count - 1])
            break;
        for (uint64_t open = rmq_pop_open_bits(e); open; open &= open - 1)
            count = put_sorted(offsets, count, room, base + __builtin_ctzll(open));
    }
    while (count && offsets[count - 1] - offsets[0] >= RMQ_POP_SPAN_MAX)
        count--;
    return count;
}

static void finish(struct rmq_pop_windows *w, uint32_t entry, uint64_t bits)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t open = rmq_pop_open_bits(e);
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | bits);
    RMQ_CRASH("pop-move-old-done");
    rmq_pop_entry_changed(w, entry, open);
}

void rmq_pop_leave_returned(struct rmq_pop_windows *w, uint32_t place, int64_t before)
{
    const struct rmq_pop_list *again = &w->sides[place].again; /* in the order of base offsets */
    while (again->head != RMQ_NONE && (int64_t)w->entries[again->head].base_offset < before)
        rmq_pop_entry_turn(w, again->head, RMQ_POP_REVIVING, w->mono_ms);
}

int rmq_pop_give_again(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const int64_t *offsets, uint32_t count)
{
    int rc = rmq_pop_entries_ready(w, spans_of(offsets, count));
    if (rc)
        return rc;
    make_entries(w, place, give, offsets, count, RMQ_POP_MOVING);
    for (uint32_t entry = w->sides[place].again.head, next; entry != RMQ_NONE; entry = next) {
        const struct rmq_pop_entry *e = &w->entries[entry];
        next = w->wheel.next[entry];
        if ((int64_t)e->base_offset > offsets[count - 1])
            break;
        uint64_t bits = 0;
        for (uint32_t i = 0; i < count; i++)
            bits |= rmq_pop_bit(e, offsets[i]);
        if (bits & rmq_pop_open_bits(e))
            finish(w, entry, bits & rmq_pop_open_bits(e));
    }
    uint32_t id = w->windows[place].id, at = rmq_pop_receipt_first(w, id, give->start_offset, give->pop_time_ms);
    for (; at; at = rmq_pop_receipt_next(w, at, id, give->start_offset, give->pop_time_ms)) {
        if (w->entries[at - 1].state != RMQ_POP_MOVING)
            continue;
        rmq_pop_touch(w->pages, &w->entries[at - 1]);
        RMQ_POP_STORE(w->entries[at - 1].state, RMQ_POP_OPEN);
        RMQ_CRASH("pop-given-again");
    }
    rmq_pop_note_pop(w, place, give->pop_time_ms);
    return 0;
}

/* --- receipts ------------------------------------------------------------------------------------------------------------- */

/* Of REVIVING messages, those that may have a copy. Before a start knows all marks it may be any. */
static uint64_t with_copies(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bits)
{
    if (w->entries[entry].state != RMQ_POP_REVIVING)
        return 0;
    if (!w->marks_are_known)
        return bits;
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    return bits & (w->entries[entry].copied | (record ? record->flying | record->stored : 0));
}

static uint32_t ack_one(struct rmq_pop_windows *w, uint32_t entry, int64_t offset, uint64_t bits)
{
    struct rmq_pop_entry *e = &w->entries[entry];
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    bits = rmq_pop_bits_in(e, offset, bits);
    bits &= e->present & ~e->acked & ~(record ? record->seen : 0); /* a pop has passed the copy: it is too late */
    if (!bits)
        return 0;
    uint64_t open = rmq_pop_open_bits(e), late = with_copies(w, entry, bits);
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | bits);
    RMQ_CRASH("pop-acked");
    if (late & ~e->copied) {
        RMQ_POP_STORE(e->copied, e->copied | late);
        RMQ_CRASH("pop-copy-withdrawn");
    }
    rmq_pop_entry_changed(w, entry, open);
    return (uint32_t)__builtin_popcountll(bits);
}

int rmq_pop_ack(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset, uint64_t bits,
                uint32_t *done)
{
    uint32_t id = w->windows[place].id, next, at = rmq_pop_receipt_first(w, id, start_offset, pop_time_ms);
    int is_known = at != 0;
    for (*done = 0; at; at = with_receipt(w, next, id, start_offset, pop_time_ms)) {
        next = w->receipts.next[at - 1];
        *done += ack_one(w, at - 1, offset, bits);
    }
    return *done ? RMQ_POP_DONE : is_known ? RMQ_POP_KNOWN : RMQ_POP_UNKNOWN;
}

void rmq_pop_note_in_log(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms)
{
    uint32_t id = w->windows[place].id, at = rmq_pop_receipt_first(w, id, start_offset, pop_time_ms);
    for (; at; at = rmq_pop_receipt_next(w, at, id, start_offset, pop_time_ms)) {
        struct rmq_pop_entry *e = &w->entries[at - 1];
        rmq_pop_touch(w->pages, e);
        RMQ_POP_STORE(e->attempts, e->attempts | RMQ_POP_IN_LOG);
        RMQ_CRASH("pop-entry-in-log");
    }
}

uint32_t rmq_pop_in_log(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset,
                        uint64_t bits)
{
    uint32_t id = w->windows[place].id, at = rmq_pop_receipt_first(w, id, start_offset, pop_time_ms), count = 0;
    for (; at; at = rmq_pop_receipt_next(w, at, id, start_offset, pop_time_ms))
        count += (uint32_t)__builtin_popcountll(rmq_pop_bits_in(&w->entries[at - 1], offset, bits) & rmq_pop_in_log_bits(w, at - 1));
    return count;
}

static int is_held(const struct rmq_pop_entry *e) { return e->state == RMQ_POP_OPEN || e->state == RMQ_POP_RETURNED; }

int rmq_pop_change(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset,
                   const struct rmq_pop_give *give)
{
    uint32_t id = w->windows[place].id, at = rmq_pop_receipt_first(w, id, start_offset, pop_time_ms);
    if (!at)
        return RMQ_POP_UNKNOWN;
    while (at && !(rmq_pop_bit(&w->entries[at - 1], offset) & rmq_pop_open_bits(&w->entries[at - 1])))
        at = rmq_pop_receipt_next(w, at, id, start_offset, pop_time_ms);
    if (!at || !is_held(&w->entries[at - 1]))
        return RMQ_POP_KNOWN;
    int rc = rmq_pop_entries_ready(w, 1);
    if (rc)
        return rc;
    struct rmq_pop_give changed = *give;
    changed.revive_queue |= RMQ_POP_CHANGED;
    uint32_t made = rmq_pop_entry_make(w, place, &changed, offset, 1, RMQ_POP_MOVING);
    finish(w, at - 1, rmq_pop_bit(&w->entries[at - 1], offset));
    rmq_pop_touch(w->pages, &w->entries[made]);
    RMQ_POP_STORE(w->entries[made].state, RMQ_POP_OPEN);
    RMQ_CRASH("pop-changed");
    return RMQ_POP_DONE;
}

static int rank_changed(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit)
{
    const struct rmq_pop_entry *e = &w->entries[entry];
    return e->state == RMQ_POP_OPEN && e->revive_queue & RMQ_POP_CHANGED && rmq_pop_open_bits(e) & bit;
}

int64_t rmq_pop_changed_at(struct rmq_pop_windows *w, uint32_t place, int64_t offset, const struct rmq_pop_give *give)
{
    uint32_t entry = rmq_pop_entry_best(w, w->windows[place].id, offset, rank_changed);
    const struct rmq_pop_entry *e = entry == RMQ_NONE ? NULL : &w->entries[entry];
    int is_same = e && e->client == give->client && e->invisible_ms == give->invisible_ms &&
                  e->revive_queue == (give->revive_queue | RMQ_POP_CHANGED);
    return is_same ? e->pop_time_ms : -1;
}

int rmq_pop_unsent(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms)
{
    uint32_t id = w->windows[place].id, at = rmq_pop_receipt_first(w, id, start_offset, pop_time_ms);
    int is_known = at != 0 || rmq_pop_order_unsent(w, place, start_offset, pop_time_ms);
    for (; at; at = rmq_pop_receipt_next(w, at, id, start_offset, pop_time_ms))
        if (w->entries[at - 1].state == RMQ_POP_OPEN)
            rmq_pop_entry_turn(w, at - 1, RMQ_POP_RETURNED, 0);
    return is_known;
}

/* --- the end of the queue ------------------------------------------------------------------------------------------------- */

struct clamp {
    int64_t end;
    uint32_t dropped;
};

static void clamp_one(struct rmq_pop_windows *w, uint32_t entry, void *with)
{
    struct clamp *clamp = with;
    struct rmq_pop_entry *e = &w->entries[entry];
    int64_t inside = clamp->end - (int64_t)e->base_offset;
    uint64_t lost = e->present & (inside <= 0 ? ~0ull : inside < SPAN ? ~0ull << inside : 0);
    if (!lost)
        return;
    uint64_t open = rmq_pop_open_bits(e);
    clamp->dropped += (uint32_t)__builtin_popcountll(open & lost);
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | lost);
    RMQ_CRASH("pop-clamp-acked");
    RMQ_POP_STORE(e->copied, e->copied & ~lost);
    RMQ_CRASH("pop-clamp-copied");
    rmq_pop_entry_changed(w, entry, open);
    rmq_pop_copies_forget(w, entry, lost);
}

/* Entries first: a start takes an entry at or above next_offset for one that no consumer has got. */
uint32_t rmq_pop_clamp(struct rmq_pop_windows *w, uint32_t place, int64_t end_offset)
{
    struct rmq_pop_window *window = &w->windows[place];
    struct clamp clamp = {.end = end_offset};
    rmq_pop_order_clamp(w, place, end_offset);
    if (window->next_offset <= end_offset)
        return 0;
    rmq_pop_entries_from(w, place, window->id, end_offset, clamp_one, &clamp);
    rmq_pop_touch(w->pages, window);
    RMQ_POP_STORE(window->next_offset, end_offset);
    RMQ_CRASH("pop-clamp-next-offset");
    if (w->sides[place].low > end_offset)
        w->sides[place].low = end_offset;
    return clamp.dropped;
}
