/* Fields of a frame -> struct rmq_send, property pairs scanned. */
#include "codec/send_decode.h"

#include <string.h>

#include "codec/json_text.h"
#include "codec/pair_separators.h"

#define CODE_SEND 10

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

/* One field; 0 = not of its type. Inlined, a send of 100 bytes is decoded in 237 ns, else in 260 ns. */
static inline __attribute__((always_inline)) int take_field(struct rmq_send *s, uint8_t letter, const struct rmq_ext_entry *e)
{
    switch (letter) {
    case 'a':
        s->seen |= SEEN_GROUP;
        return 1;
    case 'b':
        s->seen |= SEEN_TOPIC;
        return rmq_field_text(e, s->topic_text, sizeof s->topic_text, &s->topic, &s->topic_length);
    case 'e':
        s->seen |= SEEN_QUEUE;
        return rmq_field_int32(e, &s->queue_id);
    case 'f':
        s->seen |= SEEN_SYS_FLAG;
        return rmq_field_int32(e, &s->sys_flag);
    case 'g':
        s->seen |= SEEN_BORN;
        return rmq_field_int64(e, &s->born_time_ms);
    case 'h':
        s->seen |= SEEN_FLAG;
        return rmq_field_int32(e, &s->flag);
    case 'i':
        s->properties = (uint8_t *)(uintptr_t)e->value;
        s->properties_length = e->value_length;
        s->properties_escaped = e->escaped == RMQ_TEXT_ESCAPED;
        return e->escaped != RMQ_TEXT_BARE || rmq_bare_is_text(e);
    case 'j':
        return rmq_field_int32(e, &s->reconsume_times);
    case 'm':
        s->batch = rmq_field_is_true(e);
        return 1;
    default:
        return 1;
    }
}

int rmq_send_decode(const struct rmq_frame_header *h, struct rmq_send *s)
{
    const struct rmq_ext_entry *e = h->ext, *end = e + h->ext_count;
    memset(s, 0, offsetof(struct rmq_send, reserved));
    if (h->code == CODE_SEND) {
        for (; e < end; e++)
            if (!take_field(s, letter_of(e->key, e->key_length), e))
                break;
    } else {
        for (; e < end; e++)
            if (e->key_length == 1 && !take_field(s, e->key[0], e))
                break;
    }
    s->unread = e < end ? e : NULL;
    return !s->unread && s->seen == SEEN_ALL;
}

int rmq_send_unescape(struct rmq_send *s, uint8_t *to)
{
    if (s->properties_length > RMQ_PROPERTIES_JSON_MAX)
        return 0;
    int64_t length = rmq_json_unescape_to(to, s->properties, s->properties_length);
    s->properties = to;
    s->properties_length = length < 0 ? 0 : (uint32_t)length;
    return length >= 0;
}

/* --- pairs ------------------------------------------------------------------------------------------------------------ */

#define NAME_IS(literal) (n == sizeof(literal) - 1 && !memcmp(name, literal, sizeof(literal) - 1))

enum weight { STORED, DROPPED, RESERVED };

/* The meaning of a pair. DROPPED: the broker adds this name itself, or only a broker may write it. */
static inline enum weight weigh_pair(struct rmq_send *s, const uint8_t *name, uint32_t n, const uint8_t *value, uint32_t value_length)
{
    switch (name[0]) {
    case 'U':
        if (NAME_IS("UNIQ_KEY")) {
            s->uniq_key = value;
            s->uniq_key_length = value_length;
        }
        return STORED;
    case 'W':
        if (NAME_IS("WAIT"))
            s->no_wait = value_length == 5 && !memcmp(value, "false", 5);
        return STORED;
    case 'T':
        if (NAME_IS("TRACE_ON"))
            return DROPPED;
        return NAME_IS("TRAN_MSG") || (n > 6 && !memcmp(name, "TIMER_", 6)) ? RESERVED : STORED;
    case 'M':
        return NAME_IS("MSG_REGION") ? DROPPED : STORED;
    case 'C':
        return NAME_IS("CLUSTER") ? DROPPED : STORED;
    case 'D':
        return NAME_IS("DELAY") ? RESERVED : STORED;
    case 'I':
        return n >= 5 && !memcmp(name, "INNER", 5) ? RESERVED : STORED;
    case 'P':
        return NAME_IS("POP_CK") ? DROPPED : STORED;
    default:
        return STORED;
    }
}

int rmq_send_reserves(const uint8_t *name, uint32_t length)
{
    struct rmq_send none;
    return length && weigh_pair(&none, name, length, name, 0) == RESERVED;
}

/* No name, no 01 or no value: dropped, as stock's decoder does. */
static inline enum weight weigh(struct rmq_send *s, const uint8_t *at, const uint8_t *split, const uint8_t *stop)
{
    if (split > at && split + 1 < stop)
        return weigh_pair(s, at, (uint32_t)(split - at), split + 1, (uint32_t)(stop - split - 1));
    return DROPPED;
}

static inline uint8_t *find_mark(uint8_t *at, uint8_t *end) { return at + (rmq_find_mark(at, end) - at); }

/* Finds the ends of name and value of the pair at `at`; a value may hold 01. 0 = they hold a NUL. */
static inline int find_ends(uint8_t *at, uint8_t *end, uint8_t **split, uint8_t **stop)
{
    uint8_t *mark = find_mark(at, end);
    *split = mark;
    if (mark < end && *mark == 1)
        while ((mark = find_mark(mark + 1, end)) < end && *mark == 1)
            ;
    *stop = mark;
    return mark == end || *mark;
}

static void note_reserved(struct rmq_send *s, const uint8_t *at, const uint8_t *split, const uint8_t *stop)
{
    if (s->reserved_count > RMQ_RESERVED_PAIRS_MAX)
        return;
    if (s->reserved_count < RMQ_RESERVED_PAIRS_MAX)
        s->reserved[s->reserved_count] = (struct rmq_reserved_pair){at, split + 1, (uint32_t)(split - at), (uint32_t)(stop - split - 1)};
    s->reserved_count++;
}

int rmq_send_scan(struct rmq_send *s)
{
    uint8_t *at = s->properties, *end = at + s->properties_length, *split, *stop;
    while (at < end) {
        if (!find_ends(at, end, &split, &stop))
            return 0;
        enum weight weight = weigh(s, at, split, stop);
        if (weight == RESERVED)
            note_reserved(s, at, split, stop);
        s->drops |= weight == DROPPED;
        at = stop < end ? stop + 1 : end;
    }
    return 1;
}

static int is_named(const uint8_t *name, uint32_t n, const struct rmq_cut_name *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (names[i].length == n && !memcmp(names[i].name, name, n))
            return 1;
    return 0;
}

void rmq_send_cut(struct rmq_send *s, const struct rmq_cut_name *names, uint32_t count)
{
    uint8_t *at = s->properties, *end = at + s->properties_length, *to = at, *split, *stop;
    while (at < end && find_ends(at, end, &split, &stop)) {
        uint8_t *next = stop < end ? stop + 1 : end;
        enum weight weight = weigh(s, at, split, stop);
        if (weight != DROPPED && !is_named(at, (uint32_t)(split - at), names, count)) {
            memmove(to, at, (size_t)(next - at));
            to += next - at;
        }
        at = next;
    }
    s->properties_length = (uint32_t)(to - s->properties);
    s->uniq_key = NULL; /* it may have moved */
    s->reserved_count = 0;
    rmq_send_scan(s);
}
