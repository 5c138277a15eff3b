#include "pop/pop_requests.h"

#include <string.h>

#include "codec/frame_header.h"
#include "pop/pop_layout.h"

#define SUBSCRIPTION_PARSE_FAILED 23
#define TOPIC_NOT_EXIST 17
#define SUBSCRIPTION_GROUP_NOT_EXIST 26
#define RECEIPT_FIELDS 6 /* that are read */

RMQ_PLAIN_CHECK_RECORD(rmq_pop_fields);
RMQ_PLAIN_CHECK_RECORD(rmq_pop_ack_fields);
_Static_assert(RMQ_POP_TEXT_BYTES_MAX >= 2 * RMQ_POP_NAME_BYTES_MAX + RMQ_POP_RECEIPT_BYTES_MAX, "texts of an ACK");

_Static_assert(RMQ_POP_BITS_BYTES_MAX * 8 == RMQ_POP_SPAN_MAX, "bit maps");

#define NAMES(ROW, record) \
    ROW(record, group, "consumerGroup", RMQ_FIELD_TEXT, 1, RMQ_POP_NAME_BYTES_MAX, \
        .refusal = "subscription group not exist", .refusal_code = SUBSCRIPTION_GROUP_NOT_EXIST) \
    ROW(record, topic, "topic", RMQ_FIELD_TEXT, 1, RMQ_POP_NAME_BYTES_MAX, \
        .refusal = "topic not exist", .refusal_code = TOPIC_NOT_EXIST) \
    ROW(record, queue_id, "queueId", RMQ_FIELD_INT32, 1, 0)
#define POP_ROWS(ROW, record) \
    NAMES(ROW, record) \
    ROW(record, messages_max, "maxMsgNums", RMQ_FIELD_INT32, 1, 0) \
    ROW(record, invisible_ms, "invisibleTime", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, poll_ms, "pollTime", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, born_ms, "bornTime", RMQ_FIELD_INT64, 0, 0) \
    ROW(record, init_mode, "initMode", RMQ_FIELD_INT32, 1, 0) \
    ROW(record, expression_type, "expType", RMQ_FIELD_TEXT, 0, RMQ_POP_EXPRESSION_TYPE_BYTES_MAX, \
        .refusal = "parse the consumer's subscription failed", .refusal_code = SUBSCRIPTION_PARSE_FAILED) \
    ROW(record, expression, "exp", RMQ_FIELD_TEXT, 0, RMQ_POP_EXPRESSION_BYTES_MAX, \
        .refusal = "parse the consumer's subscription failed", .refusal_code = SUBSCRIPTION_PARSE_FAILED) \
    ROW(record, order, "order", RMQ_FIELD_BOOL, 0, 0) \
    ROW(record, attempt, "attemptId", RMQ_FIELD_TEXT, 0, RMQ_POP_ATTEMPT_BYTES_MAX)
#define NOTIFICATION_ROWS(ROW, record) \
    NAMES(ROW, record) \
    ROW(record, poll_ms, "pollTime", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, born_ms, "bornTime", RMQ_FIELD_INT64, 0, 0) \
    ROW(record, order, "order", RMQ_FIELD_BOOL, 0, 0) \
    ROW(record, attempt, "attemptId", RMQ_FIELD_TEXT, 0, RMQ_POP_ATTEMPT_BYTES_MAX)
#define ACK_ROWS(ROW, record) \
    NAMES(ROW, record) \
    ROW(record, receipt, "extraInfo", RMQ_FIELD_TEXT, 0, RMQ_POP_RECEIPT_BYTES_MAX) \
    ROW(record, offset, "offset", RMQ_FIELD_INT64, 1, 0)
#define CHANGE_ROWS(ROW, record) \
    ACK_ROWS(ROW, record) \
    ROW(record, invisible_ms, "invisibleTime", RMQ_FIELD_INT64, 1, 0)

const struct rmq_plain_table rmq_pop_table = {
    .header = "PopMessageRequestHeader", .code = RMQ_CODE_POP, RMQ_PLAIN_ROWS(POP_ROWS, rmq_pop_fields)};
const struct rmq_plain_table rmq_pop_ack_table = {
    .header = "AckMessageRequestHeader", .code = RMQ_CODE_POP_ACK, RMQ_PLAIN_ROWS(ACK_ROWS, rmq_pop_ack_fields)};
const struct rmq_plain_table rmq_pop_change_table = {
    .header = "ChangeInvisibleTimeRequestHeader", .code = RMQ_CODE_POP_CHANGE, RMQ_PLAIN_ROWS(CHANGE_ROWS, rmq_pop_ack_fields)};
const struct rmq_plain_table rmq_pop_notification_table = {
    .header = "NotificationRequestHeader", .code = RMQ_CODE_POP_NOTIFICATION, RMQ_PLAIN_ROWS(NOTIFICATION_ROWS, rmq_pop_fields)};

int rmq_pop_receipt_read(const uint8_t *text, uint32_t length, struct rmq_pop_receipt *out)
{
    int64_t *numbers[RECEIPT_FIELDS] = {&out->start_offset, &out->pop_time_ms, &out->invisible_ms, &out->revive_queue, NULL, NULL};
    uint32_t at = 0;
    for (uint32_t field = 0; field < RECEIPT_FIELDS; field++) {
        const uint8_t *end = at <= length ? memchr(text + at, ' ', length - at) : NULL;
        uint32_t bytes = at > length ? 0 : end ? (uint32_t)(end - text) - at : length - at;
        if (!bytes || (numbers[field] && !rmq_text_int64(text + at, bytes, numbers[field])))
            return 0;
        out->broker = (struct rmq_plain_text){(uint16_t)at, (uint16_t)bytes};
        at += bytes + 1;
    }
    return out->revive_queue == (int32_t)out->revive_queue;
}
