/* named_halves.c: the half messages that ends name. Twin: services/transactions/ends_twin.py. */
#include "services/named_halves.h"

#include <string.h>

#include "codec/property_pairs.h"
#include "codec/record.h"

#define HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"

struct half_pairs {
    struct rmq_text group;
    int has_immunity;
};

#define IS(text, name) rmq_text_is(text, name, sizeof name - 1)

/* Of equal names the last value counts, as in the record. */
static struct half_pairs pairs_of(const uint8_t *at, const uint8_t *end)
{
    struct half_pairs found = {0};
    struct rmq_pair pair;
    while (rmq_next_pair(&at, end, &pair)) {
        if (IS(pair.name, "PGROUP"))
            found.group = pair.value;
        else if (IS(pair.name, "CHECK_IMMUNITY_TIME_IN_SECONDS"))
            found.has_immunity = 1;
    }
    return found;
}

void rmq_named_half_judge(struct rmq_named_half *half, const uint8_t *texts, const uint8_t *record, uint32_t size)
{
    struct rmq_record_view view;
    half->is_sound = 0;
    if (rmq_record_parse(record, size, 1, &view) != RMQ_RECORD_OK || view.physical_offset != half->position ||
        view.queue_offset != half->queue_offset ||
        !IS(((struct rmq_text){record + view.topic_at, view.topic_length}), HALF_TOPIC))
        return;
    const uint8_t *pairs = record + view.properties_at;
    struct half_pairs found = pairs_of(pairs, pairs + view.properties_length);
    if (found.has_immunity || !found.group.length || found.group.length != half->group_length ||
        memcmp(found.group.at, texts + half->group_at, half->group_length))
        return;
    half->is_sound = 1;
    half->prepared_transaction_offset = view.prepared_transaction_offset;
}

int rmq_named_half_hold(struct rmq_queue_reader *q, uint32_t slot, struct rmq_named_half *half, const uint8_t *texts,
                        struct rmq_held_record *record, uint32_t *size)
{
    struct rmq_queue_unit unit;
    int64_t next;
    half->is_sound = 0;
    if (half->position < 0 || half->queue_offset < 0 ||
        rmq_queue_reader_units(q, slot, half->queue_offset, NULL, &unit, 1, &next) != 1 ||
        unit.queue_offset != half->queue_offset || unit.commit_log_offset != half->position || unit.size <= 0 ||
        rmq_queue_reader_record(q, (uint64_t)half->position, (uint32_t)unit.size, record) < 0)
        return 0;
    *size = (uint32_t)unit.size;
    rmq_named_half_judge(half, texts, record->at, *size);
    if (!half->is_sound)
        rmq_queue_reader_release(record);
    return (int)half->is_sound;
}
