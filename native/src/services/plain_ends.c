/* plain_ends.c: ends of transactions out of an inbox. */
#include "services/plain_ends.h"

RMQ_PLAIN_CHECK_RECORD(rmq_end_fields);

#define BIT(number) (UINT64_C(1) << (number))
#define DECISIONS (BIT(RMQ_END_UNKNOWN) | BIT(RMQ_END_COMMIT) | BIT(RMQ_END_ROLLBACK))
#define ROWS(ROW, record) \
    ROW(record, group, "producerGroup", RMQ_FIELD_TEXT, 1, RMQ_END_GROUP_BYTES_MAX, \
        .refusal = "The producer group wrong") \
    ROW(record, queue_offset, "tranStateTableOffset", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, position, "commitLogOffset", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, commit_or_rollback, "commitOrRollback", RMQ_FIELD_CHOICE, 1, DECISIONS) \
    ROW(record, from_check, "fromTransactionCheck", RMQ_FIELD_BOOL, 0, 0) \
    ROW(record, head, "msgId", RMQ_FIELD_UNKEPT, 1, 0)

const struct rmq_plain_table rmq_end_table = {
    .header = "EndTransactionRequestHeader", .code = RMQ_CODE_END_TRANSACTION, RMQ_PLAIN_ROWS(ROWS, rmq_end_fields)};

int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out)
{
    if (rmq_plain_decode_ask(&rmq_end_table, record, &out->asked, &out->fields, out->text) != RMQ_PLAIN_READ ||
        out->fields.commit_or_rollback == RMQ_END_UNKNOWN)
        return 0;
    out->record = *record;
    return 1;
}

int rmq_plain_end_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_plain_end *out)
{
    struct rmq_inbox_record *record = rmq_inbox_take(plane, answerer);
    if (!record || rmq_ask_is_void(plane, answerer, record) || !rmq_plain_end_read(record, out))
        return 0;
    rmq_inbox_done(plane, answerer, record);
    return 1;
}
