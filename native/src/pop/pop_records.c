#include "pop/pop_records.h"

#include <errno.h>

#include "base/bytes.h"
#include "codec/property_pairs.h"

#define MAGIC_AT 4u
#define PREPARED_BYTES 12u /* the prepared transaction offset and the length of the body end the fixed fields */
#define RECEIPT_NAME "POP_CK"

static int add_piece(struct rmq_pop_body *body, struct rmq_record_piece piece)
{
    if (body->piece_count == RMQ_POP_PIECES_MAX)
        return -ENOSPC;
    body->pieces[body->piece_count++] = piece;
    return 0;
}

int rmq_pop_body_add(struct rmq_pop_body *body, uint64_t position, uint32_t size)
{
    struct rmq_record_piece *last = body->piece_count ? &body->pieces[body->piece_count - 1] : NULL;
    if (last && last->position != RMQ_RECORD_INLINE && last->position + last->size == position &&
        last->position / body->segment_bytes == position / body->segment_bytes) {
        last->size += size;
        last->messages++;
    } else if (add_piece(body, (struct rmq_record_piece){.position = position, .size = size, .messages = 1}) < 0) {
        return -ENOSPC;
    }
    body->bytes += size;
    return 0;
}

/* The caller has looked whether there is room. */
static void put(struct rmq_pop_body *body, const void *bytes, uint32_t length)
{
    struct rmq_record_piece *last = body->piece_count ? &body->pieces[body->piece_count - 1] : NULL;
    if (!length)
        return;
    if (!last || last->position != RMQ_RECORD_INLINE) {
        last = &body->pieces[body->piece_count++];
        *last = (struct rmq_record_piece){.position = RMQ_RECORD_INLINE};
    }
    memcpy(body->inline_bytes + body->inline_length, bytes, length);
    body->inline_length += length;
    last->size += length;
    body->bytes += length;
}

static int has_receipt(const uint8_t *properties, uint32_t length)
{
    struct rmq_pair pair;
    for (const uint8_t *at = properties; rmq_next_pair(&at, properties + length, &pair);)
        if (rmq_text_is(pair.name, RECEIPT_NAME, sizeof RECEIPT_NAME - 1))
            return 1;
    return 0;
}

/* Topic, and the length of the properties. */
static uint32_t put_topic(uint8_t *to, const uint8_t *topic, uint32_t topic_length, uint32_t properties_length)
{
    uint32_t at = 0;
    if (topic_length > 127)
        to[at++] = (uint8_t)(topic_length >> 8);
    to[at++] = (uint8_t)topic_length;
    memcpy(to + at, topic, topic_length);
    rmq_put16(to + at + topic_length, (uint16_t)properties_length);
    return at + topic_length + 2;
}

int rmq_pop_body_add_retry(struct rmq_pop_body *body, uint64_t position, const uint8_t *record, uint32_t size,
                           const uint8_t *topic, uint32_t topic_length, const uint8_t *receipt, uint32_t receipt_length)
{
    struct rmq_record_view view;
    uint8_t middle[2 + RMQ_TOPIC_BYTES_MAX + 2];
    if (rmq_record_parse(record, size, 0, &view) != RMQ_RECORD_OK || view.total_size != size)
        return -EBADMSG;
    const uint8_t *properties = record + view.properties_at;
    int is_known = has_receipt(properties, view.properties_length), is_whole = !view.properties_length ||
        properties[view.properties_length - 1] == RMQ_PAIR_END;
    uint32_t more = is_known ? 0 : (uint32_t)!is_whole + sizeof RECEIPT_NAME + receipt_length + 1;
    uint32_t length = view.properties_length + more, middle_length = put_topic(middle, topic, topic_length, length);
    uint32_t total = view.body_at + view.body_length + middle_length + length, in_log = view.body_length > RMQ_POP_INLINE_BODY_MAX;
    if (length > RMQ_PROPERTIES_BYTES_MAX)
        return -EBADMSG;
    if (body->piece_count + 3 > RMQ_POP_PIECES_MAX ||
        total - (in_log ? view.body_length : 0) > body->inline_room - body->inline_length)
        return -ENOSPC;
    uint8_t *head = body->inline_bytes + body->inline_length;
    put(body, record, view.body_at);
    rmq_put32(head, total);
    rmq_put32(head + MAGIC_AT, topic_length > 127 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1);
    rmq_put64(head + view.body_at - PREPARED_BYTES, 0); /* a mark of ours */
    if (in_log) {
        body->pieces[body->piece_count++] =
            (struct rmq_record_piece){.position = position + view.body_at, .size = view.body_length, .messages = 1};
        body->bytes += view.body_length;
    } else {
        put(body, record + view.body_at, view.body_length);
    }
    put(body, middle, middle_length);
    put(body, properties, view.properties_length);
    if (!is_known) {
        put(body, "\2", (uint32_t)!is_whole);
        put(body, RECEIPT_NAME "\1", sizeof RECEIPT_NAME);
        put(body, receipt, receipt_length);
        put(body, "\2", 1);
    }
    return 0;
}
