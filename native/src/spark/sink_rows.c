#include "spark/sink_rows.h"

#include "base/bytes.h"
#include "codec/batch_body.h"
#include "codec/pair_separators.h"
#include "codec/record.h"

#define KEYS_NAME "KEYS"
#define TAGS_NAME "TAGS"
#define UNIQ_NAME "UNIQ_KEY"
#define WAIT_PAIR "WAIT\001true\002"

enum { UNIQ_TAIL_CHARS = 12, PAIR_MARKS = 2 };

struct piece {
    const uint8_t *at;
    uint32_t length;
};

/* A row, looked up and measured. */
struct row {
    struct piece value;
    struct piece key;
    struct piece tags;
    int32_t headers_begin;
    int32_t headers_end;
    uint32_t properties_bytes;
};

static int is_valid(const uint8_t *bits, int64_t at) { return !bits || (bits[at >> 3] >> (at & 7) & 1); }

/* Null and empty are the same here: a property has a value or is not there. */
static struct piece piece_at(const struct rmq_sink_text *text, int64_t i)
{
    struct piece found = {NULL, 0};
    if (!text->offsets || !is_valid(text->valid, text->first + i))
        return found;
    int32_t begin = text->offsets[text->first + i];
    found.at = text->data + begin;
    found.length = (uint32_t)(text->offsets[text->first + i + 1] - begin);
    return found;
}

static int refuse(struct rmq_sink_fault *fault, uint32_t column, int32_t problem, uint64_t size, uint64_t limit)
{
    fault->column = column;
    fault->problem = problem;
    fault->size = size;
    fault->limit = limit;
    return 0;
}

static int is_text(struct piece piece)
{
    const uint8_t *end = piece.at + piece.length;
    return !piece.length || rmq_find_mark(piece.at, end) == end;
}

static int measure_headers(const struct rmq_sink_rows *rows, int64_t i, struct row *row, uint64_t *bytes,
                           struct rmq_sink_fault *fault)
{
    row->headers_begin = row->headers_end = 0;
    if (!rows->header_offsets || !is_valid(rows->header_valid, rows->header_first + i))
        return 1;
    row->headers_begin = rows->header_offsets[rows->header_first + i];
    row->headers_end = rows->header_offsets[rows->header_first + i + 1];
    for (int32_t h = row->headers_begin; h < row->headers_end; h++) {
        struct piece name = piece_at(&rows->header_names, h), value = piece_at(&rows->header_values, h);
        if (!name.length || !value.length)
            return refuse(fault, RMQ_SINK_HEADERS, RMQ_SINK_EMPTY, 0, 0);
        if (!is_text(name) || !is_text(value))
            return refuse(fault, RMQ_SINK_HEADERS, RMQ_SINK_MARK, 0, 0);
        *bytes += (uint64_t)name.length + value.length + PAIR_MARKS;
    }
    return 1;
}

/* Looks a row up; 0 and `fault` when no message can be made of it. */
static int measure(const struct rmq_sink_rows *rows, const struct rmq_sink_keys *keys, int64_t i, struct row *row,
                   struct rmq_sink_fault *fault)
{
    row->value = piece_at(&rows->value, i);
    row->key = piece_at(&rows->key, i);
    row->tags = piece_at(&rows->tags, i);
    if (!row->value.length)
        return refuse(fault, RMQ_SINK_VALUE, RMQ_SINK_EMPTY, 0, 0);
    if (!is_text(row->key))
        return refuse(fault, RMQ_SINK_KEY, RMQ_SINK_MARK, 0, 0);
    if (!is_text(row->tags))
        return refuse(fault, RMQ_SINK_TAGS, RMQ_SINK_MARK, 0, 0);
    uint64_t bytes = sizeof UNIQ_NAME - 1 + keys->prefix_length + UNIQ_TAIL_CHARS + PAIR_MARKS + sizeof WAIT_PAIR - 1;
    bytes += row->key.length ? sizeof KEYS_NAME - 1 + (uint64_t)row->key.length + PAIR_MARKS : 0;
    bytes += row->tags.length ? sizeof TAGS_NAME - 1 + (uint64_t)row->tags.length + PAIR_MARKS : 0;
    if (!measure_headers(rows, i, row, &bytes, fault))
        return 0;
    if (bytes > rows->properties_bytes_max) {
        uint32_t column = row->headers_end > row->headers_begin ? RMQ_SINK_HEADERS : RMQ_SINK_KEY;
        return refuse(fault, column, RMQ_SINK_LARGE, bytes, rows->properties_bytes_max);
    }
    row->properties_bytes = (uint32_t)bytes;
    uint64_t overhead = RMQ_BATCH_ELEMENT_BYTES + bytes;
    uint64_t limit = rows->element_bytes_max > overhead ? rows->element_bytes_max - overhead : 0;
    if (row->value.length > limit)
        return refuse(fault, RMQ_SINK_VALUE, RMQ_SINK_LARGE, row->value.length, limit);
    return 1;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t length)
{
    memcpy(to, bytes, length);
    return to + length;
}

static uint8_t *put_pair(uint8_t *to, const void *name, size_t name_length, struct piece value)
{
    to = put(to, name, name_length);
    *to++ = 1;
    to = put(to, value.at, value.length);
    *to++ = 2;
    return to;
}

static uint8_t *put_uniq_key(uint8_t *to, struct rmq_sink_keys *keys)
{
    static const char digits[] = "0123456789ABCDEF";
    to = put(to, UNIQ_NAME "\001", sizeof UNIQ_NAME);
    to = put(to, keys->prefix, keys->prefix_length);
    uint64_t tail = (uint64_t)keys->month_ms << 16 | keys->counter;
    keys->month_ms += ++keys->counter >> 16; /* more in a millisecond than the counter has numbers: take the next one's */
    keys->counter &= 0xffff;
    for (int shift = 4 * (UNIQ_TAIL_CHARS - 1); shift >= 0; shift -= 4)
        *to++ = (uint8_t)digits[tail >> shift & 15];
    *to++ = 2;
    return to;
}

static uint8_t *put_element(uint8_t *to, const struct rmq_sink_rows *rows, const struct row *row, struct rmq_sink_keys *keys)
{
    rmq_put32(to, RMQ_BATCH_ELEMENT_BYTES + row->value.length + row->properties_bytes);
    memset(to + 4, 0, 12); /* magic, crc, flag */
    rmq_put32(to + 16, row->value.length);
    to = put(to + 20, row->value.at, row->value.length);
    rmq_put16(to, (uint16_t)row->properties_bytes);
    to += 2;
    if (row->key.length)
        to = put_pair(to, KEYS_NAME, sizeof KEYS_NAME - 1, row->key);
    if (row->tags.length)
        to = put_pair(to, TAGS_NAME, sizeof TAGS_NAME - 1, row->tags);
    for (int32_t h = row->headers_begin; h < row->headers_end; h++) {
        struct piece name = piece_at(&rows->header_names, h);
        to = put_pair(to, name.at, name.length, piece_at(&rows->header_values, h));
    }
    to = put_uniq_key(to, keys);
    return put(to, WAIT_PAIR, sizeof WAIT_PAIR - 1);
}

int64_t rmq_sink_encode(const struct rmq_sink_rows *rows, const int32_t *index, int64_t count, struct rmq_sink_keys *keys,
                        uint8_t *to, uint64_t room, uint64_t *used, struct rmq_sink_fault *fault)
{
    uint8_t *at = to;
    memset(fault, 0, sizeof *fault);
    int64_t done = 0;
    for (; done < count; done++) {
        struct row row;
        fault->row = index ? index[done] : done;
        if (!measure(rows, keys, fault->row, &row, fault))
            break;
        uint64_t size = RMQ_BATCH_ELEMENT_BYTES + (uint64_t)row.value.length + row.properties_bytes;
        if (size > room - (uint64_t)(at - to)) {
            refuse(fault, RMQ_SINK_VALUE, RMQ_SINK_ROOM, size, room);
            break;
        }
        at = put_element(at, rows, &row, keys);
    }
    *used += (uint64_t)(at - to);
    return done;
}

void rmq_sink_hashes(const struct rmq_sink_text *text, int64_t count, int32_t *hashes)
{
    for (int64_t i = 0; i < count; i++) {
        struct piece piece = piece_at(text, i);
        hashes[i] = piece.length ? rmq_java_hash(piece.at, piece.length) : 0;
    }
}
