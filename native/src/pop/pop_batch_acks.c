/* pop_batch_acks.c: BATCH_ACK (200151). Its body is JSON. C reads the regular shape, which clients write: the short names, plain
 * texts, each field once. Everything else is odd, and Python reads it. Twin: ringmq/pop/batch_acks.py.
 */
#include <string.h>

#include "codec/answer.h"
#include "codec/frame_header.h"
#include "pop/pop_desk.h"

#define NO_MESSAGE 208
#define ANSWER_BYTES 512u

struct text {
    const uint8_t *at;
    uint32_t length;
};

/* One group of acknowledgements. */
struct group {
    struct text bits, consumer_group, topic;
    int64_t invisible_ms, pop_time_ms, start_offset;
    int32_t queue_id, revive_queue;
    uint32_t flag, seen;
};

struct scanner {
    const uint8_t *at, *end;
    int failed;
};

static void pass_blanks(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

/* 1 if the next character is this one, which is passed then. */
static int next_is(struct scanner *s, uint8_t c)
{
    pass_blanks(s);
    if (s->at == s->end || *s->at != c)
        return 0;
    s->at++;
    return 1;
}

static void expect(struct scanner *s, uint8_t c) { s->failed |= !next_is(s, c); }

/* A text of printable ASCII without escapes. */
static struct text read_text(struct scanner *s)
{
    expect(s, '"');
    const uint8_t *from = s->at;
    while (s->at < s->end && *s->at >= 0x20 && *s->at < 0x7f && *s->at != '"' && *s->at != '\\')
        s->at++;
    struct text text = {from, (uint32_t)(s->at - from)};
    if (s->at == s->end || *s->at++ != '"')
        s->failed = 1;
    return text;
}

/* A number in its shortest form. */
static int64_t read_number(struct scanner *s)
{
    int64_t number = 0;
    pass_blanks(s);
    const uint8_t *from = s->at;
    while (s->at < s->end && (*s->at == '-' || (*s->at >= '0' && *s->at <= '9')))
        s->at++;
    uint32_t length = (uint32_t)(s->at - from);
    s->failed |= !rmq_text_int64(from, length, &number) || (length > 1 && *from == '0') || (length > 2 && *from == '-' && from[1] == '0');
    return number;
}

static int32_t read_int(struct scanner *s)
{
    int64_t number = read_number(s);
    s->failed |= number != (int32_t)number;
    return (int32_t)number;
}

static uint32_t read_flag(struct scanner *s)
{
    struct text text = read_text(s);
    s->failed |= text.length != 1 || *text.at < '0' || *text.at > '2';
    return s->failed ? 0 : (uint32_t)(*text.at - '0');
}

static int is_named(struct text name, const char *wanted) { return name.length == strlen(wanted) && !memcmp(name.at, wanted, name.length); }

static uint32_t read_field(struct scanner *s, struct group *g, struct text name)
{
    if (is_named(name, "b"))
        return g->bits = read_text(s), 1;
    if (is_named(name, "c"))
        return g->consumer_group = read_text(s), 2;
    if (is_named(name, "it"))
        return g->invisible_ms = read_number(s), 4;
    if (is_named(name, "pt"))
        return g->pop_time_ms = read_number(s), 8;
    if (is_named(name, "q"))
        return g->queue_id = read_int(s), 16;
    if (is_named(name, "r"))
        return g->flag = read_flag(s), 32;
    if (is_named(name, "rq"))
        return g->revive_queue = read_int(s), 64;
    if (is_named(name, "so"))
        return g->start_offset = read_number(s), 128;
    if (is_named(name, "t"))
        return g->topic = read_text(s), 256;
    s->failed = 1;
    return 0;
}
#define ALL_FIELDS 511u

static void read_group(struct scanner *s, struct group *g)
{
    *g = (struct group){.seen = 0};
    expect(s, '{');
    do {
        struct text name = read_text(s);
        expect(s, ':');
        uint32_t bit = s->failed ? 0 : read_field(s, g, name);
        s->failed |= !bit || (g->seen & bit);
        g->seen |= bit;
    } while (!s->failed && next_is(s, ','));
    expect(s, '}');
    s->failed |= g->seen != ALL_FIELDS || g->consumer_group.length > RMQ_POP_NAME_BYTES_MAX || g->topic.length > RMQ_POP_NAME_BYTES_MAX;
}

/* Base64 with padding. Returns the bytes, or -1: it is not well formed, or has more than `room`. */
static int64_t read_base64(struct text text, uint8_t *to, uint32_t room)
{
    uint32_t bits = 0, count = 0, length = text.length, bytes = 0;
    while (length && text.at[length - 1] == '=' && text.length - length < 2)
        length--;
    if (text.length % 4 || (uint64_t)length * 3 / 4 > room)
        return -1;
    for (uint32_t i = 0; i < length; i++) {
        uint8_t c = text.at[i];
        int32_t value = c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
                        : c == '+' ? 62 : c == '/' ? 63 : -1;
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if ((count += 6) >= 8) {
            count -= 8;
            to[bytes++] = (uint8_t)(bits >> count);
        }
    }
    return bytes;
}

static void acknowledge(struct rmq_pop_desk *d, const struct group *g, const uint8_t *bits, uint32_t bit_bytes)
{
    rmq_pop_ack_bits(d, g->consumer_group.at, g->consumer_group.length, g->topic.at, g->topic.length, g->flag, g->queue_id,
                     g->start_offset, g->pop_time_ms, bits, bit_bytes);
}

/* Reads the body, and acknowledges what it names if `applies`. Returns the number of groups, -1: it has another shape. */
static int64_t read_body(struct rmq_pop_desk *d, const uint8_t *body, uint32_t length, int applies, struct text *broker)
{
    struct scanner s = {.at = body, .end = body + length, .failed = length > RMQ_POP_BATCH_BYTES_MAX};
    uint8_t bits[RMQ_POP_BITS_BYTES_MAX];
    int64_t groups = 0;
    uint32_t seen = 0;
    expect(&s, '{');
    do {
        struct text name = read_text(&s);
        expect(&s, ':');
        uint32_t bit = is_named(name, "acks") ? 1 : is_named(name, "brokerName") ? 2 : 0;
        s.failed |= !bit || (seen & bit);
        seen |= bit;
        if (bit == 2 && !s.failed)
            *broker = read_text(&s);
        if (bit != 1 || s.failed)
            continue;
        expect(&s, '[');
        if (next_is(&s, ']'))
            continue;
        do {
            struct group g;
            read_group(&s, &g);
            int64_t bytes = s.failed ? -1 : read_base64(g.bits, bits, sizeof bits);
            s.failed |= bytes < 0 || ++groups > RMQ_POP_BATCH_GROUPS_MAX;
            s.failed |= g.revive_queue == RMQ_POP_ORDERLY; /* its answer may need a text */
            if (applies && !s.failed)
                acknowledge(d, &g, bits, (uint32_t)bytes);
        } while (!s.failed && next_is(&s, ','));
        expect(&s, ']');
    } while (!s.failed && next_is(&s, ','));
    expect(&s, '}');
    pass_blanks(&s);
    return s.failed || s.at != s.end || seen != 3 ? -1 : groups;
}

uint32_t rmq_pop_serve_batch_ack(struct rmq_pop_desk *d, const struct rmq_inbox_record *record)
{
    const uint8_t *frame = (const uint8_t *)(record + 1);
    uint32_t length = (uint32_t)record->length - (uint32_t)sizeof *record;
    struct rmq_frame_header h;
    struct text broker = {0};
    if (rmq_frame_header_parse(frame, length, &h) < 0 || h.unusual || h.unchecked || h.code != RMQ_CODE_POP_BATCH_ACK ||
        h.flag & RMQ_FLAG_RESPONSE)
        return RMQ_POP_ODD;
    const uint8_t *body = frame + 8 + h.header_length;
    uint32_t body_length = length - 8 - h.header_length;
    int64_t groups = read_body(d, body, body_length, 0, &broker);
    if (groups < 0)
        return RMQ_POP_ODD;
    if (rmq_pop_room(d, record->role) < ANSWER_BYTES)
        return RMQ_POP_NO_ROOM;
    /* an act has 8 bytes of a bit map, or the end of one */
    if (d->log_acks && !rmq_pop_log_has_room(d->log_acks, body_length / 8 + RMQ_POP_BATCH_GROUPS_MAX))
        return RMQ_POP_NO_ROOM;
    if (d->settings & RMQ_POP_IS_STOPPED)
        return RMQ_POP_STOPPED;
    d->row.asked = (struct rmq_plain_asked){
        .code = h.code, .opaque = h.opaque, .serialise = h.serialise, .is_oneway = (h.flag & RMQ_FLAG_ONEWAY) != 0};
    if (broker.length != d->broker_bytes || memcmp(broker.at, d->broker, broker.length))
        rmq_pop_count(d, RMQ_POP_COUNT_ACKS_FOREIGN, (uint64_t)groups);
    else
        read_body(d, body, body_length, 1, &broker);
    int32_t code = groups ? 0 : NO_MESSAGE;
    if (!rmq_pop_log_wait(d, code))
        rmq_pop_put_code(d, &d->row.ask, &d->row.asked, code, NULL);
    return RMQ_POP_SERVED;
}
