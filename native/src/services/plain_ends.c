/* plain_ends.c: ends of transactions out of an inbox. Twin: services/transactions/plain_ends.py. */
#include "services/plain_ends.h"

#include "services/plain_fields.h"

enum field { GROUP, QUEUE_OFFSET, POSITION, ACTION, MESSAGE_ID, FROM_CHECK, FIELDS };

static const char *const NAMES[FIELDS] = {"producerGroup",    "tranStateTableOffset", "commitLogOffset",
                                          "commitOrRollback", "msgId",                "fromTransactionCheck"};

static int read_fields(const struct rmq_frame_header *h, struct rmq_plain_end *out)
{
    const struct rmq_ext_entry *found[FIELDS] = {0};
    if (!rmq_plain_find(h, NAMES, FIELDS, FROM_CHECK, found))
        return 0;
    out->group_length = rmq_plain_name(found[GROUP], out->group, RMQ_END_GROUP_BYTES_MAX);
    if (!out->group_length)
        return 0;
    out->from_check = (uint32_t)rmq_plain_is_true(found[FROM_CHECK]);
    return rmq_text_int64(found[QUEUE_OFFSET]->value, found[QUEUE_OFFSET]->value_length, &out->queue_offset) &&
           rmq_text_int64(found[POSITION]->value, found[POSITION]->value_length, &out->position) &&
           rmq_text_int32(found[ACTION]->value, found[ACTION]->value_length, &out->commit_or_rollback) &&
           (out->commit_or_rollback == RMQ_END_COMMIT || out->commit_or_rollback == RMQ_END_ROLLBACK);
}

int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out)
{
    struct rmq_frame_header h;
    if (!rmq_plain_header(record, RMQ_CODE_END_TRANSACTION, &h) || !read_fields(&h, out))
        return 0;
    out->record = *record;
    out->opaque = h.opaque;
    out->flag = h.flag;
    out->serialise = h.serialise;
    return 1;
}

uint32_t rmq_plain_ends_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_plain_end *out, uint32_t room)
{
    uint32_t count = 0;
    while (count < room) {
        struct rmq_inbox_record *record = rmq_inbox_take(plane, answerer);
        if (!record || rmq_ask_is_void(plane, answerer, record) || !rmq_plain_end_read(record, &out[count]))
            break;
        rmq_inbox_done(plane, answerer, record);
        count++;
    }
    return count;
}
