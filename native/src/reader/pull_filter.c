#include "reader/pull_filter.h"

#include <stdlib.h>

#include "codec/property_pairs.h"
#include "codec/topic_names.h"
#include "plane/filter_table.h"
#include "reader/pulls.h"

int rmq_pull_filters_open(struct rmq_pull_filters *filters, const struct rmq_read_context *context)
{
    filters->context = context;
    filters->places = calloc(RMQ_FILTER_COPIES, sizeof *filters->places);
    filters->text = malloc(RMQ_FILTER_TEXT_MAX);
    filters->room = malloc(RMQ_FILTER_PROGRAM_MAX);
    return filters->places && filters->text && filters->room ? 0 : -ENOMEM;
}

void rmq_pull_filters_close(struct rmq_pull_filters *filters)
{
    for (uint32_t i = 0; filters->places && i < RMQ_FILTER_COPIES; i++)
        free(filters->places[i].program);
    free(filters->places);
    free(filters->room);
    free(filters->text);
}

/* The worker's copy of a program. NULL = the slot has another one, or no memory: control is asked. */
static const struct rmq_filter_program *program_of(struct rmq_pull_filters *filters, uint32_t slot, uint32_t version)
{
    struct rmq_filter_place *place = &filters->places[slot % RMQ_FILTER_COPIES];
    if (place->program && place->slot == slot && place->version == version)
        return place->program;
    uint32_t bytes = rmq_filter_copy(filters->context->plane, slot, version, filters->room);
    if (!bytes || rmq_filter_verify(filters->room, bytes) < 0)
        return NULL;
    struct rmq_filter_program *program = malloc(bytes);
    if (!program)
        return NULL;
    memcpy(program, filters->room, bytes);
    free(place->program);
    *place = (struct rmq_filter_place){slot, version, program};
    return program;
}

static const struct rmq_filter_program *program_of_subscription(struct rmq_pull_filters *filters,
                                                                const struct rmq_subscription_copy *s)
{
    return program_of(filters, (uint32_t)s->tags[0], (uint32_t)s->tags[1]);
}

static const struct rmq_filter_program *program_of_text(struct rmq_pull_filters *filters, const struct rmq_pull *p)
{
    uint32_t version, slot = rmq_filter_find(filters->context->plane, (const char *)p->expression, p->expression_length, &version);
    return slot == RMQ_NONE ? NULL : program_of(filters, slot, version);
}

/* The group of a retry topic, if records of it are filtered by the subscriptions to their original topics. */
static uint32_t retry_group(const struct rmq_pull_filters *filters, const struct rmq_pull *p)
{
    if (!rmq_load(&filters->context->settings->filter_support_retry) || !rmq_is_retry_topic(p->topic, p->topic_length))
        return RMQ_NONE;
    const char *group = (const char *)p->topic + RMQ_RETRY_PREFIX_LENGTH;
    return rmq_group_find(filters->context->plane, group, p->topic_length - RMQ_RETRY_PREFIX_LENGTH);
}

int rmq_filter_prepare(struct rmq_pull_filters *filters, struct rmq_pull *p)
{
    if (!rmq_load(&filters->context->settings->property_filter_enable))
        return 0;
    p->retry_group_id = retry_group(filters, p);
    p->program = p->sys_flag & RMQ_PULL_SUBSCRIPTION ? program_of_text(filters, p) : program_of_subscription(filters, &p->filter);
    p->filter.kind = RMQ_SUBSCRIPTION_FILTER;
    return p->program != NULL;
}

/* The program of the group's subscription to the record's original topic. NULL = none: the record matches. */
static const struct rmq_filter_program *program_of_original(struct rmq_pull_filters *filters, uint32_t group_id,
                                                            const uint8_t *properties, uint32_t length)
{
    struct rmq_subscription_copy subscription;
    struct rmq_pair pair;
    struct rmq_text topic = {NULL, 0};
    const uint8_t *at = properties, *end = properties + length;
    while (rmq_next_pair(&at, end, &pair))
        if (rmq_text_is(pair.name, "RETRY_TOPIC", 11))
            topic = pair.value;
    uint32_t topic_id = topic.at ? rmq_topic_find(filters->context->plane, (const char *)topic.at, topic.length) : RMQ_NONE;
    if (topic_id == RMQ_NONE)
        return NULL;
    rmq_subscription_get(filters->context->plane, group_id, topic_id, &subscription);
    return subscription.kind == RMQ_SUBSCRIPTION_FILTER ? program_of_subscription(filters, &subscription) : NULL;
}

int rmq_filter_wants(struct rmq_pull_filters *filters, const struct rmq_pull *p, const uint8_t *record, uint32_t size,
                     uint64_t *work)
{
    const struct rmq_filter_program *program = p->program;
    const uint8_t *properties;
    uint32_t length;
    if (!rmq_filter_properties(record, size, &properties, &length))
        length = 0; /* as a record without properties */
    if (p->retry_group_id != RMQ_NONE) {
        program = program_of_original(filters, p->retry_group_id, properties, length);
        *work += length;
    }
    return !program || rmq_filter_evaluate(program, properties, length, work) == RMQ_FILTER_TRUE;
}
