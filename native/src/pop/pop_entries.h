/* pop_entries.h: one entry of POP in the memory and beside it. For pop_windows.c and pop_revivals.c. */
#ifndef RMQ_POP_ENTRIES_H
#define RMQ_POP_ENTRIES_H
#include <stddef.h>
#include <stdint.h>

#include "plane/tables_layout.h"
#include "pop/pop_hash.h"
#include "pop/pop_copy_records.h"
#include "pop/pop_orders.h"
#include "pop/pop_wheel.h"
#include "pop/pop_windows.h"

#define RMQ_POP_HAS_RECORD 0xffffeffeu /* wheel.next of an entry that has a record: wheel.prev is its number */

/* Of a window, beside the memory. */
struct rmq_pop_side {
    int64_t low;                 /* no open message lies below */
    int64_t floor;               /* no entry begins below */
    int64_t found_end;           /* behind the last message of the entries that a start has found, without those that are done */
    uint32_t entries;
    uint32_t open, returned;     /* messages */
    struct rmq_pop_list again;   /* RETURNED entries, in the order of base offsets */
};

struct rmq_pop_windows {
    struct rmq_pop_pages *pages;
    struct rmq_pop_layout layout;
    struct rmq_pop_window *windows;
    struct rmq_pop_entry *entries;
    struct rmq_pop_hash receipts, blocks;
    struct rmq_pop_wheel wheel;
    struct rmq_pop_side *sides;
    struct rmq_pop_list revived; /* oldest first; `due` is the time since when */
    uint32_t *places;            /* of each id: place + 1 */
    uint32_t *spare_windows, spare_window_count, windows_end; /* unused slots below windows_end; none above it is used */
    uint32_t free_entry, free_count, entries_end;             /* the same; chained by receipts.next, entry + 1 */
    struct rmq_pop_copy_records records;
    struct rmq_pop_orders orders;
    int64_t mono_ms;
    int marks_are_known;
    struct rmq_pop_counts counts;
};

#define RMQ_POP_STORE(at, value) __atomic_store_n(&(at), (value), __ATOMIC_RELEASE)

static inline uint64_t rmq_pop_open_bits(const struct rmq_pop_entry *e) { return e->present & ~e->acked & ~e->copied; }
static inline int64_t rmq_pop_start_of(const struct rmq_pop_entry *e) { return (int64_t)e->base_offset - e->start_delta; }
static inline uint32_t rmq_pop_place_of(const struct rmq_pop_windows *w, const struct rmq_pop_entry *e) { return w->places[e->window] - 1; }

/* NULL: no copy of the entry is under way. */
static inline struct rmq_pop_record *rmq_pop_record_of(const struct rmq_pop_windows *w, uint32_t entry)
{
    int has_one = w->entries[entry].state == RMQ_POP_REVIVING && w->wheel.next[entry] == RMQ_POP_HAS_RECORD;
    return has_one ? &w->records.all[w->wheel.prev[entry]] : NULL;
}

static inline uint64_t rmq_pop_receipt_hash(uint32_t window, int64_t start, int64_t pop_time_ms)
{
    return rmq_pop_mix(rmq_pop_mix((uint64_t)start ^ (uint64_t)window << 44) ^ (uint64_t)pop_time_ms);
}
static inline uint64_t rmq_pop_block_hash(uint32_t window, uint64_t block) { return rmq_pop_mix(block ^ (uint64_t)window << 44); }
/* The messages offset + i, for each bit i of `bits`, as bits of the entry. */
static inline uint64_t rmq_pop_bits_in(const struct rmq_pop_entry *e, int64_t offset, uint64_t bits)
{
    int64_t at = offset - (int64_t)e->base_offset;
    return at >= 0 ? (at < RMQ_POP_ENTRY_MESSAGES ? bits << at : 0) : (at > -RMQ_POP_ENTRY_MESSAGES ? bits >> -at : 0);
}
/* Messages of an IN_LOG entry without a copy in the log. */
static inline uint64_t rmq_pop_in_log_bits(const struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_record *record = rmq_pop_record_of(w, entry);
    if (!(w->entries[entry].attempts & RMQ_POP_IN_LOG))
        return 0;
    return rmq_pop_open_bits(&w->entries[entry]) & ~(record ? record->flying | record->stored : 0);
}
/* Bit of an offset in the entry; 0 if it lies outside. */
static inline uint64_t rmq_pop_bit(const struct rmq_pop_entry *e, int64_t offset)
{
    uint64_t at = (uint64_t)offset - e->base_offset;
    return at < RMQ_POP_ENTRY_MESSAGES ? 1ull << at : 0;
}

/* The first entry + 1 with a receipt, and the next one behind entry + 1 `at`; 0: there is none. */
uint32_t rmq_pop_receipt_first(const struct rmq_pop_windows *w, uint32_t window, int64_t start, int64_t pop_time_ms);
uint32_t rmq_pop_receipt_next(const struct rmq_pop_windows *w, uint32_t at, uint32_t window, int64_t start, int64_t pop_time_ms);
void rmq_pop_note_pop(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms);
uint32_t rmq_pop_window_check(const struct rmq_pop_window *window);
uint32_t rmq_pop_entry_check(const struct rmq_pop_entry *entry);
/* The entry of a message whose copy is under way, if the log has a check point of it; RMQ_NONE: it has none. */
uint32_t rmq_pop_flying_in_log(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset);
/* Makes sure that the next `count` entries can be made: REVIVED ones give way. 0 or -ENOSPC. */
int rmq_pop_entries_ready(struct rmq_pop_windows *w, uint32_t count);
/* Makes an entry of the messages `present` from `base` on, and publishes it. */
uint32_t rmq_pop_entry_make(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, int64_t base, uint64_t present,
                            uint8_t state);
/* Puts an entry of the memory into the structures beside it. */
void rmq_pop_entry_link(struct rmq_pop_windows *w, uint32_t entry, uint32_t place, int64_t due_ms);
void rmq_pop_entry_free(struct rmq_pop_windows *w, uint32_t entry);
/* Leaves the list or wheel of its state for those of the new one. `due_ms`: of OPEN and REVIVING. */
void rmq_pop_entry_turn(struct rmq_pop_windows *w, uint32_t entry, uint8_t state, int64_t due_ms);
/* After a change of bits: counts, and frees it or makes it REVIVED where nothing is left to do. `open`: bits before. */
void rmq_pop_entry_changed(struct rmq_pop_windows *w, uint32_t entry, uint64_t open);
/* The entry with the highest rank among those that may hold the offset, RMQ_NONE if all ranks are 0. Of equals, the first one. */
uint32_t rmq_pop_entry_best(struct rmq_pop_windows *w, uint32_t window, int64_t offset,
                            int (*rank)(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit));
/* Calls `act` for each entry of the window that may hold offsets from `from` on, until the window has none. */
void rmq_pop_entries_from(struct rmq_pop_windows *w, uint32_t place, uint32_t window, int64_t from,
                          void (*act)(struct rmq_pop_windows *w, uint32_t entry, void *with), void *with);
/* These messages have no copies under way any more. */
void rmq_pop_copies_forget(struct rmq_pop_windows *w, uint32_t entry, uint64_t bits);
#endif
