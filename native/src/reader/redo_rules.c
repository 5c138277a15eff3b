#include "reader/redo_rules.h"

#include <string.h>

#include "codec/record.h"
#include "codec/topic_names.h"

/* No batch follows a rule. */
struct rule {
    const char *from, *to;   /* prefixes of the topic that the client named, and of that of the rule */
    const char *name, *value; /* the property */
};

static const struct rule RULES[RMQ_REDO_RULES] = {
    /* as SendMessageProcessor.handleRetryAndDLQ */
    [RMQ_REDO_DEAD_LETTER] = {.from = RMQ_RETRY_PREFIX, .to = RMQ_DEAD_PREFIX, .name = "DELAY", .value = "-1"},
};

void rmq_redo_rules_open(struct rmq_redo_rules *rules)
{
    for (uint32_t i = RMQ_REDO_UNCHANGED + 1; i < RMQ_REDO_RULES; i++) {
        struct rmq_admission_rule *redirect = &rules->redirects[i];
        struct rmq_rule_pair *pair = &redirect->pairs[0];
        *redirect = (struct rmq_admission_rule){.kind = RMQ_RULE_REDIRECT, .pair_count = 1};
        pair->value_from = RMQ_ADD_TEXT;
        pair->name_length = (uint32_t)strlen(RULES[i].name);
        pair->value_length = (uint32_t)strlen(RULES[i].value);
        memcpy(pair->name, RULES[i].name, pair->name_length);
        memcpy(pair->value, RULES[i].value, pair->value_length);
    }
}

/* The property has room beside those that the message has and gets. */
static int has_room(const struct rule *rule, const struct rmq_send *s, const struct rmq_admission_limits *limits)
{
    uint32_t lacks_end = s->properties_length && s->properties[s->properties_length - 1] != 2;
    uint32_t pair = (uint32_t)(strlen(rule->name) + strlen(rule->value)) + 2;
    uint32_t added = lacks_end + (s->uniq_key ? 0 : limits->made_key_length) + pair;
    return s->properties_length + added + limits->additions_length <= RMQ_PROPERTIES_BYTES_MAX;
}

int rmq_redo_target(struct rmq_redo_rules *rules, struct rmq_plane *plane, uint32_t rule, const struct rmq_send *s,
                    const struct rmq_admission_limits *limits, struct rmq_send_target *target)
{
    const struct rule *row = &RULES[rule];
    uint32_t from = (uint32_t)strlen(row->from), to = (uint32_t)strlen(row->to);
    char name[RMQ_NAME_MAX];
    if (s->batch || s->topic_length < from || memcmp(s->topic, row->from, from) || to + s->topic_length - from > sizeof name ||
        !has_room(row, s, limits))
        return 0;
    memcpy(name, row->to, to);
    memcpy(name + to, s->topic + from, s->topic_length - from);
    uint32_t id = rmq_topic_find(plane, name, to + s->topic_length - from);
    if (id == RMQ_NONE)
        return 0;
    rules->redirects[rule].topic_id = id;
    *target = (struct rmq_send_target){&rules->redirects[rule], 0, 0, rmq_queue_find(plane, id, 0), 0};
    return target->queue_slot != RMQ_NONE;
}
