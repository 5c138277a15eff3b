/* A send (10, 310, 320) -> a slot of the request ring. Whatever is not the plain case goes cold, unchanged. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "latency.h"
#include "pair_marks.h"
#include "reader_state.h"
#include "record.h"

#define PROPERTIES_JSON_MAX (6 * RMQ_PROPERTIES_BYTES_MAX)
#define UNIQ_NAME "UNIQ_KEY"
#define BAD_SYS_FLAGS (RMQ_SYS_TRANSACTION_MASK | 0xC0)
#define HOST_SYS_FLAGS (RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6)

struct send {
    const uint8_t *topic;
    uint8_t *properties;
    uint32_t topic_length, properties_length;
    uint32_t seen;             /* SEEN_* */
    uint16_t properties_escaped;
    int32_t queue_id, sys_flag, flag, reconsume_times;
    int64_t born_time_ms;
    int batch;
    uint32_t topic_id, queue_slot;
    const uint8_t *uniq_key;
    uint32_t uniq_key_length;
    int no_wait;
    int drops;                 /* holds pairs that the broker adds itself, or broken ones */
};

enum { SEEN_GROUP = 1, SEEN_TOPIC = 2, SEEN_QUEUE = 4, SEEN_SYS_FLAG = 8, SEEN_BORN = 16, SEEN_FLAG = 32, SEEN_ALL = 63 };

/* Long field names (code 10) -> the letters of 310 and 320; 0 = of no interest. */
static uint8_t letter_of(const uint8_t *key, uint32_t length)
{
    static const struct {
        const char *name;
        uint8_t length, letter;
    } names[] = {{"producerGroup", 13, 'a'}, {"topic", 5, 'b'}, {"queueId", 7, 'e'}, {"sysFlag", 7, 'f'},
                 {"bornTimestamp", 13, 'g'}, {"flag", 4, 'h'}, {"properties", 10, 'i'}, {"reconsumeTimes", 14, 'j'},
                 {"batch", 5, 'm'}};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].length == length && !memcmp(names[i].name, key, length))
            return names[i].letter;
    return 0;
}

static int is_true(const struct rmq_ext_entry *e)
{
    static const char word[4] = {'t', 'r', 'u', 'e'};
    if (e->value_length != 4)
        return 0;
    for (int i = 0; i < 4; i++)
        if ((e->value[i] | 0x20) != word[i])
            return 0;
    return 1;
}

/* One field; 0 = not of its type. */
static int take_field(struct send *s, uint8_t letter, const struct rmq_ext_entry *e)
{
    switch (letter) {
    case 'a':
        s->seen |= SEEN_GROUP;
        return 1;
    case 'b':
        s->topic = e->value;
        s->topic_length = e->value_length;
        s->seen |= SEEN_TOPIC;
        return !e->escaped;
    case 'e':
        s->seen |= SEEN_QUEUE;
        return rmq_text_int32(e->value, e->value_length, &s->queue_id);
    case 'f':
        s->seen |= SEEN_SYS_FLAG;
        return rmq_text_int32(e->value, e->value_length, &s->sys_flag);
    case 'g':
        s->seen |= SEEN_BORN;
        return rmq_text_int64(e->value, e->value_length, &s->born_time_ms);
    case 'h':
        s->seen |= SEEN_FLAG;
        return rmq_text_int32(e->value, e->value_length, &s->flag);
    case 'i':
        s->properties = (uint8_t *)(uintptr_t)e->value;
        s->properties_length = e->value_length;
        s->properties_escaped = e->escaped;
        return 1;
    case 'j':
        return rmq_text_int32(e->value, e->value_length, &s->reconsume_times);
    case 'm':
        s->batch = is_true(e);
        return 1;
    default:
        return 1;
    }
}

static int decode(const struct rmq_frame_header *h, struct send *s)
{
    for (uint32_t i = 0; i < h->ext_count; i++) {
        const struct rmq_ext_entry *e = &h->ext[i];
        uint8_t letter = h->code == RMQ_CODE_SEND ? letter_of(e->key, e->key_length) : e->key_length == 1 ? e->key[0] : 0;
        if (letter && !take_field(s, letter, e))
            return 0;
    }
    return s->seen == SEEN_ALL;
}

/* Topic id and queue slot from the published tables; 0 = control has to look at it. */
static int resolve(struct rmq_reader *r, struct rmq_connection *c, struct send *s)
{
    if (s->topic_length > RMQ_NAME_MAX)
        return 0;
    struct rmq_topic *topic = rmq_topic_at(r->plane, c->topic_id);
    uint64_t config = c->topic_id ? rmq_load(&topic->config) : 0;
    if (!(config >> 40 & RMQ_TOPIC_LIVE) || topic->name_length != s->topic_length ||
        memcmp(topic->name, s->topic, s->topic_length)) {
        uint32_t id = rmq_topic_find(r->plane, (const char *)s->topic, s->topic_length);
        if (id == RMQ_NONE)
            return 0;
        c->topic_id = id;
        config = rmq_load(&rmq_topic_at(r->plane, id)->config);
    }
    s->topic_id = c->topic_id;
    uint32_t flags = (uint32_t)(config >> 40), reads = config >> 8 & 0xffff, writes = config >> 24 & 0xffff;
    if ((flags & RMQ_TOPIC_SEND_COLD && !r->judged) || !(flags & RMQ_TOPIC_LIVE) || !writes || (s->batch && s->topic_length > 127))
        return 0;
    if (s->queue_id < 0)
        s->queue_id = (int32_t)(r->round_robin++ % writes);
    if ((uint32_t)s->queue_id >= (reads > writes ? reads : writes))
        return 0;
    s->queue_slot = rmq_queue_find(r->plane, s->topic_id, (uint32_t)s->queue_id);
    return s->queue_slot != RMQ_NONE;
}

#define NAME_IS(literal) (n == sizeof(literal) - 1 && !memcmp(name, literal, sizeof(literal) - 1))

/* What a pair means here: -1 = control decides, 1 = the broker adds this name itself, 0 = stored as it is. */
static int weigh_pair(struct send *s, const uint8_t *name, uint32_t n, const uint8_t *value, uint32_t value_length)
{
    switch (name[0]) {
    case 'U':
        if (NAME_IS(UNIQ_NAME)) {
            s->uniq_key = value;
            s->uniq_key_length = value_length;
        }
        return 0;
    case 'W':
        if (NAME_IS("WAIT"))
            s->no_wait = value_length == 5 && !memcmp(value, "false", 5);
        return 0;
    case 'T':
        if (NAME_IS("TRACE_ON"))
            return 1;
        return NAME_IS("TRAN_MSG") || (n > 6 && !memcmp(name, "TIMER_", 6)) ? -1 : 0;
    case 'M':
        return NAME_IS("MSG_REGION");
    case 'C':
        return NAME_IS("CLUSTER");
    case 'D':
        return NAME_IS("DELAY") ? -1 : 0;
    case 'I':
        return n >= 5 && !memcmp(name, "INNER", 5) ? -1 : 0;
    case 'P':
        return NAME_IS("POP_CK") ? -1 : 0;
    default:
        return 0;
    }
}

static inline uint8_t *find_mark(uint8_t *at, uint8_t *end) { return at + (rmq_find_mark(at, end) - at); }

/* Walks the pairs; with `remove` those that the broker adds itself and broken ones are cut out in place. A broken pair must
 * not be stored: recovery takes it, like a NUL, for the mark of a torn record. 0 = control decides, unless it has (`judged`):
 * then what it let pass is stored, but for POP_CK, which no client may send. */
static int scan(struct send *s, int remove, int judged)
{
    uint8_t *at = s->properties, *end = at + s->properties_length, *to = at;
    while (at < end) {
        uint8_t *split = find_mark(at, end), *stop = split;
        if (stop < end && *stop == 1)
            while ((stop = find_mark(stop + 1, end)) < end && *stop == 1)
                ; /* a value may hold 01 */
        if (stop < end && !*stop)
            return 0;
        uint8_t *next = stop < end ? stop + 1 : end;
        int weight = 1; /* no name, no 01 or no value: dropped, as stock's decoder does */
        if (split > at && split + 1 < stop)
            weight = weigh_pair(s, at, (uint32_t)(split - at), split + 1, (uint32_t)(stop - split - 1));
        if (weight < 0) {
            if (!judged)
                return 0;
            weight = at[0] == 'P';
        }
        s->drops |= weight;
        if (remove && !weight) {
            memmove(to, at, (size_t)(next - at));
            to += next - at;
        }
        at = next;
    }
    if (remove)
        s->properties_length = (uint32_t)(to - s->properties);
    return 1;
}

/* --- UNIQ_KEY: address, pid, a number of this process, ms since the month began, counter; upper-case hex ------------- */

int rmq_uniq_open(struct rmq_reader *r)
{
    uint8_t raw[32];
    uint32_t n = r->settings->store_host_bytes == 16 ? 16 : 4, pid = (uint32_t)getpid();
    uint32_t mark = (uint32_t)rmq_mono_ns() ^ r->generation << 24 ^ r->index << 16;
    memcpy(raw, r->settings->store_host, n);
    raw[n] = (uint8_t)(pid >> 8);
    raw[n + 1] = (uint8_t)pid;
    memcpy(raw + n + 2, &mark, 4);
    memcpy(r->uniq_prefix, UNIQ_NAME "\x01", 9);
    rmq_hex_put((uint8_t *)r->uniq_prefix + 9, raw, n + 6);
    r->uniq_prefix_length = 9 + 2 * (n + 6);
    time_t now = time(NULL);
    struct tm month;
    gmtime_r(&now, &month);
    month.tm_mday = 1;
    month.tm_hour = month.tm_min = month.tm_sec = 0;
    r->uniq_month_ms = (int64_t)timegm(&month) * 1000;
    return 0;
}

static uint32_t uniq_pair_length(const struct rmq_reader *r) { return r->uniq_prefix_length + 12 + 1; }

static void put_uniq_pair(struct rmq_reader *r, uint8_t *to)
{
    uint32_t ms = (uint32_t)(rmq_wall_ms() - r->uniq_month_ms), count = r->uniq_counter++;
    uint8_t raw[6] = {(uint8_t)(ms >> 24), (uint8_t)(ms >> 16), (uint8_t)(ms >> 8), (uint8_t)ms, (uint8_t)(count >> 8), (uint8_t)count};
    memcpy(to, r->uniq_prefix, r->uniq_prefix_length);
    rmq_hex_put(to + r->uniq_prefix_length, raw, 6);
    to[r->uniq_prefix_length + 12] = 2;
}

/* --- the properties, as they will be stored --------------------------------------------------------------------------- */

/* Checks everything, changes nothing for good: undoing JSON escapes is taken back when control has to decide. */
static int read_properties(const struct rmq_reader *r, struct send *s)
{
    uint32_t escaped_length = s->properties_length;
    uint8_t saved[PROPERTIES_JSON_MAX];
    if (s->properties_escaped) {
        if (escaped_length > sizeof saved)
            return 0;
        memcpy(saved, s->properties, escaped_length);
        int64_t length = rmq_json_unescape(s->properties, escaped_length);
        s->properties_length = length < 0 ? 0 : (uint32_t)length;
        if (length < 0)
            goto cold;
    }
    if (!scan(s, 0, r->judged) || s->properties_length + (s->uniq_key || s->batch ? 1 : 1 + uniq_pair_length(r)) +
                               r->settings->additions_length > RMQ_PROPERTIES_BYTES_MAX)
        goto cold;
    return 1;
cold:
    if (s->properties_escaped)
        memcpy(s->properties, saved, escaped_length);
    return 0;
}

/* From here on nothing goes cold any more: the header bytes in front of and behind the properties are ours. */
static void finish_properties(struct send *s)
{
    if (s->drops) {
        s->uniq_key = NULL;
        scan(s, 1, 1);
        scan(s, 0, 1); /* the UNIQ_KEY may have moved */
    }
    if (s->properties_length && s->properties[s->properties_length - 1] != 2) {
        memmove(s->properties - 1, s->properties, s->properties_length); /* a quote or length byte stood there */
        s->properties--;
        if (s->uniq_key)
            s->uniq_key--;
        s->properties[s->properties_length++] = 2;
    }
}

/* Room for a UNIQ_KEY pair among the header bytes that are no longer needed; NULL = none. */
static uint8_t *header_room(const struct rmq_frame_header *h, struct send *s, uint8_t *frame, uint32_t bytes)
{
    uint8_t *header = frame + 8, *end = header + h->header_length;
    if (!s->properties_length)
        return h->header_length >= bytes ? header : NULL;
    if ((uint64_t)(s->properties - header) >= bytes)
        return header;
    if ((uint64_t)(end - s->properties) < s->properties_length + bytes) {
        memmove(header, s->properties, s->properties_length);
        s->properties = header;
    }
    uint8_t *behind = s->properties + s->properties_length;
    return (uint64_t)(end - behind) >= bytes ? behind : NULL;
}

/* --- the request -------------------------------------------------------------------------------------------------------- */

static void fill_request(struct rmq_reader *r, const struct rmq_connection *c, const struct send *s, struct rmq_request *q,
                         const struct rmq_pending *p, const uint8_t *extra, uint8_t *body, uint32_t body_length)
{
    q->body_at = rmq_arena_offset(r, body);
    q->properties_at = s->properties_length ? rmq_arena_offset(r, s->properties) : 0;
    q->extra_at = extra ? rmq_arena_offset(r, extra) : 0;
    q->body_length = body_length;
    q->properties_length = (uint16_t)s->properties_length;
    q->extra_length = extra ? (uint16_t)uniq_pair_length(r) : 0;
    q->pending = rmq_pending_id(r, p);
    q->producer_generation = r->generation;
    q->topic_id = s->topic_id;
    q->queue_slot = s->queue_slot;
    q->queue_id = (uint32_t)s->queue_id;
    q->flag = s->flag;
    q->sys_flag = s->sys_flag & ~HOST_SYS_FLAGS;
    q->reconsume_times = s->reconsume_times;
    q->born_time_ms = s->born_time_ms;
    q->prepared_transaction_offset = 0;
    q->received_mono_ns = p->received_ns;
    memcpy(q->born_host, c->host, sizeof q->born_host);
    q->born_port = c->port;
    q->kind = s->batch ? RMQ_APPEND_BATCH : RMQ_APPEND_SINGLE;
    q->flags = (uint16_t)((s->no_wait ? RMQ_APPEND_FLAG_NO_WAIT : 0) | (c->v6 ? RMQ_APPEND_FLAG_BORN_V6 : 0));
}

/* Who keeps the frame until write has answered. Few buffers left: it moves to a block, so that its neighbours do not wait for
 * it; a large one only while there are many blocks. 0 = no block, and the last buffers nobody keeps. */
static int keep(struct rmq_reader *r, struct send *s, uint8_t **frame, uint32_t length, struct rmq_hold *hold, struct rmq_hold *kept)
{
    if (hold->buffer != RMQ_NONE && rmq_buffers_few(r)) {
        uint8_t *old = *frame;
        uint8_t *to = length <= r->buffer_bytes / 4 || rmq_blocks_many(r) ? rmq_block_take(r, length, kept) : NULL;
        if (to) {
            memcpy(to, old, length);
            *frame = to;
            s->properties = s->properties_length ? to + (s->properties - old) : NULL;
            s->uniq_key = s->uniq_key ? to + (s->uniq_key - old) : NULL;
            return 1;
        }
        if (rmq_buffers_last(r))
            return 0;
    }
    rmq_hold_keep(r, hold, kept);
    return 1;
}

/* When it was received: at the beginning of this round, or of the one in which it found no room. */
static void stamp(struct rmq_reader *r, struct rmq_connection *c, struct rmq_pending *p)
{
    p->received_ns = c->stalled_ns ? c->stalled_ns : r->now_ns;
    p->queued_us = rmq_latency_us(r->now_ns - p->received_ns);
    if (c->stalled_ns)
        rmq_latency_count(&r->header->latency[r->role_number][RMQ_READ_LATENCY_QUEUED], r->now_ns - c->stalled_ns, 1);
    else
        r->fresh++;
    c->stalled_ns = 0;
}

static void push(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, struct send *s, uint8_t *frame,
                 uint32_t length, struct rmq_pending *p)
{
    uint8_t *extra = NULL;
    if (!s->uniq_key && !s->batch) {
        extra = header_room(h, s, frame, uniq_pair_length(r));
        if (extra) {
            put_uniq_pair(r, extra);
            s->uniq_key = extra + sizeof UNIQ_NAME;
            s->uniq_key_length = uniq_pair_length(r) - (uint32_t)sizeof UNIQ_NAME - 1;
        }
    }
    RMQ_CRASH("reader-properties-ready");
    uint8_t *body = frame + 8 + h->header_length;
    uint32_t body_length = length - 8 - h->header_length;
    p->uniq_key_at = s->uniq_key ? rmq_arena_offset(r, s->uniq_key) : 0;
    p->uniq_key_length = (uint16_t)s->uniq_key_length;
    p->batch_at = s->batch ? rmq_arena_offset(r, body) : 0;
    p->batch_length = s->batch ? body_length : 0;
    p->queue_id = s->queue_id;
    p->topic_id = s->topic_id;
    p->frame_length = length;
    stamp(r, c, p);
    struct rmq_request *q = rmq_ring_slot(r->plane->base, r->requests, r->request_head);
    fill_request(r, c, s, q, p, extra, body, body_length);
    r->request_head++;
    RMQ_CRASH("reader-request-filled");
}

static enum rmq_fate refuse(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, const char *remark)
{
    rmq_answer_error(r, c, h, RMQ_ANSWER_BUSY, remark);
    r->counters[RMQ_READ_OVERLOAD]++;
    return RMQ_FATE_DONE;
}

enum rmq_fate rmq_append_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                               uint32_t length, struct rmq_hold *hold)
{
    struct send s;
    memset(&s, 0, sizeof s);
    uint32_t body_length = length - 8 - h->header_length;
    if (!decode(h, &s) || s.sys_flag & BAD_SYS_FLAGS || !body_length || body_length > r->settings->message_bytes_max ||
        h->header_length < uniq_pair_length(r) || !resolve(r, c, &s))
        return RMQ_FATE_COLD;
    if (r->takes_no_sends || r->in_flight >= r->in_flight_max || !rmq_ring_room(r->requests, r->request_head)) {
        if (r->refuses)
            return refuse(r, c, h, "[OVERLOAD]too many requests under way, try again later");
        c->stalled_ns = c->stalled_ns ? c->stalled_ns : r->now_ns;
        return RMQ_FATE_STALL;
    }
    if (!read_properties(r, &s))
        return RMQ_FATE_COLD;
    finish_properties(&s); /* from here on the frame is changed: it cannot stall any more */
    struct rmq_hold kept;
    if (!keep(r, &s, &frame, length, hold, &kept))
        return refuse(r, c, h, "[OVERLOAD]too many bytes under way, try again later");
    struct rmq_pending *p = rmq_pending_take(r, RMQ_PENDING_APPEND, c, h);
    if (!p) { /* cannot be: the table holds more than in_flight_max */
        rmq_hold_release(r, &kept);
        return refuse(r, c, h, "[OVERLOAD]too many requests under way, try again later");
    }
    p->hold = kept;
    push(r, c, h, &s, frame, length, p);
    r->counters[RMQ_READ_APPENDS]++;
    return RMQ_FATE_DONE;
}

void rmq_append_publish(struct rmq_reader *r)
{
    if (r->request_head == rmq_load_relaxed(&r->requests->head))
        return;
    if (r->fresh)
        rmq_latency_count(&r->header->latency[r->role_number][RMQ_READ_LATENCY_QUEUED], rmq_mono_ns() - r->now_ns, r->fresh);
    r->fresh = 0;
    rmq_store(&r->requests->head, r->request_head);
    RMQ_CRASH("reader-requests-published");
    rmq_role_wake(r->plane, RMQ_ROLE_WRITE);
}
