#include "codec/answer.h"

#include <string.h>

#include "base/bytes.h"
#include "base/number_text.h"
#include "codec/batch_body.h"
#include "codec/frame_header.h"

#define VERSION_NUMBER 479 /* MQVersion.V5_3_3 */
#define HEX_OFFSET 16

/* --- small pieces -------------------------------------------------------------------------------------- */

#define PUT(to, literal) put_bytes((to), (literal), sizeof(literal) - 1)

static inline uint8_t *put_bytes(uint8_t *to, const void *from, size_t length)
{
    memcpy(to, from, length);
    return to + length;
}

static const char hex_digits[] = "0123456789ABCDEF";

void rmq_hex_put(uint8_t *to, const uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        to[2 * i] = (uint8_t)hex_digits[bytes[i] >> 4];
        to[2 * i + 1] = (uint8_t)hex_digits[bytes[i] & 15];
    }
}

static uint8_t *put_message_id(uint8_t *to, const struct rmq_answer_broker *broker, uint64_t offset)
{
    uint8_t big_endian[8];
    rmq_put64(big_endian, offset);
    to = put_bytes(to, broker->host_hex, broker->host_hex_length);
    rmq_hex_put(to, big_endian, 8);
    return to + HEX_OFFSET;
}

uint32_t rmq_batch_count(const uint8_t *batch, uint32_t length)
{
    uint32_t count = 0, size;
    for (; (size = rmq_batch_element_bytes(batch, length)); batch += size, length -= size)
        count++;
    return count;
}

static uint8_t *put_message_ids(uint8_t *to, const struct rmq_send_answer *a)
{
    if (!a->batch)
        return put_message_id(to, a->broker, a->commit_log_offset);
    const uint8_t *at = a->batch;
    uint32_t left = a->batch_length, size;
    for (; (size = rmq_batch_element_bytes(at, left)); at += size, left -= size) {
        if (at != a->batch)
            *to++ = ',';
        to = put_message_id(to, a->broker, rmq_get64(at + 4));
    }
    return to;
}

static uint8_t *put_json_text(uint8_t *to, const void *text, size_t length)
{
    const uint8_t *from = text;
    for (size_t i = 0; i < length; i++) {
        uint8_t c = from[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            *to++ = c;
        } else if (c == '"' || c == '\\' || c == '\n') {
            *to++ = '\\';
            *to++ = c == '\n' ? 'n' : c;
        } else {
            to = PUT(to, "\\u00");
            *to++ = (uint8_t)hex_digits[c >> 4];
            *to++ = (uint8_t)hex_digits[c & 15];
        }
    }
    return to;
}

/* --- binary frames: 8 bytes of frame, 21 fixed with the two lengths, ext entries ------------------------- */

static uint8_t *begin_binary(uint8_t *frame, const struct rmq_answer_head *head)
{
    uint8_t *at = frame + 8;
    rmq_put16(at, (uint16_t)head->code);
    at[2] = 0; /* JAVA */
    rmq_put16(at + 3, VERSION_NUMBER);
    rmq_put32(at + 5, (uint32_t)head->opaque);
    rmq_put32(at + 9, RMQ_FLAG_RESPONSE);
    rmq_put32(at + 13, head->remark_length);
    at += 17;
    if (head->remark_length)
        at = put_bytes(at, head->remark, head->remark_length);
    return at + 4; /* the ext length is stored by end_binary */
}

static size_t end_frame(uint8_t *frame, const uint8_t *end, uint32_t serialise, uint32_t body_length)
{
    uint32_t header = (uint32_t)(end - frame) - 8;
    rmq_put32(frame, 4 + header + body_length);
    rmq_put32(frame + 4, serialise << 24 | header);
    return (size_t)(end - frame);
}

static size_t end_binary(uint8_t *frame, const uint8_t *end, const uint8_t *ext, uint32_t body_length)
{
    rmq_put32((uint8_t *)ext - 4, (uint32_t)(end - ext));
    return end_frame(frame, end, RMQ_SERIALISE_BINARY, body_length);
}

#define PUT_KEY(to, name) put_key((to), name, sizeof(name) - 1)

/* Key; the value starts 4 bytes further, its length is set by end_value. */
static inline uint8_t *put_key(uint8_t *to, const char *name, size_t length)
{
    rmq_put16(to, (uint16_t)length);
    return put_bytes(to + 2, name, length) + 4;
}

static inline uint8_t *end_value(uint8_t *value, uint8_t *end)
{
    rmq_put32(value - 4, (uint32_t)(end - value));
    return end;
}

static inline uint8_t *put_number_entry(uint8_t *value, int64_t number) { return end_value(value, rmq_put_decimal(value, number)); }

static uint8_t *put_broker_binary(uint8_t *at, const struct rmq_answer_broker *broker)
{
    at = PUT_KEY(at, "TRACE_ON");
    at = end_value(at, broker->trace_on ? PUT(at, "true") : PUT(at, "false"));
    at = PUT_KEY(at, "MSG_REGION");
    return end_value(at, put_bytes(at, broker->region, broker->region_length));
}

/* --- recall handles (RecallMessageHandle): URL-safe Base64 of "v1 topic broker time UNIQ_KEY" ----------------------------- */

#define HANDLE_VERSION "v1"

struct base64 {
    uint8_t *to;
    uint32_t bits, count; /* of the bytes that are not written yet */
};

static void put_base64(struct base64 *b, const void *from, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *at = from;
    for (size_t i = 0; i < length; i++) {
        b->bits = b->bits << 8 | at[i];
        if (++b->count < 3)
            continue;
        for (int shift = 18; shift >= 0; shift -= 6)
            *b->to++ = (uint8_t)digits[b->bits >> shift & 63];
        b->bits = b->count = 0;
    }
}

static uint8_t *end_base64(struct base64 *b)
{
    uint32_t missing = b->count ? 3 - b->count : 0;
    put_base64(b, "\0", missing);
    memset(b->to - missing, '=', missing);
    return b->to;
}

static uint8_t *put_handle(uint8_t *to, const struct rmq_send_answer *a)
{
    struct base64 b = {.to = to};
    uint8_t time[RMQ_DECIMAL_MAX];
    put_base64(&b, HANDLE_VERSION " ", sizeof HANDLE_VERSION);
    put_base64(&b, a->recall_topic, a->recall_topic_length);
    put_base64(&b, " ", 1);
    put_base64(&b, a->broker->name, a->broker->name_length);
    put_base64(&b, " ", 1);
    put_base64(&b, time, (size_t)(rmq_put_decimal(time, a->recall_ms) - time));
    put_base64(&b, " ", 1);
    put_base64(&b, a->uniq_key, a->uniq_key ? a->uniq_key_length : 0);
    return end_base64(&b);
}

static size_t handle_bound(const struct rmq_send_answer *a)
{
    size_t bytes = sizeof HANDLE_VERSION + 3 + RMQ_DECIMAL_MAX;
    if (!a->recall_topic)
        return 0;
    return (bytes + a->recall_topic_length + a->broker->name_length + a->uniq_key_length + 2) / 3 * 4;
}

static size_t put_send_binary(uint8_t *frame, const struct rmq_send_answer *a)
{
    uint8_t *ext = begin_binary(frame, &a->head), *at = ext;
    at = PUT_KEY(at, "msgId");
    at = end_value(at, put_message_ids(at, a));
    at = put_number_entry(PUT_KEY(at, "queueId"), a->queue_id);
    at = put_number_entry(PUT_KEY(at, "queueOffset"), a->queue_offset);
    if (a->uniq_key) {
        at = PUT_KEY(at, "transactionId");
        at = end_value(at, put_bytes(at, a->uniq_key, a->uniq_key_length));
    }
    if (a->recall_topic) {
        at = PUT_KEY(at, "recallHandle");
        at = end_value(at, put_handle(at, a));
    }
    return end_binary(frame, put_broker_binary(at, a->broker), ext, 0);
}

static size_t put_pull_binary(uint8_t *frame, const struct rmq_pull_answer *a)
{
    uint8_t *ext = begin_binary(frame, &a->head), *at = ext;
    at = put_number_entry(PUT_KEY(at, "suggestWhichBrokerId"), a->suggested_broker_id);
    at = put_number_entry(PUT_KEY(at, "nextBeginOffset"), a->next_offset);
    at = put_number_entry(PUT_KEY(at, "minOffset"), a->min_offset);
    at = put_number_entry(PUT_KEY(at, "maxOffset"), a->max_offset);
    at = put_number_entry(PUT_KEY(at, "topicSysFlag"), 0);
    at = put_number_entry(PUT_KEY(at, "groupSysFlag"), 0);
    return end_binary(frame, at, ext, a->body_length);
}

/* --- JSON frames, keys in the order of the recordings ----------------------------------------------------- */

static uint8_t *begin_json(uint8_t *frame, const struct rmq_answer_head *head)
{
    return rmq_put_decimal(PUT(frame + 8, "{\"code\":"), head->code);
}

static size_t end_json(uint8_t *frame, uint8_t *at, const struct rmq_answer_head *head, uint32_t body_length)
{
    at = PUT(at, ",\"flag\":1,\"language\":\"JAVA\",\"opaque\":");
    at = rmq_put_decimal(at, head->opaque);
    if (head->remark_length) {
        at = PUT(at, ",\"remark\":\"");
        at = put_json_text(at, head->remark, head->remark_length);
        *at++ = '"';
    }
    at = PUT(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    at = rmq_put_decimal(at, VERSION_NUMBER);
    *at++ = '}';
    return end_frame(frame, at, RMQ_SERIALISE_JSON, body_length);
}

static uint8_t *put_broker_json(uint8_t *at, const struct rmq_answer_broker *broker)
{
    at = PUT(at, "\"TRACE_ON\":\"");
    at = broker->trace_on ? PUT(at, "true") : PUT(at, "false");
    at = PUT(at, "\",\"MSG_REGION\":\"");
    at = put_json_text(at, broker->region, broker->region_length);
    *at++ = '"';
    return at;
}

static size_t put_send_json(uint8_t *frame, const struct rmq_send_answer *a)
{
    uint8_t *at = begin_json(frame, &a->head);
    at = PUT(at, ",\"extFields\":{\"queueId\":\"");
    at = rmq_put_decimal(at, a->queue_id);
    if (a->uniq_key) {
        at = PUT(at, "\",\"transactionId\":\"");
        at = put_json_text(at, a->uniq_key, a->uniq_key_length);
    }
    at = PUT(at, "\",\"msgId\":\"");
    at = put_message_ids(at, a);
    at = PUT(at, "\",");
    at = put_broker_json(at, a->broker);
    if (a->recall_topic) {
        at = PUT(at, ",\"recallHandle\":\"");
        at = put_handle(at, a);
        *at++ = '"';
    }
    at = PUT(at, ",\"queueOffset\":\"");
    at = rmq_put_decimal(at, a->queue_offset);
    at = PUT(at, "\"}");
    return end_json(frame, at, &a->head, 0);
}

static size_t put_pull_json(uint8_t *frame, const struct rmq_pull_answer *a)
{
    uint8_t *at = begin_json(frame, &a->head);
    at = rmq_put_decimal(PUT(at, ",\"extFields\":{\"suggestWhichBrokerId\":\""), a->suggested_broker_id);
    at = rmq_put_decimal(PUT(at, "\",\"groupSysFlag\":\"0\",\"nextBeginOffset\":\""), a->next_offset);
    at = rmq_put_decimal(PUT(at, "\",\"maxOffset\":\""), a->max_offset);
    at = rmq_put_decimal(PUT(at, "\",\"minOffset\":\""), a->min_offset);
    at = PUT(at, "\",\"topicSysFlag\":\"0\"}");
    return end_json(frame, at, &a->head, a->body_length);
}

/* --- front ---------------------------------------------------------------------------------------------- */

static size_t head_bound(const struct rmq_answer_head *head) { return 192 + (size_t)head->remark_length * 6; }

static size_t broker_bound(const struct rmq_answer_broker *broker) { return 64 + (size_t)broker->region_length * 6; }

size_t rmq_send_answer_bound(const struct rmq_send_answer *a)
{
    size_t ids = a->batch ? rmq_batch_count(a->batch, a->batch_length) : 1;
    return head_bound(&a->head) + broker_bound(a->broker) + 224 + handle_bound(a) + (size_t)a->uniq_key_length * 6 +
           ids * (a->broker->host_hex_length + HEX_OFFSET + 1);
}

size_t rmq_send_answer_put(uint8_t *to, const struct rmq_send_answer *answer)
{
    return answer->head.serialise == RMQ_SERIALISE_BINARY ? put_send_binary(to, answer) : put_send_json(to, answer);
}

size_t rmq_pull_answer_bound(const struct rmq_pull_answer *answer) { return head_bound(&answer->head) + 288; }

size_t rmq_pull_answer_put(uint8_t *to, const struct rmq_pull_answer *answer)
{
    return answer->head.serialise == RMQ_SERIALISE_BINARY ? put_pull_binary(to, answer) : put_pull_json(to, answer);
}

size_t rmq_error_answer_bound(const struct rmq_answer_head *head, const struct rmq_answer_broker *broker)
{
    return head_bound(head) + (broker ? broker_bound(broker) : 0);
}

size_t rmq_error_answer_put(uint8_t *to, const struct rmq_answer_head *head, const struct rmq_answer_broker *broker)
{
    uint8_t *at;
    if (head->serialise == RMQ_SERIALISE_BINARY) {
        at = begin_binary(to, head);
        return end_binary(to, broker ? put_broker_binary(at, broker) : at, at, 0);
    }
    at = begin_json(to, head);
    if (broker) {
        at = put_broker_json(PUT(at, ",\"extFields\":{"), broker);
        *at++ = '}';
    }
    return end_json(to, at, head, 0);
}

/* --- answers out of records ------------------------------------------------------------------------------- */

struct value {
    const uint8_t *at;
    size_t length;
};

/* The text of a field; a number is written into `digits`. No bytes: it is missing. */
static struct value value_of(const struct rmq_plain_field *field, int is_present, const uint8_t *record, const uint8_t *text,
                             uint8_t *digits)
{
    struct rmq_plain_text place;
    int64_t number;
    int32_t small;
    if (!is_present || field->type == RMQ_FIELD_UNKEPT)
        return (struct value){digits, 0};
    if (field->type == RMQ_FIELD_TEXT) {
        memcpy(&place, record + field->at, sizeof place);
        return (struct value){text + place.at, place.length};
    }
    if (field->type == RMQ_FIELD_INT64) {
        memcpy(&number, record + field->at, sizeof number);
    } else {
        memcpy(&small, record + field->at, sizeof small);
        number = small;
    }
    if (field->type == RMQ_FIELD_BOOL)
        return (struct value){(const uint8_t *)(number ? "true" : "false"), number ? 4 : 5};
    return (struct value){digits, (size_t)(rmq_put_decimal(digits, number) - digits)};
}

static uint8_t *put_value_json(uint8_t *at, struct value name, struct value value, int is_first)
{
    at = is_first ? PUT(at, ",\"extFields\":{\"") : PUT(at, ",\"");
    at = put_bytes(at, name.at, name.length);
    at = PUT(at, "\":\"");
    at = put_json_text(at, value.at, value.length);
    *at++ = '"';
    return at;
}

/* A value without bytes is written. */
static uint8_t *put_field(uint8_t *at, int is_binary, struct value name, struct value value, int is_first)
{
    if (!is_binary)
        return put_value_json(at, name, value, is_first);
    at = put_key(at, (const char *)name.at, name.length);
    return end_value(at, put_bytes(at, value.at, value.length));
}

size_t rmq_fields_answer_bound(const struct rmq_answer_head *head, const struct rmq_plain_table *table, const void *record)
{
    size_t field_bytes = RMQ_PLAIN_NAME_BYTES_MAX + RMQ_DECIMAL_MAX + 8;
    return head_bound(head) + table->field_count * field_bytes + (size_t)((const struct rmq_plain_head *)record)->text_bytes * 6;
}

size_t rmq_fields_answer_put(uint8_t *to, const struct rmq_answer_head *head, const struct rmq_plain_table *table,
                             const void *record, const uint8_t *text)
{
    int is_binary = head->serialise == RMQ_SERIALISE_BINARY, count = 0;
    uint8_t *begin = is_binary ? begin_binary(to, head) : begin_json(to, head), *at = begin, digits[RMQ_DECIMAL_MAX];
    for (uint32_t i = 0; i < table->field_count; i++) {
        const struct rmq_plain_field *field = &table->fields[i];
        int is_present = ((const struct rmq_plain_head *)record)->present >> i & 1;
        struct value value = value_of(field, is_present, record, text, digits);
        if (!value.length)
            continue;
        struct value name = {(const uint8_t *)field->name, table->lengths[i]};
        at = put_field(at, is_binary, name, value, !count++);
    }
    if (is_binary)
        return end_binary(to, at, begin, 0);
    if (count)
        *at++ = '}';
    return end_json(to, at, head, 0);
}

/* --- answers to POP -------------------------------------------------------------------------------------- */

size_t rmq_pop_answer_bound(const struct rmq_pop_answer *a)
{
    return head_bound(&a->head) + 320 + (size_t)a->starts_length + a->offsets_length + a->counts_length;
}

#define FIELD(text, value_at, bytes) \
    put_field(at, is_binary, (struct value){(const uint8_t *)text, sizeof text - 1}, (struct value){value_at, bytes}, at == begin)

static uint8_t *put_pop_number(uint8_t *at, int is_binary, const uint8_t *begin, const char *name, size_t length, int64_t number)
{
    uint8_t digits[RMQ_DECIMAL_MAX];
    struct value value = {digits, (size_t)(rmq_put_decimal(digits, number) - digits)};
    return put_field(at, is_binary, (struct value){(const uint8_t *)name, length}, value, at == begin);
}

#define NUMBER(text, number) put_pop_number(at, is_binary, begin, text, sizeof text - 1, number)

/* The order is that of the recordings. */
size_t rmq_pop_answer_put(uint8_t *to, const struct rmq_pop_answer *a)
{
    int is_binary = a->head.serialise == RMQ_SERIALISE_BINARY;
    uint8_t *begin = is_binary ? begin_binary(to, &a->head) : begin_json(to, &a->head), *at = begin;
    at = NUMBER("invisibleTime", a->invisible_ms);
    if (a->starts)
        at = FIELD("startOffsetInfo", a->starts, a->starts_length);
    if (a->rest >= 0)
        at = NUMBER("restNum", a->rest);
    if (a->counts)
        at = FIELD("orderCountInfo", a->counts, a->counts_length);
    at = NUMBER("popTime", a->pop_time_ms);
    at = NUMBER("reviveQid", a->revive_queue);
    if (a->offsets)
        at = FIELD("msgOffsetInfo", a->offsets, a->offsets_length);
    if (is_binary)
        return end_binary(to, at, begin, a->body_length);
    *at++ = '}';
    return end_json(to, at, &a->head, a->body_length);
}

size_t rmq_notification_answer_bound(const struct rmq_notification_answer *a) { return head_bound(&a->head) + 64; }

size_t rmq_notification_answer_put(uint8_t *to, const struct rmq_notification_answer *a)
{
    int is_binary = a->head.serialise == RMQ_SERIALISE_BINARY;
    uint8_t *begin = is_binary ? begin_binary(to, &a->head) : begin_json(to, &a->head), *at = begin;
    const uint8_t *yes = (const uint8_t *)"true", *no = (const uint8_t *)"false";
    at = FIELD("hasMsg", a->has_message ? yes : no, a->has_message ? 4 : 5);
    at = FIELD("pollingFull", a->is_full ? yes : no, a->is_full ? 4 : 5);
    if (is_binary)
        return end_binary(to, at, begin, 0);
    *at++ = '}';
    return end_json(to, at, &a->head, 0);
}
