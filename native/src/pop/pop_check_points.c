/* pop_check_points.c: open messages as RocketMQ's check points. Twin: ringmq/pop/check_points_twin.py. */
#include "pop/pop_check_points.h"

#include <string.h>

#include "base/number_text.h"
#include "pop/pop_entries.h"

#define ENTRIES RMQ_POP_ENTRY_MESSAGES /* of one pop */
#define NUMBERS_BYTES 1600             /* all of a record but its names */

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

/* --- text ----------------------------------------------------------------------------------------------------------------- */

struct writer {
    const struct rmq_pop_points *p;
    uint8_t *at;
};

static void put(struct writer *t, const void *text, size_t length)
{
    memcpy(t->at, text, length);
    t->at += length;
}
#define PUT(t, text) put(t, text, sizeof(text) - 1)

static void put_number(struct writer *t, int64_t value) { t->at = rmq_put_decimal(t->at, value); }
static void put_json(struct writer *t, const struct rmq_pop_point_text *of)
{
    put(t, t->p->texts + of->json_at, of->json_length);
}
static void put_raw(struct writer *t, const struct rmq_pop_point_text *of) { put(t, t->p->texts + of->at, of->length); }

static void put_body(struct writer *t, const struct point *point, uint32_t place, uint32_t queue_id, int64_t start, uint32_t from,
                     uint32_t count)
{
    int64_t pop_ms = point->first->pop_time_ms, invisible_ms = point->first->invisible_ms;
    PUT(t, "{\"bm\":0,\"bn\":\"");
    put_json(t, &t->p->broker);
    PUT(t, "\",\"c\":\"");
    put_json(t, &t->p->groups[place]);
    PUT(t, "\",\"d\":");
    for (uint32_t i = 0; i < count; i++) {
        put(t, i ? "," : "[", 1);
        put_number(t, point->offsets[from + i] - start);
    }
    PUT(t, "],\"it\":");
    put_number(t, invisible_ms);
    PUT(t, ",\"n\":");
    put_number(t, count);
    PUT(t, ",\"pt\":");
    put_number(t, pop_ms);
    PUT(t, ",\"q\":");
    put_number(t, queue_id);
    PUT(t, ",\"reviveTime\":");
    put_number(t, pop_ms + invisible_ms);
    PUT(t, ",\"ro\":0,\"so\":");
    put_number(t, start);
    PUT(t, ",\"t\":\"");
    put_json(t, &t->p->topics[place]);
    PUT(t, "\"}");
}

static void put_key(struct writer *t, const struct point *point, uint32_t place, uint32_t queue_id, int64_t start)
{
    PUT(t, "\002UNIQ_KEY\001");
    put_raw(t, &t->p->topics[place]);
    PUT(t, "@");
    put_number(t, queue_id);
    PUT(t, "@");
    put_number(t, start);
    PUT(t, "@");
    put_raw(t, &t->p->groups[place]);
    PUT(t, "@");
    put_number(t, point->first->pop_time_ms);
    PUT(t, "@");
    put_raw(t, &t->p->broker);
    PUT(t, "@ck\002TAGS\001ck\002");
}

static void put_pairs(struct writer *t, const struct point *point, uint32_t place, uint32_t queue_id, int64_t start,
                      int64_t deliver_ms, int is_timed, uint32_t revive_queue)
{
    if (is_timed) {
        PUT(t, "REAL_TOPIC\001");
        put_raw(t, &t->p->revive_topic);
        PUT(t, "\002");
    }
    PUT(t, "TIMER_DELIVER_MS\001");
    put_number(t, deliver_ms);
    put_key(t, point, place, queue_id, start);
    if (is_timed) {
        int64_t over = deliver_ms % t->p->precision_ms;
        PUT(t, "TIMER_OUT_MS\001");
        put_number(t, deliver_ms - (over ? over : t->p->precision_ms));
        PUT(t, "\002REAL_QID\001");
        put_number(t, revive_queue);
        PUT(t, "\002");
    }
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_max(const struct rmq_pop_points *p, uint32_t place)
{
    uint64_t names = (uint64_t)p->groups[place].json_length + p->groups[place].length + p->topics[place].json_length +
                     p->topics[place].length + p->broker.json_length + p->broker.length + p->revive_topic.length;
    return names + NUMBERS_BYTES;
}

void rmq_pop_points_origin(const struct rmq_pop_points *p, struct rmq_request *request)
{
    request->kind = RMQ_APPEND_SINGLE;
    request->flags = (uint16_t)(RMQ_APPEND_FLAG_COPY | RMQ_APPEND_FLAG_NO_WAIT | (p->born_v6 ? RMQ_APPEND_FLAG_BORN_V6 : 0));
    request->born_time_ms = p->now_ms;
    request->born_port = p->born_port;
    memcpy(request->born_host, p->born_host, sizeof request->born_host);
}

static void fill_request(struct rmq_pop_points *p, struct rmq_request *r, const struct point *point, uint32_t from,
                         uint32_t count)
{
    uint32_t place = rmq_pop_place_of(p->windows, point->first), queue_id = p->windows->windows[place].queue_id;
    int64_t start = from ? point->offsets[from] : point->start;
    int64_t deliver_ms = point->first->pop_time_ms + point->first->invisible_ms - RMQ_POP_POINT_EARLIER_MS;
    uint32_t revive = (point->first->revive_queue & ~RMQ_POP_CHANGED) % p->revive_queues;
    int is_timed = p->timer_slot != RMQ_NONE && deliver_ms > p->now_ms;
    struct writer t = {p, p->arena + p->arena_at};
    *r = (struct rmq_request){.body_at = p->arena_at};
    rmq_pop_points_origin(p, r);
    put_body(&t, point, place, queue_id, start, from, count);
    r->body_length = (uint32_t)(t.at - p->arena - r->body_at);
    r->properties_at = r->body_at + r->body_length;
    put_pairs(&t, point, place, queue_id, start, deliver_ms, is_timed, p->revive_ids[revive]);
    r->properties_length = (uint16_t)(t.at - p->arena - r->properties_at);
    r->topic_id = is_timed ? p->timer_topic_id : p->revive_topic_id;
    r->queue_slot = is_timed ? p->timer_slot : p->revive_slots[revive];
    r->queue_id = is_timed ? 0 : p->revive_ids[revive];
    p->arena_at = (uint64_t)(t.at - p->arena);
    p->records++;
    if (deliver_ms + RMQ_POP_POINT_EARLIER_MS > p->due_ms)
        p->due_ms = deliver_ms + RMQ_POP_POINT_EARLIER_MS;
}

uint32_t rmq_pop_points_fill(struct rmq_pop_points *p, struct rmq_request *requests, uint32_t room, uint32_t look)
{
    struct point point;
    uint32_t made = 0;
    while (next_point(p, &point, &look)) {
        uint32_t records = (point.count + RMQ_POP_POINT_MESSAGES - 1) / RMQ_POP_POINT_MESSAGES;
        uint64_t needed = records * bytes_max(p, rmq_pop_place_of(p->windows, point.first));
        if (records > room - made || needed > p->arena_end - p->arena_at) {
            p->does_not_fit = !made;
            break;
        }
        for (uint32_t from = 0; from < point.count; from += RMQ_POP_POINT_MESSAGES) {
            uint32_t left = point.count - from;
            fill_request(p, &requests[made++], &point, from, left < RMQ_POP_POINT_MESSAGES ? left : RMQ_POP_POINT_MESSAGES);
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
