/* plain_fields.h: fields of requests that C loops of services read: no text of them needs a closer look. C only. */
#ifndef RMQ_PLAIN_FIELDS_H
#define RMQ_PLAIN_FIELDS_H

#include <string.h>

#include "codec/frame_header.h"
#include "plane/asks.h"

/* JSON readers differ about other bytes, so Python decides there. */
static inline int rmq_plain_text(const uint8_t *text, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return 0;
    return 1;
}

/* Reads the header of a request with this code. 0 if the record holds none, or none that is plain. */
static inline int rmq_plain_header(const struct rmq_inbox_record *record, int32_t code, struct rmq_frame_header *h)
{
    const uint8_t *frame = (const uint8_t *)(record + 1);
    if (record->type != RMQ_INBOX_COLD_FRAME || record->length <= (int32_t)sizeof *record)
        return 0;
    uint32_t length = (uint32_t)record->length - (uint32_t)sizeof *record;
    return rmq_frame_header_parse(frame, length, h) >= 0 && !h->unusual && h->code == code && !(h->flag & RMQ_FLAG_RESPONSE) &&
           (h->serialise != RMQ_SERIALISE_JSON || rmq_plain_text(frame + 8, h->header_length));
}

/* Fills found[0..count) with the fields of these names, NULL for a missing one. 0 if a field occurs twice, if its text has
 * escapes, or if one of the first `required` is missing. */
static inline int rmq_plain_find(const struct rmq_frame_header *h, const char *const *names, int count, int required,
                                 const struct rmq_ext_entry **found)
{
    for (uint32_t i = 0; i < h->ext_count; i++) {
        const struct rmq_ext_entry *entry = &h->ext[i];
        int field = 0;
        while (field < count && (entry->key_length != strlen(names[field]) || memcmp(entry->key, names[field], entry->key_length)))
            field++;
        if (field == count)
            continue;
        if (found[field] || entry->escaped == RMQ_TEXT_ESCAPED || !rmq_plain_text(entry->value, entry->value_length))
            return 0;
        found[field] = entry;
    }
    for (int i = 0; i < required; i++)
        if (!found[i])
            return 0;
    return 1;
}

/* The word `true` in any case. A missing entry is not. */
static inline int rmq_plain_is_true(const struct rmq_ext_entry *entry)
{
    static const char word[] = "true";
    if (!entry || entry->value_length != sizeof word - 1)
        return 0;
    for (uint32_t i = 0; i < sizeof word - 1; i++)
        if ((entry->value[i] | 0x20) != word[i])
            return 0;
    return 1;
}

/* Copies a name of at least one byte. Its length; 0 if it is longer than `max`, or a JSON number or word, whose text Python may
 * write in another way. */
static inline uint32_t rmq_plain_name(const struct rmq_ext_entry *entry, uint8_t *to, uint32_t max)
{
    if (entry->escaped == RMQ_TEXT_BARE || entry->value_length > max)
        return 0;
    memcpy(to, entry->value, entry->value_length);
    return entry->value_length;
}

#endif
