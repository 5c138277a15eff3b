/* The set of admission rules in the plane: two copies and a version (admission_layout.h). */
#include "admission/admission_rules.h"

#include <errno.h>
#include <string.h>

#include "codec/record.h"
#include "codec/send_decode.h"
#include "plane/ring.h"

#define QUEUES_MAX 65536u
#define QUEUE_DIGITS 10u
#define TIME_DIGITS 19u
#define PRECISION_MS_MAX 1000u
#define MADE_KEY_PAIR 66u /* the longest UNIQ_KEY pair that a reader makes */

static int has_byte(const char *text, uint32_t length, char byte) { return memchr(text, byte, length) != NULL; }

/* The largest number of bytes of the pair. 0 if it is malformed. */
static uint32_t pair_bytes(const struct rmq_rule_pair *pair)
{
    const char *name = pair->name, *value = pair->value;
    uint32_t n = pair->name_length, value_length = pair->value_length;
    if (!n || n > sizeof pair->name || has_byte(name, n, 0) || has_byte(name, n, 1) || has_byte(name, n, 2))
        return 0;
    if (n == 8 && !memcmp(name, "UNIQ_KEY", 8)) /* the reader sees to it that there is one */
        return 0;
    switch (pair->value_from) {
    case RMQ_ADD_NOTHING: return 1;
    case RMQ_ADD_TOPIC: return n + 2 + RMQ_NAME_MAX;
    case RMQ_ADD_QUEUE:
    case RMQ_ADD_LEVEL: return n + 2 + QUEUE_DIGITS;
    case RMQ_ADD_OUT_MS: return n + 2 + TIME_DIGITS;
    case RMQ_ADD_UNIQ_KEY: return n + 2 + RMQ_RULE_KEY_MAX;
    case RMQ_ADD_TEXT:
        if (!value_length || value_length > sizeof pair->value || has_byte(value, value_length, 0) || has_byte(value, value_length, 2))
            return 0;
        return n + 2 + value_length;
    default: return 0;
    }
}

static int redirect_is_sound(const struct rmq_admission_rule *rule)
{
    uint32_t bytes = MADE_KEY_PAIR;
    if (rule->pair_count > RMQ_RULE_PAIRS_MAX || rule->queue_from > RMQ_QUEUE_ORIGINAL || !rule->topic_id ||
        rule->queue_id > QUEUES_MAX)
        return 0;
    if (rule->queue_from == RMQ_QUEUE_LEVEL && (rule->when != RMQ_WHEN_POSITIVE || !rule->queue_id))
        return 0;
    for (uint32_t i = 0; i < rule->pair_count; i++) {
        uint32_t more = pair_bytes(&rule->pairs[i]);
        if (!more)
            return 0;
        bytes += more;
    }
    return bytes <= RMQ_SCRATCH_BYTES;
}

static int has_pair_of_time(const struct rmq_admission_rule *rule)
{
    for (uint32_t i = 0; i < rule->pair_count; i++)
        if (rule->pairs[i].value_from == RMQ_ADD_OUT_MS)
            return 1;
    return 0;
}

static int timer_is_sound(const struct rmq_admission_rule *rule)
{
    return rule->delay_max_ms > 0 && rule->slot_messages_max >= 0 && rule->queue_from == RMQ_QUEUE_FIXED &&
           rule->precision_ms <= PRECISION_MS_MAX && rule->when != RMQ_WHEN_POSITIVE && rule->with_when != RMQ_WHEN_POSITIVE;
}

static int is_sound(const struct rmq_admission_rule *rule)
{
    int is_any = rule->transaction == RMQ_TRANSACTION_ANY;
    if (rule->name_length > sizeof rule->name || rule->when > RMQ_WHEN_TRUE ||
        (!is_any && rule->transaction & ~RMQ_SYS_TRANSACTION_MASK))
        return 0;
    if (!rule->name_length && rule->kind != RMQ_RULE_TIMER && (!rule->transaction || is_any || rule->when != RMQ_WHEN_PRESENT))
        return 0;
    if (rule->name_length && !rmq_send_reserves((const uint8_t *)rule->name, rule->name_length))
        return 0;
    if (rule->room_bytes > RMQ_PROPERTIES_BYTES_MAX || (rule->halves_max && !rule->half_topic_id))
        return 0;
    if (rule->with_length > sizeof rule->with_name || rule->with_when > RMQ_WHEN_TRUE || rule->retried > 1)
        return 0;
    if (rule->with_length && (!rule->name_length || !rmq_send_reserves((const uint8_t *)rule->with_name, rule->with_length)))
        return 0;
    if (rule->kind == RMQ_RULE_REFUSE)
        return memchr(rule->remark, 0, sizeof rule->remark) != NULL;
    if (rule->kind == RMQ_RULE_TIMER)
        return timer_is_sound(rule) && redirect_is_sound(rule);
    return rule->kind == RMQ_RULE_REDIRECT && redirect_is_sound(rule) && !has_pair_of_time(rule);
}

int rmq_rules_publish(struct rmq_plane *plane, const struct rmq_admission_rules *rules)
{
    struct rmq_admission *admission = &rmq_header(plane)->admission;
    struct rmq_admission_rules *copy = &admission->copy[(admission->version + 1) & 1];
    if (rules->count > RMQ_RULES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < rules->count; i++)
        if (!is_sound(&rules->rules[i]))
            return -EINVAL;
    rmq_fence(); /* the overwritten copy is older than the version that readers have seen since */
    copy->count = 0;
    RMQ_CRASH("control-rules-begun");
    memcpy(copy->rules, rules->rules, rules->count * sizeof *rules->rules);
    RMQ_CRASH("control-rules-filled");
    copy->count = rules->count;
    RMQ_CRASH("control-rules-counted");
    rmq_store(&admission->version, admission->version + 1);
    RMQ_CRASH("control-rules-published");
    return 0;
}

void rmq_rules_take(struct rmq_plane *plane, struct rmq_admission_rules *rules, uint64_t *version)
{
    const struct rmq_admission *admission = &rmq_header(plane)->admission;
    for (uint64_t now; (now = rmq_load(&admission->version)) != *version; *version = now) {
        const struct rmq_admission_rules *copy = &admission->copy[now & 1];
        uint32_t count = rmq_load_relaxed(&copy->count);
        rules->count = count < RMQ_RULES_MAX ? count : RMQ_RULES_MAX;
        memcpy(rules->rules, copy->rules, rules->count * sizeof *rules->rules);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    }
}
