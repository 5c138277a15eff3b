/* pop_check_points.c: open messages as RocketMQ's check points. Twin: ringmq/pop/check_points_twin.py. */
#include "pop/pop_check_points.h"

#include "pop/pop_entries.h"

#define ENTRIES RMQ_POP_ENTRY_MESSAGES /* of one pop */

/* The open messages of one pop, ascending. */
struct point {
    const struct rmq_pop_entry *first;
    int64_t start;
    uint32_t count, entry_count;
    uint32_t entries[ENTRIES];
    int64_t offsets[RMQ_POP_ENTRY_MESSAGES * ENTRIES];
};

/* --- pops ----------------------------------------------------------------------------------------------------------------- */

/* Messages of an entry without a copy in the log. */
static uint64_t open_bits(const struct rmq_pop_windows *w, uint32_t entry)
{
    const struct rmq_pop_entry *e = &w->entries[entry];
    const struct rmq_pop_record *record;
    if (!rmq_pop_is_there(w->pages, e) || e->state == RMQ_POP_FREE || e->state == RMQ_POP_REVIVED)
        return 0;
    record = rmq_pop_record_of(w, entry);
    return rmq_pop_open_bits(e) & ~(record ? record->stored : 0);
}

static int is_same_pop(const struct rmq_pop_entry *a, const struct rmq_pop_entry *b)
{
    return a->window == b->window && a->pop_time_ms == b->pop_time_ms && rmq_pop_start_of(a) == rmq_pop_start_of(b);
}

/* The entries of this one's pop that have open messages, by base offset. 0: an earlier entry has the check point, or there
 * are more than ENTRIES of them, and p->does_not_fit is set. */
static uint32_t entries_of(struct rmq_pop_points *p, uint32_t entry, uint32_t *found)
{
    struct rmq_pop_windows *w = p->windows;
    const struct rmq_pop_entry *e = &w->entries[entry];
    uint64_t hash = rmq_pop_receipt_hash(e->window, rmq_pop_start_of(e), e->pop_time_ms);
    uint32_t count = 0, at = rmq_pop_hash_first(&w->receipts, hash);
    for (; at; at = w->receipts.next[at - 1]) {
        const struct rmq_pop_entry *other = &w->entries[at - 1];
        if (!is_same_pop(e, other) || !open_bits(w, at - 1))
            continue;
        if (at - 1 < entry)
            return 0;
        if (count == ENTRIES) {
            p->does_not_fit = 1;
            return 0;
        }
        uint32_t to = count++;
        for (; to && w->entries[found[to - 1]].base_offset > other->base_offset; to--)
            found[to] = found[to - 1];
        found[to] = at - 1;
    }
    return count;
}

int rmq_pop_points_is_over(const struct rmq_pop_points *p)
{
    return p->next >= p->windows->entries_end || p->next >= p->entries;
}

static int is_wanted(const struct rmq_pop_points *p, uint32_t entry)
{
    struct rmq_pop_windows *w = p->windows;
    const struct rmq_pop_entry *e = &w->entries[entry];
    if (!open_bits(w, entry) || p->made[entry] == e->check)
        return 0;
    uint32_t place = rmq_pop_place_of(w, e);
    return place < p->places && p->topics[place].length && (int64_t)e->base_offset < p->ends[place];
}

static int next_point(struct rmq_pop_points *p, struct point *point, uint32_t *look)
{
    struct rmq_pop_windows *w = p->windows;
    for (; *look && !rmq_pop_points_is_over(p) && !p->does_not_fit; p->next++, --*look) {
        if (!is_wanted(p, p->next) || !(point->entry_count = entries_of(p, p->next, point->entries)))
            continue;
        point->first = &w->entries[p->next];
        point->start = rmq_pop_start_of(point->first);
        point->count = 0;
        for (uint32_t i = 0; i < point->entry_count; i++)
            for (uint64_t open = open_bits(w, point->entries[i]); open; open &= open - 1)
                point->offsets[point->count++] = (int64_t)w->entries[point->entries[i]].base_offset + __builtin_ctzll(open);
        return 1;
    }
    return 0;
}

static void note_made(struct rmq_pop_points *p, const uint32_t *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i] < p->entries)
            p->made[entries[i]] = p->windows->entries[entries[i]].check;
}

uint32_t rmq_pop_points_entries(const struct rmq_pop_windows *w) { return w->entries_end ? w->entries_end : 1; }

uint32_t rmq_pop_points_known(struct rmq_pop_points *p, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int leave_out,
                              int64_t *offsets, uint32_t room)
{
    struct rmq_pop_windows *w = p->windows;
    uint32_t window = w->windows[place].id, count = 0;
    uint32_t at = rmq_pop_hash_first(&w->receipts, rmq_pop_receipt_hash(window, start_offset, pop_time_ms));
    for (; at; at = w->receipts.next[at - 1]) {
        const struct rmq_pop_entry *e = &w->entries[at - 1];
        if (e->window != window || e->pop_time_ms != pop_time_ms || rmq_pop_start_of(e) != start_offset)
            continue;
        if (leave_out)
            note_made(p, &(uint32_t){at - 1}, 1);
        for (uint64_t open = open_bits(w, at - 1); open; open &= open - 1, count++)
            if (count < room)
                offsets[count] = (int64_t)e->base_offset + __builtin_ctzll(open);
    }
    return count;
}

static int rank_open(const struct rmq_pop_windows *w, uint32_t entry, uint64_t bit) { return (open_bits(w, entry) & bit) != 0; }

int rmq_pop_points_is_open(const struct rmq_pop_points *p, uint32_t place, int64_t offset)
{
    return rmq_pop_entry_best(p->windows, p->windows->windows[place].id, offset, rank_open) != RMQ_NONE;
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static struct rmq_pop_log_record record_of(const struct rmq_pop_points *p, const struct point *point, uint32_t from, uint32_t count)
{
    uint32_t place = rmq_pop_place_of(p->windows, point->first);
    return (struct rmq_pop_log_record){
        .group = p->groups[place], .topic = p->topics[place], .offsets = point->offsets + from, .count = count,
        .start = from ? point->offsets[from] : point->start, .pop_time_ms = point->first->pop_time_ms,
        .invisible_ms = point->first->invisible_ms, .queue_id = p->windows->windows[place].queue_id,
        .revive_queue = point->first->revive_queue & ~RMQ_POP_CHANGED,
    };
}

static void fill_request(struct rmq_pop_points *p, struct rmq_request *r, const struct rmq_pop_log_record *record)
{
    int64_t due_ms = record->pop_time_ms + record->invisible_ms;
    rmq_pop_log_record_put(&p->room, r, record);
    r->flags |= RMQ_APPEND_FLAG_NO_WAIT; /* one sync follows all of them */
    p->records++;
    p->due_ms = due_ms > p->due_ms ? due_ms : p->due_ms;
}

uint32_t rmq_pop_points_fill(struct rmq_pop_points *p, struct rmq_request *requests, uint32_t room, uint32_t look)
{
    struct point point;
    uint32_t made = 0;
    while (next_point(p, &point, &look)) {
        uint32_t records = (point.count + RMQ_POP_POINT_MESSAGES - 1) / RMQ_POP_POINT_MESSAGES;
        struct rmq_pop_log_record record = record_of(p, &point, 0, 0);
        uint64_t needed = records * rmq_pop_log_record_bytes(&p->room, &record);
        if (records > room - made || needed > p->room.arena_end - p->room.arena_at) {
            p->does_not_fit = !made;
            break;
        }
        for (uint32_t from = 0; from < point.count; from += RMQ_POP_POINT_MESSAGES) {
            uint32_t left = point.count - from;
            record = record_of(p, &point, from, left < RMQ_POP_POINT_MESSAGES ? left : RMQ_POP_POINT_MESSAGES);
            fill_request(p, &requests[made++], &record);
        }
        note_made(p, point.entries, point.entry_count);
        rmq_pop_note_in_log(p->windows, rmq_pop_place_of(p->windows, point.first), point.start, point.first->pop_time_ms);
        p->messages += point.count;
        p->next++;
        look--;
    }
    return made;
}

uint32_t rmq_pop_points_answers(struct rmq_plane *plane, uint32_t port, uint64_t *end, uint32_t *refused)
{
    struct rmq_completion c;
    uint32_t count = 0;
    for (; rmq_port_take(plane, port, &c); count++) {
        if (!c.bytes)
            *refused = c.cause ? c.cause : (uint32_t)c.code;
        else if (c.commit_log_offset + c.bytes > *end)
            *end = c.commit_log_offset + c.bytes;
    }
    return count;
}
