/* pop_batch.c: POP (200050): the checks in stock's order, the picks, the answer. */
#include <string.h>

#include "base/number_text.h"
#include "metrics/pull_stats.h"
#include "plane/settings_word.h"
#include "pop/pop_hold.h"
#include "pop/pop_picks.h"
#include "pop/pop_records.h"

#define TOO_LATE_MS 500
#define OWN_DELAY_MS 3000        /* the time for which clients of RocketMQ wait for an answer by default */
#define INFO_BYTES_MAX 2048u     /* of one info string of 32 messages */
#define HEADER_BYTES_MAX 5120u   /* of an answer */
#define RECEIPT_BYTES_MAX 512u
#define EMPTY_REMARK RMQ_POP_NOTHING
#define POLLING_FULL 209
#define POLLING_TIMEOUT 210
#define FOUND_REMARK "FOUND"

/* A POP with the topic, group and filter that it names. */
struct asked {
    const struct rmq_pop_fields *fields;
    const uint8_t *text;
    uint32_t group_id;
    struct rmq_pop_attempt attempt;
    struct rmq_pop_source origin;
    const struct rmq_pop_filter *filter;
};

/* --- checks ------------------------------------------------------------------------------------------------ */

static uint32_t find_filter(struct rmq_pop_desk *d, struct asked *a)
{
    uint8_t key[RMQ_POP_EXPRESSION_TYPE_BYTES_MAX + 1 + RMQ_POP_EXPRESSION_BYTES_MAX];
    const struct rmq_plain_text type = a->fields->expression_type, text = a->fields->expression;
    const uint8_t *expression = a->text + text.at;
    int is_tag = !type.length || (type.length == 3 && !memcmp(a->text + type.at, "TAG", 3));
    a->filter = NULL;
    if (!text.length || (is_tag && text.length == 1 && *expression == '*'))
        return RMQ_POP_SERVED;
    memcpy(key, a->text + type.at, type.length);
    key[type.length] = 0;
    memcpy(key + type.length + 1, expression, text.length);
    a->filter = rmq_pop_filter_find(d->filters, key, (uint32_t)type.length + 1 + text.length);
    if (!a->filter)
        return RMQ_POP_NEEDS_FILTER;
    return a->filter->wanted.kind == RMQ_SUBSCRIPTION_COLD ? RMQ_POP_BAD_EXPRESSION : RMQ_POP_SERVED;
}

static uint32_t find_topic(struct rmq_pop_desk *d, struct asked *a)
{
    struct rmq_pop_target target;
    uint32_t why = rmq_pop_find_target(d, a->fields, a->text, &target);
    if (why != RMQ_POP_SERVED)
        return why;
    a->group_id = target.group_id;
    a->origin = (struct rmq_pop_source){
        .topic_id = target.topic_id, .flag = RMQ_POP_FLAG_NORMAL, .queues = target.queues, .queue_id = a->fields->queue_id};
    return RMQ_POP_SERVED;
}

/* A client that waits no longer gets no messages. The start of this process, and what it makes for a request, are no fault of the
 * client: such a request is judged by the time at which it came, as long as a client waits for any answer. */
static int is_too_late(const struct rmq_pop_desk *d, const struct rmq_pop_row *row)
{
    int64_t last_ms, received_ns = (int64_t)row->ask.received_mono_ns, own_ms = 0;
    if (row->held)
        return 0; /* its end is due by the monotonic clock */
    if (row->until_ns)
        return d->now_ns - TOO_LATE_MS * 1000000ll > row->until_ns;
    if (received_ns && (row->has_waited || received_ns < d->began_ns))
        own_ms = (d->now_ns - received_ns) / 1000000;
    if (own_ms > OWN_DELAY_MS)
        own_ms = OWN_DELAY_MS;
    /* a time beyond all is never late */
    return row->pop.born_ms && !__builtin_add_overflow(row->pop.born_ms, row->pop.poll_ms, &last_ms) &&
           d->now_ms - own_ms - TOO_LATE_MS > last_ms;
}

static uint32_t check(struct rmq_pop_desk *d, struct asked *a)
{
    const struct rmq_pop_fields *f = a->fields;
    if (is_too_late(d, &d->row))
        return RMQ_POP_TOO_LATE;
    if (!(d->settings & RMQ_POP_READABLE))
        return RMQ_POP_BROKER_UNREADABLE;
    if (f->messages_max > RMQ_POP_MESSAGES_MAX)
        return RMQ_POP_TOO_MANY;
    uint32_t why = find_topic(d, a);
    if (why == RMQ_POP_SERVED)
        why = find_filter(d, a);
    if (why == RMQ_POP_SERVED && (f->invisible_ms < 0 || f->invisible_ms > RMQ_POP_INVISIBLE_MS_MAX))
        why = RMQ_POP_BAD_INVISIBLE;
    return why;
}

static struct rmq_pop_key key_of(const struct asked *a)
{
    int32_t queue_id = a->fields->queue_id < 0 ? -1 : a->fields->queue_id;
    return (struct rmq_pop_key){.topic_id = a->origin.topic_id, .group_id = a->group_id, .queue_id = queue_id};
}

/* --- picks --------------------------------------------------------------------------------------------------- */

static uint32_t random_of_100(struct rmq_pop_desk *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return (uint32_t)(d->random % 100);
}

/* The retry topic of this turn: never both forms in one answer, whose entries could not be told apart. 0: there is none. */
static int find_retry(struct rmq_pop_desk *d, const struct asked *a, uint32_t turn, struct rmq_pop_source *retry)
{
    const uint32_t both = RMQ_POP_RETRY_V1 | RMQ_POP_RETRY_V2;
    const struct rmq_plain_text group = a->fields->group, topic = a->fields->topic;
    uint8_t name[RMQ_NAME_MAX];
    uint64_t config;
    int is_v2 = (d->settings & both) == both ? turn % 2 : (d->settings & RMQ_POP_RETRY_V2) != 0;
    uint32_t flag = is_v2 ? RMQ_POP_FLAG_RETRY_V2 : RMQ_POP_FLAG_RETRY_V1;
    uint32_t length = rmq_pop_retry_topic(name, a->text + group.at, group.length, a->text + topic.at, topic.length, flag);
    uint32_t id = length ? rmq_pop_topic_id(d, name, length, &config) : RMQ_NONE;
    if (id == RMQ_NONE)
        return 0;
    *retry = (struct rmq_pop_source){
        .topic_id = id, .flag = flag, .queues = rmq_topic_read_queues(config), .queue_id = -1, .turn = turn};
    return 1;
}

/* A topic from which the answer takes none: another poll may. `rest` is that of the topics that stock looks at. */
static void pass_by(struct rmq_pop_desk *d, const struct asked *a, struct rmq_pop_picks *p, const struct rmq_pop_source *source)
{
    int64_t rest = p->rest;
    if (!rmq_pop_polls_count(d->polls))
        return;
    p->is_full = 1;
    p->has_left |= rmq_pop_pick_topic(d, p, a->group_id, source) != RMQ_POP_SERVED || p->rest > rest;
    p->rest = rest;
}

static uint32_t pick(struct rmq_pop_desk *d, struct asked *a, struct rmq_pop_picks *p)
{
    struct rmq_pop_source retry, other;
    uint32_t turn = random_of_100(d), why = RMQ_POP_SERVED;
    a->origin.turn = turn;
    if (p->order)
        return rmq_pop_pick_topic(d, p, a->group_id, &a->origin); /* an orderly group has no retry topic */
    int has_retry = find_retry(d, a, turn, &retry), is_first = has_retry && turn < d->retry_percent;
    if (is_first)
        why = rmq_pop_pick_topic(d, p, a->group_id, &retry);
    if (why == RMQ_POP_SERVED)
        why = rmq_pop_pick_topic(d, p, a->group_id, &a->origin);
    if (why == RMQ_POP_SERVED && has_retry && !is_first) {
        if (p->message_count && p->message_count == p->wanted)
            pass_by(d, a, p, &retry);
        else if (a->fields->messages_max > 0)
            why = rmq_pop_pick_topic(d, p, a->group_id, &retry);
    }
    int looks = p->message_count ? rmq_pop_polls_count(d->polls) > 0 : a->fields->poll_ms > 0;
    if (why != RMQ_POP_SERVED || !looks || !find_retry(d, a, turn + 1, &other) || (has_retry && other.flag == retry.flag))
        return why;
    if (p->message_count)
        pass_by(d, a, p, &other);
    else /* no arrival would wake it for a message that is there */
        why = rmq_pop_pick_topic(d, p, a->group_id, &other);
    return why;
}

/* 0: the message is no copy, or its mark names a window of before the ids began again. */
static uint64_t mark_of(const struct rmq_pop_desk *d, const struct rmq_pop_message *m)
{
    struct rmq_record_view view;
    if (!m->is_held || m->position < d->marks_from || rmq_record_parse(m->held.at, m->size, 0, &view) != RMQ_RECORD_OK)
        return 0;
    uint64_t mark = (uint64_t)view.prepared_transaction_offset;
    return rmq_mark_range(mark) == RMQ_ROLE_POP ? mark : 0;
}

/* 0: the message of the copy was acknowledged late. */
static int may_give(struct rmq_pop_desk *d, struct rmq_pop_message *m)
{
    m->mark = mark_of(d, m);
    if (!m->mark || rmq_pop_take_copy(d->windows, (uint32_t)rmq_mark_lane(m->mark), (int64_t)rmq_mark_offset(m->mark)))
        return 1;
    rmq_pop_count(d, RMQ_POP_COUNT_PASSED_OVER, 1);
    return 0;
}

static void see_copy(struct rmq_pop_desk *d, const struct rmq_pop_message *m)
{
    if (m->mark)
        rmq_pop_copy_seen(d->windows, (uint32_t)rmq_mark_lane(m->mark), (int64_t)rmq_mark_offset(m->mark));
}

/* Leaves out copies that are passed over. They are behind the others of their pick then, up to its `looked`. */
static void take_copies(struct rmq_pop_desk *d, struct rmq_pop_picks *p)
{
    uint32_t picks = 0;
    for (uint32_t i = 0; i < p->pick_count; i++) {
        struct rmq_pop_pick pick = p->picks[i];
        pick.looked = pick.count;
        pick.count = 0;
        for (uint32_t j = 0; j < pick.looked; j++) {
            struct rmq_pop_message *m = &p->messages[pick.first + j], *to = &p->messages[pick.first + pick.count];
            if (pick.flag != RMQ_POP_FLAG_NORMAL && !pick.is_again && !may_give(d, m))
                continue;
            struct rmq_pop_message kept = *m;
            memmove(to + 1, to, (size_t)((uint8_t *)m - (uint8_t *)to));
            *to = kept;
            pick.count++;
        }
        p->message_count -= pick.looked - pick.count;
        if (pick.count) {
            p->picks[picks++] = pick;
            continue;
        }
        rmq_pop_skip_to(d->windows, pick.place, pick.next_offset);
        for (uint32_t j = 0; j < pick.looked; j++)
            see_copy(d, &p->messages[pick.first + j]);
    }
    p->pick_count = picks;
}

/* --- answers --------------------------------------------------------------------------------------------------- */

static uint8_t *put_entry(uint8_t *at, const struct rmq_pop_pick *pick, int is_first)
{
    if (!is_first)
        *at++ = ';';
    *at++ = (uint8_t)('0' + pick->flag);
    *at++ = ' ';
    at = rmq_put_decimal(at, pick->queue_id);
    *at++ = ' ';
    return at;
}

/* orderCountInfo: the messages that came before, then the lowest count of the queue, which old clients read. */
static uint8_t *put_counts(const struct rmq_pop_desk *d, const struct rmq_pop_pick *pick, uint8_t *at, int is_first)
{
    const struct rmq_pop_order *order = rmq_pop_order_at(d->windows, pick->place);
    uint16_t lowest = UINT16_MAX;
    for (uint32_t i = 0; i < order->count; i++) {
        lowest = order->consumed[i] < lowest ? order->consumed[i] : lowest;
        if (!order->consumed[i])
            continue;
        if (!is_first)
            *at++ = ';';
        is_first = 0;
        memcpy(at, "0 qo", 4);
        at = rmq_put_decimal(at + 4, pick->queue_id);
        *at++ = '%';
        at = rmq_put_decimal(at, rmq_pop_order_offset(order, i));
        *at++ = ' ';
        at = rmq_put_decimal(at, order->consumed[i]);
    }
    return rmq_put_decimal(put_entry(at, pick, is_first), lowest);
}

/* startOffsetInfo, msgOffsetInfo behind it, and then orderCountInfo. */
static void put_infos(const struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint8_t *to, struct rmq_pop_answer *answer)
{
    uint8_t *at = to;
    for (uint32_t i = 0; i < p->pick_count; i++)
        at = rmq_put_decimal(put_entry(at, &p->picks[i], !i), p->picks[i].start_offset);
    answer->starts = to;
    answer->starts_length = (uint32_t)(at - to);
    answer->offsets = to = at;
    for (uint32_t i = 0; i < p->pick_count; i++) {
        at = put_entry(at, &p->picks[i], !i);
        for (uint32_t j = 0; j < p->picks[i].count; j++) {
            if (j)
                *at++ = ',';
            at = rmq_put_decimal(at, p->messages[p->picks[i].first + j].queue_offset);
        }
    }
    answer->offsets_length = (uint32_t)(at - to);
    if (!p->order)
        return;
    answer->counts = to = at;
    for (uint32_t i = 0; i < p->pick_count; i++)
        at = put_counts(d, &p->picks[i], at, !i);
    answer->counts_length = (uint32_t)(at - to);
}

static uint32_t put_empty(const struct rmq_pop_row *row, uint8_t *to, int32_t code, int64_t pop_time_ms, uint32_t revive_queue,
                          int64_t rest)
{
    const uint8_t *none = (const uint8_t *)"";
    struct rmq_pop_answer answer = {
        .head = rmq_pop_head_of(row, code, EMPTY_REMARK), .pop_time_ms = pop_time_ms, .invisible_ms = row->pop.invisible_ms,
        .rest = rest, .starts = none, .offsets = none, .counts = row->pop.order ? none : NULL,
        .revive_queue = (int32_t)revive_queue};
    return (uint32_t)rmq_pop_answer_put(to, &answer);
}

static uint32_t serve_empty(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct asked *a,
                            const struct rmq_pop_picks *p, uint32_t revive_queue)
{
    uint8_t frame[512];
    struct rmq_pop_key key = key_of(a);
    enum rmq_pop_waiting waiting = rmq_pop_wait(d, row, &key, p->has_later != 0);
    if (waiting == RMQ_POP_IS_HELD)
        return row->held ? RMQ_POP_WAITS : RMQ_POP_SERVED;
    int32_t code = waiting == RMQ_POP_IS_FULL ? POLLING_FULL : POLLING_TIMEOUT;
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_SEND, .pending = row->ask.pending};
    rmq_pop_put(d, row, &verdict, frame, put_empty(row, frame, code, d->now_ms, revive_queue, p->rest));
    rmq_pop_count(d, code == POLLING_FULL ? RMQ_POP_COUNT_FULL : RMQ_POP_COUNT_EMPTY, 1);
    return RMQ_POP_SERVED;
}

static uint32_t put_receipt(const struct rmq_pop_desk *d, uint8_t *to, const struct rmq_pop_pick *pick,
                            const struct rmq_pop_give *give, int64_t offset)
{
    const int64_t numbers[] = {pick->start_offset, give->pop_time_ms, give->invisible_ms, give->revive_queue, pick->flag};
    uint8_t *at = to;
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        at = rmq_put_decimal(at, numbers[i]);
        *at++ = ' ';
    }
    memcpy(at, d->broker, d->broker_bytes);
    at += d->broker_bytes;
    *at++ = ' ';
    at = rmq_put_decimal(at, pick->queue_id);
    *at++ = ' ';
    return (uint32_t)(rmq_put_decimal(at, offset) - to);
}

/* Entries for a pick, or the batch of an orderly group. */
static int give_pick(struct rmq_pop_desk *d, const struct rmq_pop_picks *p, const struct rmq_pop_pick *pick,
                     const struct rmq_pop_give *give)
{
    int64_t offsets[RMQ_POP_MESSAGES_MAX];
    for (uint32_t i = 0; i < pick->count; i++)
        offsets[i] = p->messages[pick->first + i].queue_offset;
    if (p->order)
        return rmq_pop_order_give(d->windows, pick->place, give, p->order, offsets, pick->count);
    return pick->is_again ? rmq_pop_give_again(d->windows, pick->place, give, offsets, pick->count)
                          : rmq_pop_window_give(d->windows, pick->place, give, offsets, pick->count);
}

/* Publishes the entries of all picks, for the answer with this serial. */
static void give_all(struct rmq_pop_desk *d, struct rmq_pop_picks *p, struct rmq_pop_give *give, uint32_t serial)
{
    uint32_t places[RMQ_POP_MESSAGES_MAX];
    int64_t starts[RMQ_POP_MESSAGES_MAX];
    rmq_pop_given_begin(d->given, serial);
    for (uint32_t i = 0; i < p->pick_count; i++) {
        struct rmq_pop_pick *pick = &p->picks[i];
        if (pick->is_again)
            pick->start_offset = p->messages[pick->first].queue_offset;
        places[i] = pick->place;
        starts[i] = pick->start_offset;
    }
    give->pop_time_ms = p->order ? rmq_pop_order_time_for(d->windows, places, p->pick_count, d->now_ms)
                                 : rmq_pop_time_for(d->windows, places, starts, p->pick_count, d->now_ms);
    for (uint32_t i = 0; i < p->pick_count; i++) {
        const struct rmq_pop_pick *pick = &p->picks[i];
        give->start_offset = pick->start_offset;
        give->next_offset = pick->next_offset;
        int rc = give_pick(d, p, pick, give);
        RMQ_INVARIANT(rc == 0, rc, pick->place, pick->count, give->pop_time_ms); /* entries were free */
        uint32_t id = rmq_pop_window_at(d->windows, pick->place)->id;
        rmq_pop_given_add(d->given, pick->place, id, pick->start_offset, give->pop_time_ms);
        for (uint32_t j = 0; j < pick->looked; j++)
            see_copy(d, &p->messages[pick->first + j]);
    }
}

/* The records of all picks. 0: one of them does not fit, or is no record. */
static int put_records(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_picks *p,
                       const struct rmq_pop_give *give, struct rmq_pop_body *body)
{
    uint8_t receipt[RECEIPT_BYTES_MAX];
    const struct rmq_plain_text topic = row->pop.topic;
    for (uint32_t i = 0; i < p->pick_count; i++) {
        const struct rmq_pop_pick *pick = &p->picks[i];
        int is_new = pick->flag != RMQ_POP_FLAG_NORMAL && !(d->settings & RMQ_POP_ACTUAL_TOPIC);
        for (uint32_t j = 0; j < pick->count; j++) {
            const struct rmq_pop_message *m = &p->messages[pick->first + j];
            int rc = -EBADMSG;
            if (is_new) {
                uint32_t length = put_receipt(d, receipt, pick, give, m->queue_offset);
                rc = rmq_pop_body_add_retry(body, m->position, m->held.at, m->size, row->text + topic.at, topic.length, receipt, length);
            }
            if (rc == -EBADMSG)
                rc = rmq_pop_body_add(body, m->position, m->size); /* as it is */
            if (rc < 0)
                return 0;
        }
    }
    return 1;
}

/* Head, pieces, their bytes, the other frame. */
static void put_answer(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_picks *p,
                       const struct rmq_pop_give *give, const struct rmq_pop_body *body, uint32_t serial)
{
    uint8_t infos[3 * INFO_BYTES_MAX], header[HEADER_BYTES_MAX];
    struct rmq_pop_answer answer = {
        .head = rmq_pop_head_of(row, 0, FOUND_REMARK), .pop_time_ms = give->pop_time_ms, .invisible_ms = give->invisible_ms,
        .rest = p->rest, .revive_queue = give->revive_queue, .body_length = (uint32_t)body->bytes};
    put_infos(d, p, infos, &answer);
    uint32_t header_bytes = (uint32_t)rmq_pop_answer_put(header, &answer);
    struct rmq_records_head *head = (struct rmq_records_head *)d->payload;
    struct rmq_record_piece *pieces = (struct rmq_record_piece *)(head + 1);
    pieces[0] = (struct rmq_record_piece){.position = RMQ_RECORD_INLINE, .size = header_bytes};
    memcpy(pieces + 1, body->pieces, body->piece_count * sizeof *pieces);
    uint8_t *at = (uint8_t *)(pieces + 1 + body->piece_count);
    memcpy(at, header, header_bytes);
    memcpy(at += header_bytes, body->inline_bytes, body->inline_length);
    at += body->inline_length;
    head->piece_count = body->piece_count + 1;
    head->fallback_bytes = put_empty(row, at, POLLING_TIMEOUT, give->pop_time_ms, give->revive_queue, p->rest);
    for (uint32_t i = 0; p->order && i < p->pick_count; i++)
        rmq_pop_order_show(d->windows, p->picks[i].place);
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_RECORDS, .flags = RMQ_VERDICT_TELLS, .serial = serial};
    rmq_pop_put(d, row, &verdict, d->payload, (uint32_t)(at - d->payload) + head->fallback_bytes);
}

static void count_given(struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint32_t group_id)
{
    for (uint32_t i = 0; i < p->pick_count; i++) {
        const struct rmq_pop_pick *pick = &p->picks[i];
        uint32_t slot = rmq_pop_index_queue(d->index, pick->place), bytes = 0;
        uint64_t next_offset = (uint64_t)rmq_pop_window_at(d->windows, pick->place)->next_offset;
        for (uint32_t j = 0; j < pick->count; j++)
            bytes += p->messages[pick->first + j].size;
        rmq_pull_stats_add(d->plane, d->port, group_id, slot, pick->count, bytes, next_offset, d->now_ns / 1000000);
    }
    rmq_pop_count(d, RMQ_POP_COUNT_POPS, 1);
    rmq_pop_count(d, RMQ_POP_COUNT_MESSAGES, p->message_count);
}

static uint32_t serve_found(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct asked *a, struct rmq_pop_picks *p,
                            uint32_t revive_queue)
{
    struct rmq_pop_give give = {
        .mono_ms = rmq_pop_given_ms(d, row->pop.invisible_ms), .invisible_ms = (uint32_t)row->pop.invisible_ms,
        .client = rmq_pop_client(d->clients, &row->ask), .revive_queue = (uint16_t)revive_queue};
    struct rmq_pop_body body = {.inline_bytes = d->texts, .inline_room = d->room_bytes, .segment_bytes = d->queues->settings->segment_bytes};
    uint32_t serial = row->held ? row->serial : rmq_pop_given_serial(d->given);
    struct rmq_pop_key key = key_of(a);
    give_all(d, p, &give, serial);
    d->share += p->order ? 0 : p->message_count; /* more than it is, until the next turn looks again */
    if (!put_records(d, row, p, &give, &body)) {
        rmq_pop_given_unsent(d->given, d->windows, serial);
        p->rest += p->message_count;
        return serve_empty(d, row, a, p, revive_queue);
    }
    put_answer(d, row, p, &give, &body, serial);
    count_given(d, p, a->group_id);
    if (p->rest > 0 || p->has_left)
        rmq_pop_polls_wake_key(d->polls, &key);
    return RMQ_POP_SERVED;
}

uint32_t rmq_pop_serve_pop(struct rmq_pop_desk *d, struct rmq_pop_row *row)
{
    struct asked asked = {.fields = &row->pop, .text = row->text,
                          .attempt = {row->text + row->pop.attempt.at, row->pop.attempt.length}};
    uint32_t why = check(d, &asked);
    if (why == RMQ_POP_SERVED && rmq_pop_is_of_another_topic(d, row, asked.origin.topic_id))
        why = RMQ_POP_NO_TOPIC;
    if (why != RMQ_POP_SERVED)
        return why;
    struct rmq_pop_picks picks = {
        .wanted = row->pop.messages_max > 0 && !row->asked.is_oneway ? (uint32_t)row->pop.messages_max : 0, .filter = asked.filter,
        .is_woken = row->held && !row->is_last, .order = row->pop.order ? &asked.attempt : NULL,
        .log_end = rmq_load(&d->plane->watermarks->append_offset), .bytes = HEADER_BYTES_MAX,
        .room = rmq_pop_room(d, row->ask.role) - 2 * HEADER_BYTES_MAX, .lowest = UINT64_MAX};
    if (d->settings & RMQ_POP_IS_DRAINING)
        return serve_empty(d, row, &asked, &picks, picks.order ? RMQ_POP_ORDERLY : 0);
    if (picks.wanted && !picks.order && (!rmq_pop_has_room(d) || rmq_pop_has_its_share(d, asked.group_id))) {
        rmq_pop_count(d, RMQ_POP_COUNT_BOUND, !row->held); /* a poll tries again and again */
        picks.wanted = 0;
    }
    why = pick(d, &asked, &picks);
    if (why == RMQ_POP_SERVED) {
        uint32_t revive_queue = picks.order ? RMQ_POP_ORDERLY : d->revive_turn++ % d->revive_queues;
        take_copies(d, &picks);
        why = picks.message_count ? serve_found(d, row, &asked, &picks, revive_queue)
                                  : serve_empty(d, row, &asked, &picks, revive_queue);
    }
    rmq_pop_picks_release(&picks);
    return why;
}
