/* pop_revivals.c: entries whose time is over, and their copies. Twin: pop/window_twin.py. */
#include "pop/pop_entries.h"

#define SORTED_A_CALL 4096
#define FORGOTTEN_A_CALL 256
#define REVIVED_MS 600000u

/* The entry, which is in the wheel, leaves it for a record. */
static struct rmq_pop_record *give_record(struct rmq_pop_windows *w, uint32_t entry, uint64_t flying)
{
    rmq_pop_wheel_remove(&w->wheel, entry);
    uint32_t number = rmq_pop_record_make(&w->records, entry, flying);
    w->wheel.next[entry] = RMQ_POP_HAS_RECORD;
    w->wheel.prev[entry] = number;
    return &w->records.all[number];
}

/* A record without copies under way has served. What is open then is due again. Returns 1 if the entry is REVIVED or free. */
static int settle(struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    if (record->flying | record->stored)
        return 0;
    int64_t due_ms = record->due_ms;
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t open = rmq_pop_open_bits(e);
    rmq_pop_record_drop(&w->records, w->wheel.prev[entry]);
    rmq_pop_wheel_add(&w->wheel, entry, due_ms);
    rmq_pop_entry_changed(w, entry, open);
    return !open;
}

void rmq_pop_copies_forget(struct rmq_pop_windows *w, uint32_t entry, uint64_t bits)
{
    struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    if (!record)
        return;
    record->stored &= ~bits;
    record->flying &= ~bits;
    settle(w, entry);
}

/* A copy gets a mark with the window's id: from now on the id may be in the log. */
static void note_mark(struct rmq_pop_windows *w, uint32_t window_id)
{
    uint32_t place = window_id < RMQ_POP_WINDOW_IDS ? w->places[window_id] : 0;
    if (!place || !w->windows[place - 1].unmarked_start)
        return;
    rmq_pop_touch(w->pages, &w->windows[place - 1]);
    RMQ_POP_STORE(w->windows[place - 1].unmarked_start, 0);
    RMQ_CRASH("pop-window-marked");
}

/* --- due messages --------------------------------------------------------------------------------------------------------- */

/* Copies that no consumer takes keep their entries for 10 minutes, and longer where one of them was withdrawn. */
static void forget_old(struct rmq_pop_windows *w)
{
    for (int i = 0; i < FORGOTTEN_A_CALL && w->revived.head != RMQ_NONE; i++) {
        uint32_t entry = w->revived.head;
        if ((uint32_t)w->mono_ms - w->wheel.due[entry] < REVIVED_MS)
            return;
        if (w->entries[entry].acked & w->entries[entry].copied)
            rmq_pop_entry_turn(w, entry, RMQ_POP_REVIVED, 0);
        else
            rmq_pop_entry_free(w, entry);
    }
}

uint32_t rmq_pop_due(struct rmq_pop_windows *w, int64_t mono_ms, struct rmq_pop_due *due, uint32_t room)
{
    uint32_t count = 0, steps = SORTED_A_CALL, entry;
    w->mono_ms = mono_ms > w->mono_ms ? mono_ms : w->mono_ms;
    w->marks_are_known = 1;
    forget_old(w);
    while ((entry = rmq_pop_wheel_first(&w->wheel, w->mono_ms, &steps)) != RMQ_NONE) {
        const struct rmq_pop_entry *e = &w->entries[entry];
        uint64_t open = rmq_pop_open_bits(e);
        if (room - count < (uint32_t)__builtin_popcountll(open) || !rmq_pop_copy_records_ready(&w->records))
            break;
        note_mark(w, e->window);
        if (e->state != RMQ_POP_REVIVING)
            rmq_pop_entry_turn(w, entry, RMQ_POP_REVIVING, w->mono_ms);
        give_record(w, entry, open);
        uint32_t place = rmq_pop_place_of(w, e);
        for (; open; open &= open - 1)
            due[count++] = (struct rmq_pop_due){.window = e->window, .place = place, .pop_time_ms = e->pop_time_ms,
                                                .queue_offset = (int64_t)e->base_offset + __builtin_ctzll(open),
                                                .attempts = e->attempts & RMQ_POP_ATTEMPTS_MAX};
    }
    return count;
}

int64_t rmq_pop_next_due_ms(const struct rmq_pop_windows *w) { return rmq_pop_wheel_next(&w->wheel); }

/* --- results of copies ---------------------------------------------------------------------------------------------------- */

static uint64_t flying_of(const struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    return record ? record->flying : 0;
}

static uint64_t stored_of(const struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    return record ? record->stored : 0;
}

static int rank_flying(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit) { return (flying_of(w, entry) & bit) != 0; }

uint32_t rmq_pop_flying_in_log(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset)
{
    uint32_t entry = rmq_pop_entry_best(w, window_id, queue_offset, rank_flying);
    return entry != RMQ_NONE && w->entries[entry].attempts & RMQ_POP_IN_LOG ? entry : RMQ_NONE;
}

/* After a power cut the memory may be older than the copy: then the entry is OPEN, or RETURNED. */
static int rank_copied(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit)
{
    const struct rmq_pop_entry *e = &w->entries[entry];
    if (flying_of(w, entry) & bit)
        return 5;
    if ((e->copied | stored_of(w, entry)) & bit)
        return 4;
    if (!(rmq_pop_open_bits(e) & bit))
        return 0;
    return e->state == RMQ_POP_REVIVING ? 3 : e->state == RMQ_POP_OPEN ? 2 : 1;
}

void rmq_pop_copied(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset, uint64_t end)
{
    note_mark(w, window_id);
    uint32_t entry = rmq_pop_entry_best(w, window_id, queue_offset, rank_copied);
    uint64_t bit = entry == RMQ_NONE ? 0 : rmq_pop_bit(&w->entries[entry], queue_offset);
    if (!bit || (!(flying_of(w, entry) & bit) && (w->entries[entry].copied | stored_of(w, entry)) & bit) ||
        !rmq_pop_copy_records_ready(&w->records))
        return;
    if (!rmq_pop_record_of(w, entry)) {
        uint8_t state = w->entries[entry].state;
        int64_t due_ms = state == RMQ_POP_RETURNED ? w->mono_ms : rmq_pop_wheel_due(&w->wheel, entry);
        if (state != RMQ_POP_REVIVING)
            rmq_pop_entry_turn(w, entry, RMQ_POP_REVIVING, due_ms);
        give_record(w, entry, 0)->due_ms = due_ms; /* the other messages keep their time */
    }
    rmq_pop_record_store(&w->records, w->wheel.prev[entry], bit, end);
}

static uint32_t landed(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset, uint64_t *bit)
{
    uint32_t entry = rmq_pop_entry_best(w, window_id, queue_offset, rank_flying);
    if (entry == RMQ_NONE)
        return entry;
    *bit = rmq_pop_bit(&w->entries[entry], queue_offset);
    rmq_pop_record_of(w, entry)->flying &= ~*bit;
    rmq_pop_touch(w->pages, &w->entries[entry]);
    return entry;
}

void rmq_pop_copy_failed(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset, int64_t mono_ms, int is_counted)
{
    uint64_t bit;
    uint32_t entry = landed(w, window_id, queue_offset, &bit);
    if (entry == RMQ_NONE)
        return;
    struct rmq_pop_entry *e = &w->entries[entry];
    struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    record->due_ms = mono_ms > record->due_ms ? mono_ms : record->due_ms;
    if (is_counted && !record->has_failed) {
        record->has_failed = 1;
        e->attempts += (e->attempts & RMQ_POP_ATTEMPTS_MAX) < RMQ_POP_ATTEMPTS_MAX;
        RMQ_CRASH("pop-copy-attempted");
    }
    if (e->acked & e->copied & bit) { /* it was withdrawn, and there is none */
        RMQ_POP_STORE(e->copied, e->copied & ~bit);
        RMQ_CRASH("pop-copy-missed");
    }
    settle(w, entry);
}

void rmq_pop_copy_gone(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset)
{
    uint64_t bit;
    uint32_t entry = landed(w, window_id, queue_offset, &bit);
    if (entry == RMQ_NONE)
        return;
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t open = rmq_pop_open_bits(e);
    RMQ_POP_STORE(e->acked, e->acked | bit);
    RMQ_CRASH("pop-record-gone");
    RMQ_POP_STORE(e->copied, e->copied & ~bit);
    RMQ_CRASH("pop-copy-gone");
    rmq_pop_entry_changed(w, entry, open);
    settle(w, entry);
}

/* A copy that a pop has passed is done. The others wait. */
static int flush_one(struct rmq_pop_windows *w, uint32_t number, uint64_t bits)
{
    struct rmq_pop_record *record = &w->records.all[number];
    uint32_t entry = record->entry;
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t open = rmq_pop_open_bits(e), seen = bits & record->seen;
    record->seen &= ~bits;
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | seen);
    RMQ_CRASH("pop-flush-acked");
    RMQ_POP_STORE(e->copied, e->copied | (bits & ~e->acked));
    RMQ_CRASH("pop-flush-copied");
    rmq_pop_entry_changed(w, entry, open);
    return settle(w, entry);
}

uint32_t rmq_pop_flushed(struct rmq_pop_windows *w, uint64_t flushed_offset)
{
    uint32_t count = 0, number;
    uint64_t bits;
    while ((number = rmq_pop_record_flush(&w->records, flushed_offset, &bits)) != RMQ_NONE)
        count += (uint32_t)flush_one(w, number, bits);
    return count;
}

/* --- pops of copies ------------------------------------------------------------------------------------------------------- */

#define WAITS 2
#define IS_WITHDRAWN 1

static int rank_copy(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit)
{
    const struct rmq_pop_entry *e = &w->entries[entry];
    if ((e->copied | stored_of(w, entry) | flying_of(w, entry)) & ~e->acked & bit)
        return WAITS;
    return e->copied & e->acked & bit ? IS_WITHDRAWN : 0;
}

int rmq_pop_take_copy(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset)
{
    uint32_t entry = rmq_pop_entry_best(w, window_id, queue_offset, rank_copy);
    return entry == RMQ_NONE || rank_copy(w, entry, rmq_pop_bit(&w->entries[entry], queue_offset)) != IS_WITHDRAWN;
}

/* `acked` goes first: a start that finds no bit of the message would copy it again. */
void rmq_pop_copy_seen(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset)
{
    uint32_t entry = rmq_pop_entry_best(w, window_id, queue_offset, rank_copy);
    if (entry == RMQ_NONE)
        return;
    struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t bit = rmq_pop_bit(e, queue_offset), open = rmq_pop_open_bits(e);
    if ((stored_of(w, entry) | flying_of(w, entry)) & bit)
        rmq_pop_record_of(w, entry)->seen |= bit;
    if (!(e->copied & bit))
        return;
    rmq_pop_touch(w->pages, e);
    RMQ_POP_STORE(e->acked, e->acked | bit);
    RMQ_CRASH("pop-seen-acked");
    RMQ_POP_STORE(e->copied, e->copied & ~bit);
    RMQ_CRASH("pop-seen-copied");
    rmq_pop_entry_changed(w, entry, open);
}

void rmq_pop_forget_revived(struct rmq_pop_windows *w, uint32_t entries)
{
    while (rmq_pop_entries_free(w) < entries && w->revived.head != RMQ_NONE)
        rmq_pop_entry_free(w, w->revived.head);
}

uint32_t rmq_pop_entries_free(const struct rmq_pop_windows *w) { return w->free_count + (w->layout.entries_max - w->entries_end); }
