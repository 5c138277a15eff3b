#include "reader/send_target.h"

#include <string.h>

#include "base/number_text.h"

void rmq_send_finish(struct rmq_send *s, uint8_t *home, const struct rmq_admission_rule *rule)
{
    struct rmq_cut_name names[RMQ_RULE_PAIRS_MAX];
    uint32_t count = rule ? rule->pair_count : 0;
    if (s->properties_escaped) {
        memcpy(home, s->properties, s->properties_length);
        s->uniq_key = s->uniq_key ? home + (s->uniq_key - s->properties) : NULL;
        s->properties = home;
    }
    for (uint32_t i = 0; i < count; i++)
        names[i] = (struct rmq_cut_name){rule->pairs[i].name, rule->pairs[i].name_length};
    if (s->drops || count)
        rmq_send_cut(s, names, count);
    if (s->properties_length && s->properties[s->properties_length - 1] != 2) {
        memmove(s->properties - 1, s->properties, s->properties_length); /* a quote or length byte stood there */
        s->properties--;
        if (s->uniq_key)
            s->uniq_key--;
        s->properties[s->properties_length++] = 2;
    }
}

static uint8_t *put_bytes(uint8_t *to, const void *from, uint32_t length)
{
    memcpy(to, from, length);
    return to + length;
}

uint8_t *rmq_send_put_pairs(struct rmq_plane *plane, const struct rmq_send *s, const struct rmq_send_target *target, uint8_t *to)
{
    const struct rmq_topic *topic = rmq_topic_at(plane, s->topic_id); /* the frame may have moved */
    for (uint32_t i = 0; i < target->rule->pair_count; i++) {
        const struct rmq_rule_pair *pair = &target->rule->pairs[i];
        if (pair->value_from == RMQ_ADD_NOTHING)
            continue;
        to = put_bytes(to, pair->name, pair->name_length);
        *to++ = 1;
        switch (pair->value_from) {
        case RMQ_ADD_TOPIC: to = put_bytes(to, topic->name, topic->name_length); break;
        case RMQ_ADD_QUEUE: to = rmq_put_decimal(to, s->queue_id); break;
        case RMQ_ADD_LEVEL: to = rmq_put_decimal(to, target->level); break;
        case RMQ_ADD_OUT_MS: to = rmq_put_decimal(to, target->out_ms); break;
        case RMQ_ADD_UNIQ_KEY: to = put_bytes(to, s->uniq_key, s->uniq_key_length); break;
        default: to = put_bytes(to, pair->value, pair->value_length);
        }
        *to++ = 2;
    }
    return to;
}

void rmq_send_redirect(struct rmq_send *s, const struct rmq_send_target *target)
{
    s->topic_id = target->rule->topic_id;
    s->queue_id = (int32_t)target->queue_id;
    s->queue_slot = target->queue_slot;
    s->sys_flag &= ~target->rule->sys_flag_clear;
}
