#include "reader/answerer_rules.h"

#include <string.h>

#include "codec/send_decode.h"

/* The text of the last field of this name, as maps of fields keep it. 0 = it has no plain text, or is longer than any name. */
static int last_text(const struct rmq_frame_header *h, const char *name, uint8_t *room, const uint8_t **text, uint32_t *length)
{
    const struct rmq_ext_entry *found = NULL;
    for (uint32_t i = 0; i < h->ext_count; i++)
        if (h->ext[i].key_length == strlen(name) && !memcmp(h->ext[i].key, name, h->ext[i].key_length))
            found = &h->ext[i];
    *text = room;
    *length = 0;
    return !found || rmq_field_text(found, room, RMQ_NAME_JSON_MAX, text, length);
}

uint32_t rmq_answerer_for(struct rmq_plane *plane, const struct rmq_frame_header *h)
{
    uint32_t rows = rmq_answerers_of(plane, h->code), group_length, topic_length;
    if (!(rows & (rows - 1)))
        return (uint32_t)__builtin_ctz(rows);
    uint8_t group_room[RMQ_NAME_JSON_MAX], topic_room[RMQ_NAME_JSON_MAX];
    const uint8_t *group, *topic;
    if (h->unusual || !last_text(h, "consumerGroup", group_room, &group, &group_length) ||
        !last_text(h, "topic", topic_room, &topic, &topic_length))
        return RMQ_NONE;
    return rmq_answerer_choose(rows, group, group_length, topic, topic_length);
}
