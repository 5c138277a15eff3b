/* plain_requests.c: frames into records by tables. Twin: ringmq/ipc/plain_requests.py. */
#include "codec/plain_requests.h"

#include <string.h>

#include "codec/answer.h"
#include "codec/frame_header.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define ANSWER_BYTES_MAX 256 /* without remark and fields */
#define CHOICE_MAX 63

/* Printable ASCII without the byte `barred`. JSON readers differ about other bytes, so Python decides there. */
static int is_plain(const uint8_t *text, uint32_t length, uint8_t barred)
{
    uint32_t at = 0;
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(0x20), high = _mm_set1_epi8(0x7e), bar = _mm_set1_epi8((char)barred);
    for (; length >= 16 && at < length; at = at + 32 > length && at + 16 < length ? length - 16 : at + 16) {
        /* bytes from 0x80 on are negative */
        __m128i chunk = _mm_loadu_si128((const __m128i *)(text + at));
        __m128i beyond = _mm_or_si128(_mm_cmplt_epi8(chunk, low), _mm_cmpgt_epi8(chunk, high));
        if (_mm_movemask_epi8(_mm_or_si128(beyond, _mm_cmpeq_epi8(chunk, bar))))
            return 0;
    }
#endif
    for (; at < length; at++)
        if (text[at] < 0x20 || text[at] > 0x7e || text[at] == barred)
            return 0;
    return 1;
}

/* A JSON header has no escapes either: the parser does not look into those of texts that it passes over. */
static int is_plain_header(const struct rmq_frame_header *h, const uint8_t *header)
{
    return h->serialise != RMQ_SERIALISE_JSON || (!h->unchecked && is_plain(header, h->header_length, '\\'));
}

/* memcmp without a call, for lengths of 4 to 16: two words that may overlap. */
static inline int is_same(const char *name, const uint8_t *at, uint32_t length)
{
    uint64_t a[2], b[2];
    uint32_t c[2], d[2];
    if (length < 4 || length > 16)
        return !memcmp(name, at, length);
    if (length < 8) {
        memcpy(&c[0], name, 4), memcpy(&c[1], name + length - 4, 4);
        memcpy(&d[0], at, 4), memcpy(&d[1], at + length - 4, 4);
        return c[0] == d[0] && c[1] == d[1];
    }
    memcpy(&a[0], name, 8), memcpy(&a[1], name + length - 8, 8);
    memcpy(&b[0], at, 8), memcpy(&b[1], at + length - 8, 8);
    return a[0] == b[0] && a[1] == b[1];
}

/* Bit i: the name of field i has this length. */
static inline uint32_t fields_of_length(const struct rmq_plain_table *table, uint32_t length)
{
    uint32_t found = 0;
    if (length > RMQ_PLAIN_NAME_BYTES_MAX)
        return 0;
#ifdef __SSE2__
    __m128i lengths = _mm_loadu_si128((const __m128i *)table->lengths);
    found = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(lengths, _mm_set1_epi8((char)length)));
#else
    for (uint32_t i = 0; i < RMQ_PLAIN_FIELDS_MAX; i++)
        found |= (uint32_t)(table->lengths[i] == length) << i;
#endif
    return found & ((1u << table->field_count) - 1);
}

/* Its number in the table, or field_count. */
static inline uint32_t field_of(const struct rmq_plain_table *table, const uint8_t *name, uint32_t length)
{
    for (uint32_t left = fields_of_length(table, length); left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        if (is_same(table->fields[i].name, name, length))
            return i;
    }
    return table->field_count;
}

/* Fills found[] with the entries of fields, whose bits go into `seen`. 0 = a field comes twice, or a JSON value has other words
 * than Python writes. */
static inline int find(const struct rmq_plain_table *table, const struct rmq_frame_header *h, const struct rmq_ext_entry **found,
                       uint32_t *seen)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < h->ext_count; i++) {
        const struct rmq_ext_entry *entry = &h->ext[i];
        uint32_t field = field_of(table, entry->key, entry->key_length);
        if (entry->escaped == RMQ_TEXT_BARE && !rmq_bare_is_text(entry)) /* 1.50 */
            return 0;
        if (field == table->field_count)
            continue;
        if (bits >> field & 1)
            return 0;
        bits |= 1u << field;
        found[field] = entry;
    }
    *seen = bits;
    return 1;
}

enum { WRONG = -1 };

static int keep_text(const struct rmq_plain_field *field, const struct rmq_ext_entry *e, uint8_t *record, uint8_t *text)
{
    struct rmq_plain_head *head = (struct rmq_plain_head *)record;
    struct rmq_plain_text place = {(uint16_t)head->text_bytes, (uint16_t)e->value_length};
    if (e->value_length > field->limit)
        return WRONG;
    memcpy(text + place.at, e->value, place.length);
    memcpy(record + field->at, &place, sizeof place);
    head->text_bytes += place.length;
    return RMQ_PLAIN_READ;
}

/* A number that does not parse: wrong, unless its bytes are odd. */
static int refuse(const struct rmq_ext_entry *e) { return is_plain(e->value, e->value_length, 0) ? WRONG : RMQ_PLAIN_ODD; }

/* Reads a field, and keeps it in the record if `is_kept`. Returns RMQ_PLAIN_* or WRONG. A JSON header is plain already. */
static inline int take(const struct rmq_plain_field *field, const struct rmq_ext_entry *e, int is_binary, int is_kept,
                       uint8_t *record, uint8_t *text)
{
    int64_t number;
    int32_t small;
    switch (field->type) {
    case RMQ_FIELD_INT64:
        if (!rmq_text_int64(e->value, e->value_length, &number))
            return refuse(e);
        if (is_kept)
            memcpy(record + field->at, &number, sizeof number);
        return RMQ_PLAIN_READ;
    case RMQ_FIELD_TEXT:
    case RMQ_FIELD_UNKEPT:
        if (is_binary && !is_plain(e->value, e->value_length, 0))
            return RMQ_PLAIN_ODD;
        return field->type == RMQ_FIELD_TEXT ? keep_text(field, e, record, text) : RMQ_PLAIN_READ;
    case RMQ_FIELD_BOOL:
        small = rmq_field_is_true(e);
        break;
    default:
        if (!rmq_text_int32(e->value, e->value_length, &small))
            return refuse(e);
        if (field->type == RMQ_FIELD_CHOICE && (small < 0 || small > CHOICE_MAX || !(field->limit >> small & 1)))
            return WRONG;
    }
    if (is_kept)
        memcpy(record + field->at, &small, sizeof small);
    return RMQ_PLAIN_READ;
}

static inline int decode(const struct rmq_plain_table *table, const uint8_t *frame, uint32_t length,
                         struct rmq_plain_asked *asked, void *record, uint8_t *text)
{
    struct rmq_frame_header h;
    const struct rmq_ext_entry *found[RMQ_PLAIN_FIELDS_MAX];
    uint32_t seen, present = 0;
    if (rmq_frame_header_parse(frame, length, &h) < 0 || h.unusual || h.code != table->code || h.flag & RMQ_FLAG_RESPONSE ||
        !is_plain_header(&h, frame + 8) || !find(table, &h, found, &seen))
        return RMQ_PLAIN_ODD;
    memset(record, 0, table->record_bytes);
    for (uint32_t i = 0; i < table->field_count; i++) {
        const struct rmq_plain_field *field = &table->fields[i];
        if (!(seen >> i & 1)) {
            if (field->required)
                return -1 - (int)i;
            continue;
        }
        int is_kept = !field->version_min || h.version >= field->version_min;
        int result = take(field, found[i], h.serialise == RMQ_SERIALISE_BINARY, is_kept, record, text);
        if (result != RMQ_PLAIN_READ)
            return result == WRONG ? -1 - (int)i : RMQ_PLAIN_ODD;
        present |= (uint32_t)is_kept << i;
    }
    ((struct rmq_plain_head *)record)->present = present;
    *asked = (struct rmq_plain_asked){
        .code = h.code, .opaque = h.opaque, .serialise = h.serialise, .is_oneway = (h.flag & RMQ_FLAG_ONEWAY) != 0};
    return RMQ_PLAIN_READ;
}

int rmq_plain_decode(const struct rmq_plain_table *table, const uint8_t *frame, uint32_t length, struct rmq_plain_asked *asked,
                     void *record, uint8_t *text)
{
    return decode(table, frame, length, asked, record, text);
}

int rmq_plain_decode_ask(const struct rmq_plain_table *table, const struct rmq_inbox_record *ask, struct rmq_plain_asked *asked,
                         void *record, uint8_t *text)
{
    if (ask->type != RMQ_INBOX_COLD_FRAME || ask->length <= (int32_t)sizeof *ask)
        return RMQ_PLAIN_ODD;
    return decode(table, (const uint8_t *)(ask + 1), (uint32_t)ask->length - (uint32_t)sizeof *ask, asked, record, text);
}

int rmq_plain_answer(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *ask,
                     const struct rmq_plain_asked *asked, int32_t code)
{
    uint8_t frame[ANSWER_BYTES_MAX];
    struct rmq_answer_head head = {.code = code, .opaque = asked->opaque, .serialise = asked->serialise};
    struct rmq_verdict verdict = {
        .type = asked->is_oneway ? RMQ_VERDICT_DROP : RMQ_VERDICT_SEND, .last = 1, .connection = ask->connection,
        .connection_generation = ask->connection_generation, .pending = ask->pending, .asker_generation = ask->role_generation};
    size_t bytes = asked->is_oneway ? 0 : rmq_error_answer_put(frame, &head, NULL);
    return rmq_verdict_put(plane, answerer, ask->role, &verdict, frame, (uint32_t)bytes);
}
