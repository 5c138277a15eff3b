/* plain_ends.c: ends of transactions out of an inbox. Twin: services/transactions/plain_ends.py. */
#include "plain_ends.h"

#include <string.h>

enum field { GROUP, QUEUE_OFFSET, POSITION, ACTION, MESSAGE_ID, FROM_CHECK, FIELDS };

static const char *const NAMES[FIELDS] = {"producerGroup",    "tranStateTableOffset", "commitLogOffset",
                                          "commitOrRollback", "msgId",                "fromTransactionCheck"};

/* JSON readers differ about other bytes, so Python decides there. */
static int is_printable(const uint8_t *text, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return 0;
    return 1;
}

static int field_of(const struct rmq_ext_entry *entry)
{
    for (int i = 0; i < FIELDS; i++)
        if (entry->key_length == strlen(NAMES[i]) && !memcmp(entry->key, NAMES[i], entry->key_length))
            return i;
    return FIELDS;
}

/* 0 if a field occurs twice or is missing, or if its text has escapes. */
static int find_fields(const struct rmq_frame_header *h, const struct rmq_ext_entry *found[FIELDS])
{
    for (uint32_t i = 0; i < h->ext_count; i++) {
        int field = field_of(&h->ext[i]);
        if (field == FIELDS)
            continue;
        if (found[field] || h->ext[i].escaped || !is_printable(h->ext[i].value, h->ext[i].value_length))
            return 0;
        found[field] = &h->ext[i];
    }
    for (int i = 0; i < FROM_CHECK; i++)
        if (!found[i])
            return 0;
    return 1;
}

static int is_true(const struct rmq_ext_entry *entry)
{
    static const char word[] = "true";
    if (!entry || entry->value_length != sizeof word - 1)
        return 0;
    for (uint32_t i = 0; i < sizeof word - 1; i++)
        if ((entry->value[i] | 0x20) != word[i])
            return 0;
    return 1;
}

/* A JSON number or word, whose text Python may write in another way. */
static int is_bare(const struct rmq_frame_header *h, const struct rmq_ext_entry *entry)
{
    return h->serialise == RMQ_SERIALISE_JSON && entry->value[-1] != '"';
}

static int read_fields(const struct rmq_frame_header *h, struct rmq_plain_end *out)
{
    const struct rmq_ext_entry *found[FIELDS] = {0}, *group;
    if (!find_fields(h, found))
        return 0;
    group = found[GROUP];
    if (is_bare(h, group) || !group->value_length || group->value_length > RMQ_END_GROUP_BYTES_MAX)
        return 0;
    out->group_length = group->value_length;
    memcpy(out->group, group->value, group->value_length);
    out->from_check = (uint32_t)is_true(found[FROM_CHECK]);
    return rmq_text_int64(found[QUEUE_OFFSET]->value, found[QUEUE_OFFSET]->value_length, &out->queue_offset) &&
           rmq_text_int64(found[POSITION]->value, found[POSITION]->value_length, &out->position) &&
           rmq_text_int32(found[ACTION]->value, found[ACTION]->value_length, &out->commit_or_rollback) &&
           (out->commit_or_rollback == RMQ_END_COMMIT || out->commit_or_rollback == RMQ_END_ROLLBACK);
}

int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out)
{
    struct rmq_frame_header h;
    const uint8_t *frame = (const uint8_t *)(record + 1);
    if (record->type != RMQ_INBOX_COLD_FRAME || record->length <= (int32_t)sizeof *record)
        return 0;
    uint32_t length = (uint32_t)record->length - (uint32_t)sizeof *record;
    if (rmq_frame_header_parse(frame, length, &h) < 0 || h.unusual || h.code != RMQ_CODE_END_TRANSACTION ||
        h.flag & RMQ_FLAG_RESPONSE ||
        (h.serialise == RMQ_SERIALISE_JSON && !is_printable(frame + 8, h.header_length)) || !read_fields(&h, out))
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
