#include "reader/sends.h"

#include <stdlib.h>
#include <string.h>

#include "admission/admission_time.h"
#include "admission/half_shares.h"
#include "codec/batch_body.h"
#include "codec/record.h"
#include "codec/send_decode.h"
#include "plane/settings_word.h"
#include "reader/request_codes.h"

/* Topic id and queue slot from the published tables; 0 = control has to look at it. */
static int resolve(struct rmq_sends *sends, struct rmq_connection *c, struct rmq_send *s, int approved)
{
    if (s->topic_length > RMQ_NAME_MAX)
        return 0;
    struct rmq_topic *topic = rmq_topic_at(sends->context->plane, c->sends.topic_id);
    uint64_t config = c->sends.topic_id ? rmq_load(&topic->config) : 0;
    if (!rmq_topic_is_live(config) || topic->name_length != s->topic_length ||
        memcmp(topic->name, s->topic, s->topic_length)) {
        uint32_t id = rmq_topic_find(sends->context->plane, (const char *)s->topic, s->topic_length);
        if (id == RMQ_NONE)
            return 0;
        c->sends.topic_id = id;
        config = rmq_load(&rmq_topic_at(sends->context->plane, id)->config);
    }
    s->topic_id = c->sends.topic_id;
    int chooses = s->queue_id < 0;
    if (rmq_admit_target(s, config, sends->round_robin, approved))
        return 0;
    sends->round_robin += (uint32_t)chooses;
    s->queue_slot = rmq_queue_find(sends->context->plane, s->topic_id, (uint32_t)s->queue_id);
    return s->queue_slot != RMQ_NONE;
}

/* --- the properties, as they will be stored --------------------------------------------------------------------------- */

static struct rmq_admission_limits limits_of(const struct rmq_sends *sends)
{
    const struct rmq_settings *s = sends->context->settings;
    return (struct rmq_admission_limits){s->message_bytes_max, s->additions_length, rmq_uniq_pair_length(&sends->uniq_keys)};
}

static int asks_for_rules(const struct rmq_send *s) { return s->reserved_count || s->sys_flag & RMQ_SYS_TRANSACTION_MASK; }

/* The system topic's queue; 0 = it is gone. */
static int find_target(struct rmq_sends *sends, const struct rmq_admitted *a, struct rmq_send_target *target)
{
    const struct rmq_admission_rule *rule = &sends->rules->rules[a->rule];
    *target = (struct rmq_send_target){rule, a->level, a->queue_id, RMQ_NONE, a->out_ms};
    if (rule->topic_id <= rmq_load(&sends->context->header->tables.topic_count) &&
        rmq_topic_is_live(rmq_load(&rmq_topic_at(sends->context->plane, rule->topic_id)->config)))
        target->queue_slot = rmq_queue_find(sends->context->plane, rule->topic_id, a->queue_id);
    return target->queue_slot != RMQ_NONE;
}

/* The slot of a timer message may be too full. Without a limit its count is not read. */
static void check_slot(struct rmq_sends *sends, const struct rmq_admission_rule *rule, int64_t now_ms, struct rmq_admitted *a)
{
    if (rule->slot_messages_max == INT32_MAX)
        return;
    sends->chance_seed = sends->chance_seed * 1664525u + 1013904223u;
    const char *path = sends->context->settings->store_path;
    int64_t count = rmq_slot_count(&sends->slot_counts, path, a->out_ms, rule->precision_ms, now_ms);
    rmq_admit_slot(rule, count, (sends->chance_seed >> 8) % RMQ_CHANCES, a);
}

/* Checks everything and leaves the frame as it is: of escaped properties s has a copy in sends->unescaped. */
static void read_properties(struct rmq_sends *sends, struct rmq_send *s, const struct rmq_admission_limits *limits, int approved,
                            struct rmq_admitted *a)
{
    if (s->properties_escaped && !rmq_send_unescape(s, sends->unescaped)) {
        *a = (struct rmq_admitted){.verdict = RMQ_ADMIT_ASK, .reason = RMQ_REASON_ESCAPES};
    } else if (!rmq_send_scan(s)) {
        *a = (struct rmq_admitted){.verdict = RMQ_ADMIT_ASK, .reason = RMQ_REASON_NUL};
    } else {
        if (asks_for_rules(s))
            rmq_rules_take(sends->context->plane, sends->rules, &sends->rules_version);
        int64_t now_ms = s->reserved_count ? rmq_wall_ms() : 0;
        rmq_admit_pairs(s, limits, sends->rules, approved, now_ms, a);
        if (a->out_ms)
            check_slot(sends, &sends->rules->rules[a->rule], now_ms, a);
    }
}

static enum rmq_outcome refuse(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h,
                               const char *remark)
{
    rmq_answer_busy(sends->answers, c, h, remark);
    return RMQ_OUTCOME_DONE;
}

static enum rmq_outcome refuse_field(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h,
                                     const uint8_t *name, uint32_t length)
{
    rmq_answer_field(sends->answers, c, h, name, length);
    return RMQ_OUTCOME_DONE;
}

static enum rmq_outcome refuse_properties(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    const char *name = h->code == RMQ_CODE_SEND ? "properties" : "i";
    return refuse_field(sends, c, h, (const uint8_t *)name, (uint32_t)strlen(name));
}

static void refuse_by_rule(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h,
                           const struct rmq_send *s, const struct rmq_admitted *a)
{
    const struct rmq_admission_rule *rule = &sends->rules->rules[a->rule];
    char remark[RMQ_TIME_REMARK_MAX];
    if (!a->time_fault) {
        rmq_answer_error(sends->answers, c, h, rule->code, rule->remark);
        return;
    }
    rmq_time_remark(remark, s, rule, a);
    rmq_answer_error(sends->answers, c, h, rmq_time_code(a->time_fault), remark);
}

/* The share of open half messages that is full, RMQ_HALF_FITS for other messages. `remark`: the text of a refusal. */
static uint32_t full_share(struct rmq_sends *sends, const struct rmq_connection *c, const struct rmq_send *s,
                           const struct rmq_admission_rule *rule, char *remark)
{
    if (!rule || !rule->halves_max)
        return RMQ_HALF_FITS;
    uint32_t slot = rmq_queue_find(sends->context->plane, rule->half_topic_id, 0), full;
    uint64_t end = slot == RMQ_NONE ? 0 : rmq_load(&rmq_queue_at(sends->context->plane, slot)->max_offset), found;
    struct rmq_plane_header *header = sends->context->header;
    struct rmq_half_keys keys = rmq_half_keys_of(header->name_secret, c->host, c->v6, s->properties, s->properties_length);
    if ((full = rmq_half_room(&header->half_shares, rule, end, keys, &found)) != RMQ_HALF_FITS)
        rmq_half_remark(remark, full, rule, found);
    return full;
}

/* 1 if each message of a redirected batch has room for the pairs that it gets until its delivery. Write checks those that
 * are stored now, and refuses broken elements. */
static int elements_fit(const uint8_t *at, uint32_t left, uint32_t pairs_bytes)
{
    for (uint32_t size; (size = rmq_batch_element_bytes(at, left)); at += size, left -= size) {
        uint32_t own = size - RMQ_BATCH_ELEMENT_BYTES - rmq_get32(at + 16);
        if (own && own + (at[size - 1] != 2) + pairs_bytes > RMQ_PROPERTIES_BYTES_MAX)
            return 0;
    }
    return 1;
}

static enum rmq_outcome refuse_elements(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    rmq_answer_error(sends->answers, c, h, RMQ_ANSWER_ILLEGAL,
                     "the message is illegal: in a message of the batch, properties with those that the broker adds until the "
                     "delivery have more than 32767 bytes");
    return RMQ_OUTCOME_DONE;
}

enum rmq_outcome rmq_send_frame(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h,
                                uint8_t *frame, uint32_t length, struct rmq_frame_ref *ref, int approved, uint32_t rule)
{
    struct rmq_send s;
    struct rmq_admitted a;
    struct rmq_send_target target = {0};
    struct rmq_admission_limits limits = limits_of(sends);
    if (!rmq_send_decode(h, &s)) /* RMQ_REASON_FIELDS */
        return approved && s.unread ? refuse_field(sends, c, h, s.unread->key, s.unread->key_length) : RMQ_OUTCOME_COLD;
    if (asks_for_rules(&s))
        rmq_rules_take(sends->context->plane, sends->rules, &sends->rules_version);
    if (rmq_admit_head(&s, length - 8 - h->header_length, &limits, sends->rules->count > 0) || !resolve(sends, c, &s, approved))
        return RMQ_OUTCOME_COLD;
    if (!rmq_sends_have_room(sends)) {
        if (sends->pendings->refuses)
            return refuse(sends, c, h, "[OVERLOAD]too many requests under way, try again later");
        c->sends.stalled_ns = c->sends.stalled_ns ? c->sends.stalled_ns : sends->context->now_ns;
        return RMQ_OUTCOME_STALL;
    }
    uint8_t *home = s.properties;
    read_properties(sends, &s, &limits, approved, &a);
    if (approved && a.verdict == RMQ_ADMIT_ASK && a.reason == RMQ_REASON_ESCAPES)
        return refuse_properties(sends, c, h);
    if (a.verdict == RMQ_ADMIT_ASK || (a.verdict == RMQ_ADMIT_REDIRECT && !find_target(sends, &a, &target)))
        return RMQ_OUTCOME_COLD;
    if (rule && a.verdict != RMQ_ADMIT_REFUSE &&
        !rmq_redo_target(&sends->redo_rules, sends->context->plane, rule, &s, &limits, &target))
        return RMQ_OUTCOME_COLD;
    if (a.verdict == RMQ_ADMIT_REFUSE) {
        refuse_by_rule(sends, c, h, &s, &a);
        return RMQ_OUTCOME_DONE;
    }
    char remark[RMQ_HALF_REMARK_MAX];
    if (full_share(sends, c, &s, target.rule, remark))
        return refuse(sends, c, h, remark);
    if (s.batch && target.rule && !elements_fit(frame + 8 + h->header_length, length - 8 - h->header_length, a.pairs_bytes))
        return refuse_elements(sends, c, h);
    rmq_send_finish(&s, home, target.rule); /* from here on the frame is changed: it cannot stall any more */
    const char *fault = rmq_send_push(sends, c, h, &s, &target, frame, length, ref);
    if (fault)
        return refuse(sends, c, h, fault);
    sends->context->counters[RMQ_READ_APPENDS]++;
    return RMQ_OUTCOME_DONE;
}

int rmq_sends_open(struct rmq_sends *sends, struct rmq_answers *answers, struct rmq_pendings *pendings)
{
    sends->context = answers->context;
    sends->arena = pendings->arena;
    sends->answers = answers;
    sends->pendings = pendings;
    sends->requests = &sends->context->port->request;
    sends->request_head = rmq_load(&sends->requests->head);
    rmq_uniq_keys_open(&sends->uniq_keys, sends->context);
    rmq_slot_counts_open(&sends->slot_counts);
    sends->chance_seed = (uint32_t)rmq_mono_ns();
    sends->unescaped = malloc(RMQ_PROPERTIES_JSON_MAX); /* touched as far as used */
    sends->rules = calloc(1, sizeof *sends->rules);
    rmq_redo_rules_open(&sends->redo_rules);
    return sends->unescaped && sends->rules ? 0 : -ENOMEM;
}

void rmq_sends_close(struct rmq_sends *sends)
{
    if (!sends->context)
        return; /* it was not opened */
    rmq_slot_counts_close(&sends->slot_counts);
    free(sends->unescaped);
    free(sends->rules);
}
