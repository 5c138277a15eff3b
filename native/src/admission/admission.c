/* admission.c: the decision about a decoded send. Twin: ipc/admission_twin.py. */
#include "admission/admission.h"

#include <string.h>

#include "admission/admission_time.h"
#include "base/number_text.h"
#include "codec/record.h"
#include "plane/settings_word.h"

#define BATCH_TOPIC_MAX 127
#define BROKER_SYS_FLAGS 0xC0 /* inner batches: no client sends them */
#define KEY_PAIR_BYTES 10     /* of a UNIQ_KEY pair beside its value */

uint32_t rmq_admit_head(const struct rmq_send *s, uint32_t body_length, const struct rmq_admission_limits *limits, int has_rules)
{
    if (s->sys_flag & (has_rules ? BROKER_SYS_FLAGS : BROKER_SYS_FLAGS | RMQ_SYS_TRANSACTION_MASK))
        return RMQ_REASON_SYS_FLAG;
    return !body_length || body_length > limits->message_bytes_max ? RMQ_REASON_BODY : RMQ_REASON_NOTHING;
}

uint32_t rmq_admit_target(struct rmq_send *s, uint64_t config, uint32_t turn, int approved)
{
    uint32_t flags = rmq_topic_flags(config), reads = rmq_topic_read_queues(config), writes = rmq_topic_write_queues(config);
    if (!(flags & RMQ_TOPIC_LIVE))
        return RMQ_REASON_TOPIC;
    if (flags & RMQ_TOPIC_SEND_COLD && !approved)
        return RMQ_REASON_TOPIC_COLD;
    if (!writes)
        return RMQ_REASON_WRITE_QUEUES;
    if (s->batch && s->topic_length > BATCH_TOPIC_MAX)
        return RMQ_REASON_BATCH_TOPIC;
    if (s->queue_id < 0)
        s->queue_id = (int32_t)(turn % writes);
    return (uint32_t)s->queue_id >= (reads > writes ? reads : writes) ? RMQ_REASON_QUEUE : RMQ_REASON_NOTHING;
}

/* --- rules ---------------------------------------------------------------------------------------------------------------- */

static int is_named(const char *name, uint32_t length, const struct rmq_reserved_pair *pair)
{
    return length && length == pair->name_length && !memcmp(name, pair->name, length);
}

static uint32_t reserved_count(const struct rmq_send *s)
{
    return s->reserved_count < RMQ_RESERVED_PAIRS_MAX ? s->reserved_count : RMQ_RESERVED_PAIRS_MAX;
}

static int sees(const struct rmq_admission_rule *rule, const struct rmq_send *s)
{
    return !s->batch || (rule->kind == RMQ_RULE_TIMER && !rule->name_length);
}

/* A TIMER rule names all pairs of timers: those of a message that was a timer message before are stored as they are. */
static int names_pair(const struct rmq_admission_rule *rule, const struct rmq_reserved_pair *pair)
{
    if (rule->kind == RMQ_RULE_TIMER && pair->name_length > 6 && !memcmp(pair->name, "TIMER_", 6))
        return 1;
    return is_named(rule->name, rule->name_length, pair);
}

/* 1 if a rule, matching or not, names each reserved pair. */
static int all_are_named(const struct rmq_send *s, const struct rmq_admission_rules *rules)
{
    for (uint32_t i = 0; i < reserved_count(s); i++) {
        uint32_t n = 0;
        while (n < rules->count && !(sees(&rules->rules[n], s) && names_pair(&rules->rules[n], &s->reserved[i])))
            n++;
        if (n == rules->count)
            return 0;
    }
    return s->reserved_count <= RMQ_RESERVED_PAIRS_MAX;
}

static const struct rmq_reserved_pair *pair_of(const struct rmq_send *s, const char *name, uint32_t length)
{
    const struct rmq_reserved_pair *found = NULL;
    for (uint32_t i = 0; i < reserved_count(s); i++)
        if (is_named(name, length, &s->reserved[i]))
            found = &s->reserved[i];
    return found;
}

static int is_true(const uint8_t *text, uint32_t length)
{
    static const char word[4] = {'t', 'r', 'u', 'e'};
    for (uint32_t i = 0; i < sizeof word; i++)
        if (length != sizeof word || (text[i] | 0x20) != word[i])
            return 0;
    return 1;
}

enum answer { NO, YES, UNCLEAR };

static enum answer pair_holds(const struct rmq_reserved_pair *pair, uint32_t when, int32_t *number)
{
    if (!pair)
        return NO;
    switch (when) {
    case RMQ_WHEN_POSITIVE:
        if (!rmq_text_int32(pair->value, pair->value_length, number))
            return UNCLEAR;
        return *number > 0 ? YES : NO;
    case RMQ_WHEN_TRUE:
        return is_true(pair->value, pair->value_length) ? YES : NO;
    default:
        return YES;
    }
}

/* Tells if the rule matches; *number: the value of its pair, for WHEN_POSITIVE. */
static enum answer holds(const struct rmq_admission_rule *rule, const struct rmq_send *s, int32_t *number)
{
    int32_t of_second;
    *number = 0;
    if (rule->kind == RMQ_RULE_TIMER && s->topic_id == rule->topic_id)
        return NO;
    if (rule->transaction != RMQ_TRANSACTION_ANY && (s->sys_flag & RMQ_SYS_TRANSACTION_MASK) != rule->transaction)
        return NO;
    if (rule->retried && s->reconsume_times <= 0)
        return NO;
    if (!rule->name_length)
        return YES;
    enum answer first = pair_holds(pair_of(s, rule->name, rule->name_length), rule->when, number);
    if (first != YES || !rule->with_length)
        return first;
    return pair_holds(pair_of(s, rule->with_name, rule->with_length), rule->with_when, &of_second);
}

static uint32_t digits(uint64_t number)
{
    uint32_t count = 1;
    while (number /= 10)
        count++;
    return count;
}

/* Bytes of the pairs that the rule adds, and that copies will get; 0 with *unfit when a value is too long for it. */
static uint32_t added_bytes(const struct rmq_admission_rule *rule, const struct rmq_send *s, uint32_t key_length, uint32_t level,
                            uint64_t out_ms, int *unfit)
{
    uint32_t bytes = rule->room_bytes;
    for (uint32_t i = 0; i < rule->pair_count; i++) {
        const struct rmq_rule_pair *pair = &rule->pairs[i];
        if (pair->value_from == RMQ_ADD_NOTHING)
            continue;
        bytes += pair->name_length + 2u;
        switch (pair->value_from) {
        case RMQ_ADD_TOPIC: bytes += s->topic_length; break;
        case RMQ_ADD_QUEUE: bytes += digits((uint32_t)s->queue_id); break;
        case RMQ_ADD_LEVEL: bytes += digits(level); break;
        case RMQ_ADD_OUT_MS: bytes += digits(out_ms); break;
        case RMQ_ADD_UNIQ_KEY:
            bytes += key_length;
            *unfit |= key_length > RMQ_RULE_KEY_MAX;
            break;
        default: bytes += pair->value_length;
        }
    }
    return bytes;
}

static void ask(struct rmq_admitted *out, uint32_t reason) { *out = (struct rmq_admitted){.verdict = RMQ_ADMIT_ASK, .reason = reason}; }

static uint32_t apply(const struct rmq_admission_rule *rule, uint32_t number, const struct rmq_send *s, int32_t value,
                      uint32_t key_length, struct rmq_admitted *out)
{
    uint32_t level = (uint32_t)value < rule->queue_id ? (uint32_t)value : rule->queue_id, bytes;
    int unfit = 0;
    out->verdict = RMQ_ADMIT_REFUSE;
    out->rule = number;
    if (rule->kind == RMQ_RULE_REFUSE || out->time_fault)
        return 0;
    out->verdict = RMQ_ADMIT_REDIRECT;
    out->level = level;
    out->queue_id = rule->queue_from == RMQ_QUEUE_LEVEL ? level - 1
                    : rule->queue_from == RMQ_QUEUE_ORIGINAL ? (uint32_t)s->queue_id : rule->queue_id;
    bytes = added_bytes(rule, s, key_length, level, (uint64_t)out->out_ms, &unfit);
    if (unfit)
        ask(out, RMQ_REASON_VALUE);
    return bytes;
}

/* 1 if the send asks for a time that this rule must redirect or refuse. */
static int time_matters(const struct rmq_admission_rule *rule, const struct rmq_send *s, int64_t now_ms, struct rmq_admitted *out)
{
    uint32_t asked = rmq_time_asked(s, rule, now_ms, out);
    out->time_fault = asked >= RMQ_TIME_DISABLED ? asked : 0;
    return asked >= RMQ_TIME_DISABLED || asked == RMQ_TIME_LATER;
}

/* The first rule that matches. Returns the bytes of the pairs that it adds. */
static uint32_t choose(const struct rmq_send *s, const struct rmq_admission_rules *rules, int approved, uint32_t key_length,
                       int64_t now_ms, struct rmq_admitted *out)
{
    int32_t value;
    if (!approved && (rules ? !all_are_named(s, rules) : s->reserved_count > 0)) {
        ask(out, RMQ_REASON_PAIR);
        return 0;
    }
    for (uint32_t i = 0; rules && i < rules->count; i++) {
        const struct rmq_admission_rule *rule = &rules->rules[i];
        enum answer answer = sees(rule, s) ? holds(rule, s, &value) : NO;
        if (answer == YES && rule->kind == RMQ_RULE_TIMER && !time_matters(rule, s, now_ms, out))
            continue;
        if (answer == YES)
            return apply(rule, i, s, value, key_length, out);
        if (answer == UNCLEAR && !approved) {
            ask(out, RMQ_REASON_VALUE);
            return 0;
        }
    }
    if (s->sys_flag & RMQ_SYS_TRANSACTION_MASK)
        ask(out, RMQ_REASON_SYS_FLAG);
    return 0;
}

void rmq_admit_pairs(const struct rmq_send *s, const struct rmq_admission_limits *limits, const struct rmq_admission_rules *rules,
                     int approved, int64_t now_ms, struct rmq_admitted *out)
{
    uint32_t added = s->uniq_key || s->batch ? 0 : limits->made_key_length;
    *out = (struct rmq_admitted){.verdict = RMQ_ADMIT_PLAIN};
    if (s->reserved_count || s->sys_flag & RMQ_SYS_TRANSACTION_MASK) {
        uint32_t key_length = s->uniq_key ? s->uniq_key_length : limits->made_key_length - KEY_PAIR_BYTES;
        added += choose(s, rules, approved, key_length, now_ms, out);
    }
    if (out->verdict > RMQ_ADMIT_REDIRECT)
        return;
    out->pairs_bytes = s->properties_length + 1 + added + limits->additions_length;
    if (out->pairs_bytes > RMQ_PROPERTIES_BYTES_MAX)
        ask(out, RMQ_REASON_PROPERTIES);
}
