/* send_backs.c: batches of requests 36. Twin: services/send_back/source_twin.py. */
#include "services/send_backs.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/record.h"
#include "metrics/latency.h"

#define SLOT_MASK 0xffffffffu
#define NO_GROUP 26           /* SUBSCRIPTION_GROUP_NOT_EXIST */
#define TIMES_MAX_VERSION 121 /* MQVersion.V3_4_9: older clients send no maxReconsumeTimes that counts */

RMQ_PLAIN_CHECK_RECORD(rmq_send_back_fields);

/* --- requests ---------------------------------------------------------------------------------------------- */

#define ROWS(ROW, record) \
    ROW(record, offset, "offset", RMQ_FIELD_INT64, 1, 0) \
    ROW(record, group, "group", RMQ_FIELD_TEXT, 1, RMQ_SEND_BACK_GROUP_BYTES_MAX, .refusal = "subscription group not exist", \
        .refusal_code = NO_GROUP) \
    ROW(record, delay_level, "delayLevel", RMQ_FIELD_INT32, 1, 0) \
    ROW(record, times_max, "maxReconsumeTimes", RMQ_FIELD_INT32, 0, 0, .version_min = TIMES_MAX_VERSION) \
    ROW(record, unit_mode, "unitMode", RMQ_FIELD_BOOL, 0, 0)

const struct rmq_plain_table rmq_send_back_table = {
    .header = "ConsumerSendMsgBackRequestHeader", .code = RMQ_CODE_SEND_BACK, RMQ_PLAIN_ROWS(ROWS, rmq_send_back_fields)};

static void begin_row(struct rmq_send_back *row)
{
    row->case_number = RMQ_SEND_BACK_NO_CASE;
    row->cause = row->tried = 0;
    row->source = (struct rmq_held_record){0};
}

int rmq_send_back_read(const struct rmq_inbox_record *record, struct rmq_send_back *out)
{
    if (rmq_plain_decode_ask(&rmq_send_back_table, record, &out->asked, &out->fields, out->text) != RMQ_PLAIN_READ)
        return 0;
    out->record = *record;
    begin_row(out);
    return 1;
}

uint32_t rmq_send_backs_claim(struct rmq_send_backs *s)
{
    if (!s->unused_count)
        return RMQ_NONE;
    uint32_t slot = s->unused[--s->unused_count];
    begin_row(&s->rows[slot]);
    return slot;
}

void rmq_send_backs_ready(struct rmq_send_backs *s, uint32_t slot) { s->ready[s->ready_count++] = slot; }

uint32_t rmq_send_backs_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_send_backs *s, uint32_t room, uint64_t *oldest_ns)
{
    uint32_t taken = 0;
    while (taken < room && s->unused_count) {
        struct rmq_inbox_record *record = rmq_inbox_take(plane, answerer);
        uint32_t slot = s->unused[s->unused_count - 1];
        if (!record || rmq_ask_is_void(plane, answerer, record) || !rmq_send_back_read(record, &s->rows[slot]))
            break;
        if (!taken++)
            *oldest_ns = record->received_mono_ns;
        rmq_inbox_done(plane, answerer, record);
        s->unused_count--;
        rmq_send_backs_ready(s, slot);
    }
    return taken;
}

void rmq_send_backs_measure(const struct rmq_send_backs *s, uint32_t count, struct rmq_latency *latency, int64_t now_ns)
{
    struct rmq_latency_run run = {0};
    for (uint32_t i = s->ready_count - count; i < s->ready_count; i++)
        rmq_latency_run_add(latency, &run, (int64_t)s->rows[s->ready[i]].record.received_mono_ns, now_ns);
    rmq_latency_run_end(latency, &run, now_ns);
}

/* --- sources and cases --------------------------------------------------------------------------------------- */

static int is_hidden(const struct rmq_send_backs *s, const uint8_t *topic, uint32_t length)
{
    for (const uint8_t *at = s->hidden, *end = at + s->hidden_bytes; at < end; at += 1 + *at)
        if (*at == length && !memcmp(at + 1, topic, length))
            return 1;
    return 0;
}

int rmq_send_back_is_sound(const struct rmq_send_backs *s, const uint8_t *at, uint64_t left, int64_t offset, int32_t *reconsume_times)
{
    struct rmq_record_view view;
    if (rmq_record_parse(at, left, 0, &view) != RMQ_RECORD_OK || view.physical_offset != offset ||
        is_hidden(s, at + view.topic_at, view.topic_length))
        return 0;
    int32_t transaction = view.sys_flag & RMQ_SYS_TRANSACTION_MASK;
    *reconsume_times = view.reconsume_times;
    return !transaction || transaction == RMQ_SYS_TRANSACTION_COMMIT;
}

/* Holds the record at the row's offset, whose size is its first four bytes. 0, or an error of rmq_queue_reader_record. */
static int hold(struct rmq_queue_reader *q, struct rmq_send_back *row)
{
    struct rmq_held_record first;
    int64_t offset = row->fields.offset;
    int result = offset < 0 ? -ENODATA : rmq_queue_reader_record(q, (uint64_t)offset, 8, &first);
    if (result < 0)
        return result;
    row->source_bytes = rmq_get32(first.at);
    rmq_queue_reader_release(&first);
    return row->source_bytes > INT32_MAX ? -EBADMSG : rmq_queue_reader_record(q, (uint64_t)offset, row->source_bytes, &row->source);
}

static int is_same_case(const struct rmq_send_back *a, const struct rmq_send_back *b)
{
    const struct rmq_send_back_fields *of_a = &a->fields, *of_b = &b->fields;
    return a->record.role == b->record.role && a->record.role_generation == b->record.role_generation &&
           a->tried == b->tried && of_a->delay_level == of_b->delay_level && of_a->times_max == of_b->times_max &&
           !((of_a->head.present ^ of_b->head.present) & RMQ_SEND_BACK_TIMES_MAX) && a->reconsume_times == b->reconsume_times &&
           of_a->group.length == of_b->group.length && !memcmp(a->text + of_a->group.at, b->text + of_b->group.at, of_a->group.length);
}

static uint32_t case_of(struct rmq_send_backs *s, uint32_t slot)
{
    uint32_t i = 0;
    while (i < s->cases_count && !is_same_case(&s->rows[s->cases[i].first], &s->rows[slot]))
        i++;
    if (i == RMQ_SEND_BACK_CASES_MAX)
        return RMQ_SEND_BACK_LATER;
    if (i == s->cases_count)
        s->cases[s->cases_count++] = (struct rmq_send_back_case){.first = slot};
    s->cases[i].rows++;
    return i;
}

/* `held`: sources of the batch. A file that cannot be mapped beside theirs is tried again. Without them, it cannot be read. */
static uint32_t look_at(struct rmq_queue_reader *q, struct rmq_send_backs *s, uint32_t slot, uint32_t *held)
{
    struct rmq_send_back *row = &s->rows[slot];
    int result = hold(q, row);
    if (result < 0)
        return *held && (result == -EAGAIN || result == -ENOMEM) ? RMQ_SEND_BACK_LATER : RMQ_SEND_BACK_NO_CASE;
    ++*held;
    if (!rmq_send_back_is_sound(s, row->source.at, row->source_bytes, row->fields.offset, &row->reconsume_times))
        return RMQ_SEND_BACK_NO_CASE;
    return case_of(s, slot);
}

uint32_t rmq_send_backs_look(struct rmq_queue_reader *q, struct rmq_send_backs *s, uint32_t room)
{
    s->taken_count = s->ready_count < room ? s->ready_count : room;
    s->copied_count = s->left_count = s->cases_count = 0;
    memcpy(s->taken, s->ready, s->taken_count * sizeof *s->taken);
    s->ready_count -= s->taken_count;
    memmove(s->ready, s->ready + s->taken_count, s->ready_count * sizeof *s->ready);
    for (uint32_t i = 0, held = 0; i < s->taken_count; i++)
        s->rows[s->taken[i]].case_number = look_at(q, s, s->taken[i], &held);
    return s->taken_count;
}

/* --- copies ---------------------------------------------------------------------------------------------------- */

static uint32_t action_of(const struct rmq_send_backs *s, const struct rmq_send_back *row)
{
    return row->case_number < s->cases_count ? s->cases[row->case_number].action : RMQ_SEND_BACK_LEAVE;
}

uint32_t rmq_send_backs_fill(struct rmq_send_backs *s, const struct rmq_send_back_target *targets, struct rmq_record_copy *copies)
{
    uint32_t turn[RMQ_SEND_BACK_CASES_MAX] = {0};
    s->copied_count = 0;
    for (uint32_t i = 0; i < s->taken_count; i++) {
        const struct rmq_send_back *row = &s->rows[s->taken[i]];
        if (action_of(s, row) != RMQ_SEND_BACK_STORE)
            continue;
        const struct rmq_send_back_case *of = &s->cases[row->case_number];
        const struct rmq_send_back_target *target = &targets[of->targets_from + turn[row->case_number]++ % of->targets_count];
        copies[s->copied_count] = (struct rmq_record_copy){
            .record = row->source.at, .record_bytes = row->source_bytes, .position = row->fields.offset, .topic_id = target->topic_id,
            .queue_slot = target->queue_slot, .queue_id = target->queue_id, .edits_from = target->edits_from,
            .edits_count = target->edits_count,
            .flags = RMQ_COPY_ADD_RECONSUME_TIMES | RMQ_COPY_CHECK_CRC, .reconsume_times = 1};
        s->copied[s->copied_count++] = s->taken[i];
    }
    return s->copied_count;
}

void rmq_send_backs_release(struct rmq_send_backs *s, uint32_t slot) { s->unused[s->unused_count++] = slot; }

/* Rows for a later batch go before all others: they have waited longest. */
static void postpone(struct rmq_send_backs *s, const uint32_t *slots, uint32_t count)
{
    memmove(s->ready + count, s->ready, s->ready_count * sizeof *s->ready);
    memcpy(s->ready, slots, count * sizeof *slots);
    s->ready_count += count;
}

uint32_t rmq_send_backs_tokens(struct rmq_send_backs *s, const struct rmq_record_copy *copies, struct rmq_request *requests,
                               uint32_t done, uint64_t token, uint64_t batch)
{
    uint32_t made = 0, copied = 0, later = 0, taken = s->taken_count;
    s->left_count = 0;
    for (uint32_t i = 0; i < taken; i++) {
        uint32_t slot = s->taken[i];
        struct rmq_send_back *row = &s->rows[slot];
        int is_copied = copied < s->copied_count && s->copied[copied] == slot;
        rmq_queue_reader_release(&row->source);
        if (row->case_number == RMQ_SEND_BACK_LATER || (is_copied && copied >= done)) {
            s->taken[later++] = slot;
        } else if (is_copied && requests[copied].kind) {
            if (made != copied)
                requests[made] = requests[copied];
            requests[made++].token = token | slot;
            row->batch = batch;
        } else if (action_of(s, row) == RMQ_SEND_BACK_DROP) {
            rmq_send_backs_release(s, slot);
        } else {
            row->cause = is_copied ? copies[copied].cause : 0;
            s->left[s->left_count++] = slot;
        }
        copied += (uint32_t)is_copied;
    }
    postpone(s, s->taken, later);
    s->taken_count = taken - later;
    s->open[batch % s->capacity] = made;
    return made;
}

/* --- answers --------------------------------------------------------------------------------------------------- */

void rmq_send_backs_answered(struct rmq_send_backs *s, uint32_t slot) { s->open[s->rows[slot].batch % s->capacity]--; }

uint32_t rmq_send_backs_answer(struct rmq_plane *plane, uint32_t port, uint32_t answerer, uint64_t token, struct rmq_send_backs *s,
                               struct rmq_completion *out, uint32_t room, int may_answer, uint32_t *left)
{
    uint32_t count = 0;
    *left = 0;
    while (count < room && rmq_port_take_where(plane, port, ~(uint64_t)SLOT_MASK, token, 1, &out[*left])) {
        uint32_t slot = (uint32_t)(out[*left].token & SLOT_MASK);
        rmq_send_backs_answered(s, slot);
        count++;
        const struct rmq_send_back *row = &s->rows[slot];
        if (out[*left].code == 0 && may_answer && !rmq_plain_answer(plane, answerer, &row->record, &row->asked, 0))
            rmq_send_backs_release(s, slot);
        else
            ++*left;
    }
    return count;
}
