/* copy_targets.c: the target of each copy. Twin: store/copy_targets.py. */
#include "services/copy_targets.h"

#include "codec/frame_header.h"
#include "codec/property_pairs.h"

#define REAL_TOPIC "REAL_TOPIC"
#define REAL_QID "REAL_QID"

static uint32_t without(struct rmq_record_copy *copy, uint32_t cause, int64_t detail)
{
    copy->queue_slot = RMQ_NONE;
    copy->cause = cause;
    copy->detail = detail;
    return 1;
}

/* Of equal names the last value counts, as in the record. */
static void find_pairs(const uint8_t *at, const uint8_t *end, struct rmq_text *topic, struct rmq_text *queue)
{
    struct rmq_pair pair;
    while (rmq_next_pair(&at, end, &pair)) {
        if (rmq_text_is(pair.name, REAL_TOPIC, sizeof REAL_TOPIC - 1))
            *topic = pair.value;
        else if (rmq_text_is(pair.name, REAL_QID, sizeof REAL_QID - 1))
            *queue = pair.value;
    }
}

/* 1 if the copy has no target. */
static uint32_t aim(struct rmq_plane *plane, struct rmq_record_copy *copy, uint32_t excluded_topic_id)
{
    struct rmq_record_view view;
    struct rmq_text topic = {NULL, 0}, queue = {NULL, 0};
    int32_t queue_id;
    copy->queue_slot = 0;
    if (rmq_record_parse(copy->record, copy->record_bytes, 0, &view) != RMQ_RECORD_OK)
        return 0;
    const uint8_t *pairs = copy->record + view.properties_at;
    find_pairs(pairs, pairs + view.properties_length, &topic, &queue);
    if (!topic.length)
        return without(copy, RMQ_COPY_NO_PAIR, RMQ_COPY_REAL_TOPIC);
    if (!queue.length || !rmq_text_int32(queue.at, queue.length, &queue_id))
        return without(copy, RMQ_COPY_NO_PAIR, RMQ_COPY_REAL_QID);
    uint32_t id = rmq_topic_find(plane, (const char *)topic.at, topic.length);
    if (id == RMQ_NONE || id == excluded_topic_id)
        return without(copy, RMQ_COPY_NO_TOPIC, 0);
    uint32_t slot = queue_id < 0 ? RMQ_NONE : rmq_queue_find(plane, id, (uint32_t)queue_id);
    if (slot == RMQ_NONE)
        return without(copy, RMQ_COPY_NO_QUEUE, queue_id);
    copy->topic_id = id;
    copy->queue_slot = slot;
    copy->queue_id = (uint32_t)queue_id;
    return 0;
}

uint32_t rmq_copy_targets(struct rmq_plane *plane, struct rmq_record_copy *copies, uint32_t count, uint32_t excluded_topic_id)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++)
        missing += aim(plane, &copies[i], excluded_topic_id);
    return missing;
}
