/* reader_append.c: an admitted send (admission.h) -> a slot of the request ring. A send that needs control's decision goes
 * cold, unchanged.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "admission/admission.h"
#include "admission/admission_rules.h"
#include "admission/admission_time.h"
#include "admission/half_shares.h"
#include "base/number_text.h"
#include "codec/batch_body.h"
#include "codec/record.h"
#include "codec/send_decode.h"
#include "codec/topic_names.h"
#include "metrics/latency.h"
#include "plane/settings_word.h"
#include "reader/reader_state.h"

#define UNIQ_NAME "UNIQ_KEY"
#define HOST_SYS_FLAGS (RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6)

/* The target of the message, if it is not the topic that the client named. */
struct target {
    const struct rmq_admission_rule *rule; /* NULL: that topic */
    uint32_t level, queue_id, queue_slot;
    int64_t out_ms; /* of a timer message */
};

/* Topic id and queue slot from the published tables; 0 = control has to look at it. */
static int resolve(struct rmq_reader *r, struct rmq_connection *c, struct rmq_send *s, int approved)
{
    if (s->topic_length > RMQ_NAME_MAX)
        return 0;
    struct rmq_topic *topic = rmq_topic_at(r->context.plane, c->topic_id);
    uint64_t config = c->topic_id ? rmq_load(&topic->config) : 0;
    if (!rmq_topic_is_live(config) || topic->name_length != s->topic_length ||
        memcmp(topic->name, s->topic, s->topic_length)) {
        uint32_t id = rmq_topic_find(r->context.plane, (const char *)s->topic, s->topic_length);
        if (id == RMQ_NONE)
            return 0;
        c->topic_id = id;
        config = rmq_load(&rmq_topic_at(r->context.plane, id)->config);
    }
    s->topic_id = c->topic_id;
    int chooses = s->queue_id < 0;
    if (rmq_admit_target(s, config, r->round_robin, approved))
        return 0;
    r->round_robin += (uint32_t)chooses;
    s->queue_slot = rmq_queue_find(r->context.plane, s->topic_id, (uint32_t)s->queue_id);
    return s->queue_slot != RMQ_NONE;
}

/* --- UNIQ_KEY: address, pid, a number of this process, ms since the month began, counter; upper-case hex ------------- */

static void uniq_open(struct rmq_reader *r)
{
    uint8_t raw[32];
    uint32_t n = r->context.settings->store_host_bytes == 16 ? 16 : 4, pid = (uint32_t)getpid();
    uint32_t mark = (uint32_t)rmq_mono_ns() ^ r->context.generation << 24 ^ r->context.port_number << 16;
    memcpy(raw, r->context.settings->store_host, n);
    raw[n] = (uint8_t)(pid >> 8);
    raw[n + 1] = (uint8_t)pid;
    memcpy(raw + n + 2, &mark, 4);
    memcpy(r->uniq_prefix, UNIQ_NAME "\x01", 9);
    rmq_hex_put((uint8_t *)r->uniq_prefix + 9, raw, n + 6);
    r->uniq_prefix_length = 9 + 2 * (n + 6);
    time_t now = time(NULL);
    struct tm month;
    gmtime_r(&now, &month);
    month.tm_mday = 1;
    month.tm_hour = month.tm_min = month.tm_sec = 0;
    r->uniq_month_ms = (int64_t)timegm(&month) * 1000;
}

static uint32_t uniq_pair_length(const struct rmq_reader *r) { return r->uniq_prefix_length + 12 + 1; }

static void put_uniq_pair(struct rmq_reader *r, uint8_t *to)
{
    uint32_t ms = (uint32_t)(rmq_wall_ms() - r->uniq_month_ms), count = r->uniq_counter++;
    uint8_t raw[6] = {(uint8_t)(ms >> 24), (uint8_t)(ms >> 16), (uint8_t)(ms >> 8), (uint8_t)ms, (uint8_t)(count >> 8), (uint8_t)count};
    memcpy(to, r->uniq_prefix, r->uniq_prefix_length);
    rmq_hex_put(to + r->uniq_prefix_length, raw, 6);
    to[r->uniq_prefix_length + 12] = 2;
}

/* --- the properties, as they will be stored --------------------------------------------------------------------------- */

static struct rmq_admission_limits limits_of(const struct rmq_reader *r)
{
    return (struct rmq_admission_limits){r->context.settings->message_bytes_max, r->context.settings->additions_length, uniq_pair_length(r)};
}

static int asks_for_rules(const struct rmq_send *s) { return s->reserved_count || s->sys_flag & RMQ_SYS_TRANSACTION_MASK; }

/* The system topic's queue; 0 = it is gone. */
static int find_target(struct rmq_reader *r, const struct rmq_admitted *a, struct target *target)
{
    const struct rmq_admission_rule *rule = &r->rules->rules[a->rule];
    *target = (struct target){rule, a->level, a->queue_id, RMQ_NONE, a->out_ms};
    if (rule->topic_id <= rmq_load(&r->context.header->tables.topic_count) &&
        rmq_topic_is_live(rmq_load(&rmq_topic_at(r->context.plane, rule->topic_id)->config)))
        target->queue_slot = rmq_queue_find(r->context.plane, rule->topic_id, a->queue_id);
    return target->queue_slot != RMQ_NONE;
}

/* The redirect of a send to a retry topic that is a dead letter: SendMessageProcessor.handleRetryAndDLQ stores DELAY = -1. Queue 0 of
 * the group's dead letter topic; 0 = it is gone, or the pair has no room. */
static int find_dead_letters(struct rmq_reader *r, const struct rmq_send *s, const struct rmq_admission_limits *limits,
                             struct target *target)
{
    const uint32_t from = RMQ_RETRY_PREFIX_LENGTH, to = RMQ_DEAD_PREFIX_LENGTH;
    char name[RMQ_NAME_MAX];
    if (s->batch || !rmq_is_retry_topic(s->topic, s->topic_length))
        return 0;
    uint32_t lacks_end = s->properties_length && s->properties[s->properties_length - 1] != 2;
    uint32_t added = lacks_end + (s->uniq_key ? 0 : limits->made_key_length) + (uint32_t)sizeof "DELAY=-1;" - 1;
    if (s->properties_length + added + limits->additions_length > RMQ_PROPERTIES_BYTES_MAX)
        return 0;
    memcpy(name, RMQ_DEAD_PREFIX, to);
    memcpy(name + to, s->topic + from, s->topic_length - from);
    uint32_t id = rmq_topic_find(r->context.plane, name, to + s->topic_length - from);
    if (id == RMQ_NONE)
        return 0;
    r->dead_letters.topic_id = id;
    *target = (struct target){&r->dead_letters, 0, 0, rmq_queue_find(r->context.plane, id, 0), 0};
    return target->queue_slot != RMQ_NONE;
}

/* The slot of a timer message may be too full. Without a limit its count is not read. */
static void check_slot(struct rmq_reader *r, const struct rmq_admission_rule *rule, int64_t now_ms, struct rmq_admitted *a)
{
    if (rule->slot_messages_max == INT32_MAX)
        return;
    r->chance_seed = r->chance_seed * 1664525u + 1013904223u;
    rmq_admit_slot(rule, rmq_slot_count(&r->slot_counts, r->context.settings->store_path, a->out_ms, rule->precision_ms, now_ms),
                   (r->chance_seed >> 8) % RMQ_CHANCES, a);
}

/* Checks everything and leaves the frame as it is: of escaped properties s has a copy in r->unescaped. */
static void read_properties(struct rmq_reader *r, struct rmq_send *s, const struct rmq_admission_limits *limits, int approved,
                            struct rmq_admitted *a)
{
    if (s->properties_escaped && !rmq_send_unescape(s, r->unescaped)) {
        *a = (struct rmq_admitted){.verdict = RMQ_ADMIT_ASK, .reason = RMQ_REASON_ESCAPES};
    } else if (!rmq_send_scan(s)) {
        *a = (struct rmq_admitted){.verdict = RMQ_ADMIT_ASK, .reason = RMQ_REASON_NUL};
    } else {
        if (asks_for_rules(s))
            rmq_rules_take(r->context.plane, r->rules, &r->rules_version);
        int64_t now_ms = s->reserved_count ? rmq_wall_ms() : 0;
        rmq_admit_pairs(s, limits, r->rules, approved, now_ms, a);
        if (a->out_ms)
            check_slot(r, &r->rules->rules[a->rule], now_ms, a);
    }
}

/* From here on nothing goes cold any more: the bytes of the properties in the frame, `home`, are ours, and one in front of them. */
static void finish_properties(struct rmq_send *s, uint8_t *home, const struct rmq_admission_rule *rule)
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

/* --- pairs of a rule ---------------------------------------------------------------------------------------------------- */

static uint8_t *put_bytes(uint8_t *to, const void *from, uint32_t length)
{
    memcpy(to, from, length);
    return to + length;
}

/* The values are those of the topic that the client named, which is still in `s`. */
static uint8_t *put_rule_pairs(struct rmq_reader *r, const struct rmq_send *s, const struct target *target, uint8_t *to)
{
    const struct rmq_topic *topic = rmq_topic_at(r->context.plane, s->topic_id); /* the frame may have moved */
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

static void redirect(struct rmq_send *s, const struct target *target)
{
    s->topic_id = target->rule->topic_id;
    s->queue_id = (int32_t)target->queue_id;
    s->queue_slot = target->queue_slot;
    s->sys_flag &= ~target->rule->sys_flag_clear;
}

/* --- the request -------------------------------------------------------------------------------------------------------- */

static void fill_request(struct rmq_reader *r, const struct rmq_connection *c, const struct rmq_send *s, struct rmq_request *q,
                         const struct rmq_pending *p, uint32_t extra_length, uint8_t *body, uint32_t body_length)
{
    q->body_at = rmq_arena_offset(&r->arena, body);
    q->properties_at = s->properties_length ? rmq_arena_offset(&r->arena, s->properties) : 0;
    q->extra_at = extra_length ? rmq_arena_offset(&r->arena, rmq_pending_scratch(&r->pendings, p)) : 0;
    q->body_length = body_length;
    q->properties_length = (uint16_t)s->properties_length;
    q->extra_length = (uint16_t)extra_length;
    q->token = rmq_pending_id(&r->pendings, p);
    q->generation = r->context.generation;
    q->topic_id = s->topic_id;
    q->queue_slot = s->queue_slot;
    q->queue_id = (uint32_t)s->queue_id;
    q->flag = s->flag;
    q->sys_flag = s->sys_flag & ~HOST_SYS_FLAGS;
    q->reconsume_times = s->reconsume_times;
    q->born_time_ms = s->born_time_ms;
    q->prepared_transaction_offset = 0;
    q->received_mono_ns = p->received_ns;
    memcpy(q->born_host, c->host, sizeof q->born_host);
    q->born_port = c->port;
    q->kind = s->batch ? RMQ_APPEND_BATCH : RMQ_APPEND_SINGLE;
    q->flags = (uint16_t)((s->no_wait ? RMQ_APPEND_FLAG_NO_WAIT : 0) | (c->v6 ? RMQ_APPEND_FLAG_BORN_V6 : 0));
}

/* Chooses the owner of the frame's bytes until write has answered. If few buffers are left, the frame moves to a block, so that
 * its neighbours do not wait for it; a large one only while there are many blocks. 0 = no block, and no frame keeps the last
 * buffers. */
static int keep(struct rmq_reader *r, struct rmq_send *s, uint8_t **frame, uint32_t length, struct rmq_frame_ref *ref,
                struct rmq_frame_ref *kept)
{
    if (ref->buffer != RMQ_NONE && rmq_buffers_few(&r->arena)) {
        uint8_t *old = *frame;
        uint8_t *to = length <= r->arena.buffer_bytes / 4 || rmq_blocks_many(&r->arena) ? rmq_block_take(&r->arena, length, kept) : NULL;
        if (to) {
            memcpy(to, old, length);
            *frame = to;
            s->properties = s->properties_length ? to + (s->properties - old) : NULL;
            s->uniq_key = s->uniq_key ? to + (s->uniq_key - old) : NULL;
            return 1;
        }
        if (rmq_buffers_last(&r->arena))
            return 0;
    }
    rmq_frame_ref_retain(&r->arena, ref, kept);
    return 1;
}

/* Stores the time of its receipt: the beginning of this round, or of the round in which no slot was free. */
static void stamp(struct rmq_reader *r, struct rmq_connection *c, struct rmq_pending *p)
{
    p->received_ns = c->stalled_ns ? c->stalled_ns : r->context.now_ns;
    rmq_send_note_of(p)->queued_us = rmq_latency_us(r->context.now_ns - p->received_ns);
    if (c->stalled_ns)
        rmq_latency_count(&r->context.header->latency[r->context.role_number][RMQ_READ_LATENCY_QUEUED], r->context.now_ns - c->stalled_ns, 1);
    else
        r->fresh++;
    c->stalled_ns = 0;
}

/* A pair that the client did not send; its bytes. */
static uint32_t add_uniq_pair(struct rmq_reader *r, struct rmq_send *s, uint8_t *to)
{
    uint32_t length = uniq_pair_length(r);
    put_uniq_pair(r, to);
    s->uniq_key = to + sizeof UNIQ_NAME;
    s->uniq_key_length = length - (uint32_t)sizeof UNIQ_NAME - 1;
    return length;
}

/* The handle by which the message can be recalled (SendMessageProcessor.attachRecallHandle): one ms behind TIMER_OUT_MS. None of a
 * batch, and none of a message that waits for a retry. */
static void note_recall(const struct rmq_reader *r, const struct rmq_send *s, const struct target *target, struct rmq_send_note *note)
{
    const struct rmq_topic *topic = rmq_topic_at(r->context.plane, s->topic_id);
    note->recall_topic_id = 0;
    if (!target->out_ms || s->batch || rmq_is_retry_topic(topic->name, topic->name_length))
        return;
    note->recall_topic_id = target->rule->recall_topic_id ? target->rule->recall_topic_id : s->topic_id;
    note->recall_ms = target->out_ms + 1;
}

static void push(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, struct rmq_send *s,
                 const struct target *target, uint8_t *frame, uint32_t length, struct rmq_pending *p)
{
    struct rmq_send_note *note = rmq_send_note_of(p);
    uint8_t *scratch = rmq_pending_scratch(&r->pendings, p);
    uint32_t extra_length = s->uniq_key || s->batch ? 0 : add_uniq_pair(r, s, scratch);
    if (target->rule)
        extra_length = (uint32_t)(put_rule_pairs(r, s, target, scratch + extra_length) - scratch);
    RMQ_CRASH("reader-properties-ready");
    uint8_t *body = frame + 8 + h->header_length;
    uint32_t body_length = length - 8 - h->header_length;
    note->uniq_key_at = s->uniq_key ? rmq_arena_offset(&r->arena, s->uniq_key) : 0;
    note->uniq_key_length = (uint16_t)s->uniq_key_length;
    note->batch_at = s->batch ? rmq_arena_offset(&r->arena, body) : 0;
    note->batch_length = s->batch ? body_length : 0;
    note->queue_id = s->queue_id;
    note->topic_id = s->topic_id;
    note_recall(r, s, target, note);
    p->frame_length = length;
    stamp(r, c, p);
    if (target->rule)
        redirect(s, target); /* the answer names the client's topic, as in stock */
    struct rmq_request *q = rmq_ring_slot(r->context.plane->base, r->requests, r->request_head);
    fill_request(r, c, s, q, p, extra_length, body, body_length);
    r->request_head++;
    RMQ_CRASH("reader-request-filled");
}

static enum rmq_outcome refuse(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                               const char *remark)
{
    rmq_answer_busy(&r->answers, c, h, remark);
    return RMQ_OUTCOME_DONE;
}

static enum rmq_outcome refuse_field(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                     const uint8_t *name, uint32_t length)
{
    rmq_answer_field(&r->answers, c, h, name, length);
    return RMQ_OUTCOME_DONE;
}

static enum rmq_outcome refuse_properties(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    const char *name = h->code == RMQ_CODE_SEND ? "properties" : "i";
    return refuse_field(r, c, h, (const uint8_t *)name, (uint32_t)strlen(name));
}

static void refuse_by_rule(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, const struct rmq_send *s,
                           const struct rmq_admitted *a)
{
    const struct rmq_admission_rule *rule = &r->rules->rules[a->rule];
    char remark[RMQ_TIME_REMARK_MAX];
    if (!a->time_fault) {
        rmq_answer_error(&r->answers, c, h, rule->code, rule->remark);
        return;
    }
    rmq_time_remark(remark, s, rule, a);
    rmq_answer_error(&r->answers, c, h, rmq_time_code(a->time_fault), remark);
}

/* The share of open half messages that is full, RMQ_HALF_FITS for other messages. `remark`: the text of a refusal. */
static uint32_t full_share(struct rmq_reader *r, const struct rmq_connection *c, const struct rmq_send *s,
                           const struct rmq_admission_rule *rule, char *remark)
{
    if (!rule || !rule->halves_max)
        return RMQ_HALF_FITS;
    uint32_t slot = rmq_queue_find(r->context.plane, rule->half_topic_id, 0), full;
    uint64_t end = slot == RMQ_NONE ? 0 : rmq_load(&rmq_queue_at(r->context.plane, slot)->max_offset), found;
    struct rmq_half_keys keys = rmq_half_keys_of(r->context.header->name_secret, c->host, c->v6, s->properties, s->properties_length);
    if ((full = rmq_half_room(&r->context.header->half_shares, rule, end, keys, &found)) != RMQ_HALF_FITS)
        rmq_half_remark(remark, full, rule, found);
    return full;
}

/* 1 if each message of a redirected batch has room for the pairs that it gets until its delivery. Write checks those that are stored
 * now, and refuses broken elements. */
static int elements_fit(const uint8_t *at, uint32_t left, uint32_t pairs_bytes)
{
    for (uint32_t size; (size = rmq_batch_element_bytes(at, left)); at += size, left -= size) {
        uint32_t own = size - RMQ_BATCH_ELEMENT_BYTES - rmq_get32(at + 16);
        if (own && own + (at[size - 1] != 2) + pairs_bytes > RMQ_PROPERTIES_BYTES_MAX)
            return 0;
    }
    return 1;
}

static enum rmq_outcome refuse_elements(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    rmq_answer_error(&r->answers, c, h, RMQ_ANSWER_ILLEGAL,
                     "the message is illegal: in a message of the batch, properties with those that the broker adds until the "
                     "delivery have more than 32767 bytes");
    return RMQ_OUTCOME_DONE;
}

enum rmq_outcome rmq_append_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                  uint8_t *frame,
                               uint32_t length, struct rmq_frame_ref *ref, int approved, int dead)
{
    struct rmq_send s;
    struct rmq_admitted a;
    struct target target = {0};
    struct rmq_admission_limits limits = limits_of(r);
    if (!rmq_send_decode(h, &s)) /* RMQ_REASON_FIELDS */
        return approved && s.unread ? refuse_field(r, c, h, s.unread->key, s.unread->key_length) : RMQ_OUTCOME_COLD;
    if (asks_for_rules(&s))
        rmq_rules_take(r->context.plane, r->rules, &r->rules_version);
    if (rmq_admit_head(&s, length - 8 - h->header_length, &limits, r->rules->count > 0) || !resolve(r, c, &s, approved))
        return RMQ_OUTCOME_COLD;
    if (r->takes_no_sends || r->pendings.counts[RMQ_PENDING_APPEND] >= r->pendings.appends_max || !rmq_ring_room(r->requests, r->request_head)) {
        if (r->pendings.refuses)
            return refuse(r, c, h, "[OVERLOAD]too many requests under way, try again later");
        c->stalled_ns = c->stalled_ns ? c->stalled_ns : r->context.now_ns;
        return RMQ_OUTCOME_STALL;
    }
    uint8_t *home = s.properties;
    read_properties(r, &s, &limits, approved, &a);
    if (approved && a.verdict == RMQ_ADMIT_ASK && a.reason == RMQ_REASON_ESCAPES)
        return refuse_properties(r, c, h);
    if (a.verdict == RMQ_ADMIT_ASK || (a.verdict == RMQ_ADMIT_REDIRECT && !find_target(r, &a, &target)))
        return RMQ_OUTCOME_COLD;
    if (dead && a.verdict != RMQ_ADMIT_REFUSE && !find_dead_letters(r, &s, &limits, &target))
        return RMQ_OUTCOME_COLD;
    if (a.verdict == RMQ_ADMIT_REFUSE) {
        refuse_by_rule(r, c, h, &s, &a);
        return RMQ_OUTCOME_DONE;
    }
    char remark[RMQ_HALF_REMARK_MAX];
    if (full_share(r, c, &s, target.rule, remark))
        return refuse(r, c, h, remark);
    if (s.batch && target.rule && !elements_fit(frame + 8 + h->header_length, length - 8 - h->header_length, a.pairs_bytes))
        return refuse_elements(r, c, h);
    finish_properties(&s, home, target.rule); /* from here on the frame is changed: it cannot stall any more */
    struct rmq_frame_ref kept;
    if (!keep(r, &s, &frame, length, ref, &kept))
        return refuse(r, c, h, "[OVERLOAD]too many bytes under way, try again later");
    struct rmq_pending *p = rmq_pending_take(&r->pendings, RMQ_PENDING_APPEND, c, h);
    if (!p) { /* cannot be: the table holds more than in_flight_max */
        rmq_frame_ref_release(&r->arena, &kept);
        return refuse(r, c, h, "[OVERLOAD]too many requests under way, try again later");
    }
    p->ref = kept;
    push(r, c, h, &s, &target, frame, length, p);
    r->context.counters[RMQ_READ_APPENDS]++;
    return RMQ_OUTCOME_DONE;
}

int rmq_append_open(struct rmq_reader *r)
{
    uniq_open(r);
    rmq_slot_counts_open(&r->slot_counts);
    r->chance_seed = (uint32_t)rmq_mono_ns();
    r->unescaped = malloc(RMQ_PROPERTIES_JSON_MAX); /* touched as far as used */
    r->rules = calloc(1, sizeof *r->rules);
    r->dead_letters = (struct rmq_admission_rule){
        .kind = RMQ_RULE_REDIRECT, .pair_count = 1,
        .pairs = {{.value_from = RMQ_ADD_TEXT, .name_length = 5, .value_length = 2, .name = "DELAY", .value = "-1"}}};
    return r->unescaped && r->rules ? 0 : -ENOMEM;
}

void rmq_append_close(struct rmq_reader *r)
{
    rmq_slot_counts_close(&r->slot_counts);
    free(r->unescaped);
    free(r->rules);
}

void rmq_append_publish(struct rmq_reader *r)
{
    if (r->request_head == rmq_load_relaxed(&r->requests->head))
        return;
    if (r->fresh)
        rmq_latency_count(&r->context.header->latency[r->context.role_number][RMQ_READ_LATENCY_QUEUED], rmq_mono_ns() - r->context.now_ns, r->fresh);
    r->fresh = 0;
    rmq_store(&r->requests->head, r->request_head);
    RMQ_CRASH("reader-requests-published");
    rmq_role_wake(r->context.plane, RMQ_ROLE_WRITE);
}
