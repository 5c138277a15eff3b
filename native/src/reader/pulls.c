#include "reader/pulls.h"

#include <stdlib.h>
#include <string.h>

#include "metrics/pull_stats.h"
#include "plane/settings_word.h"
#include "reader/request_codes.h"

int rmq_pulls_open(struct rmq_pulls *pulls, struct rmq_cold *cold, struct rmq_parking *parking, struct rmq_turn *turn)
{
    pulls->context = cold->context;
    pulls->outputs = cold->outputs;
    pulls->answers = cold->answers;
    pulls->cold = cold;
    pulls->queues = &cold->records->queues;
    pulls->parking = parking;
    pulls->turn = turn;
    pulls->result = malloc(sizeof *pulls->result);
    if (rmq_pull_filters_open(&pulls->filters, pulls->context) < 0 || !pulls->result)
        return -ENOMEM;
    return 0;
}

void rmq_pulls_close(struct rmq_pulls *pulls)
{
    free(pulls->result);
    rmq_pull_filters_close(&pulls->filters);
}

/* Offsets that come with pulls. Control drains the ring before it reads offsets. A full ring loses one commit; the next pull
 * brings a later one. */
static void commit_offset(struct rmq_pulls *pulls, const struct rmq_pull *p)
{
    struct rmq_ring *ring = &pulls->context->port->commit;
    uint64_t head = ring->head, room = rmq_ring_room(ring, head), used = ring->capacity - room;
    if (p->commit_offset < 0 || !room)
        return;
    if (!used && rmq_offset_get(pulls->context->plane, p->group_id, p->queue_slot) == p->commit_offset)
        return;
    struct rmq_offset_commit *slot = rmq_ring_slot(pulls->context->plane->base, ring, head);
    *slot = (struct rmq_offset_commit){.group_id = p->group_id, .queue_slot = p->queue_slot, .offset = p->commit_offset};
    RMQ_CRASH("reader-commit-filled");
    rmq_store(&ring->head, head + 1);
    RMQ_CRASH("reader-commit-published");
    if (used + 1 == ring->capacity / 2)
        rmq_role_wake(pulls->context->plane, RMQ_ROLE_CONTROL);
}

/* The client reads so far back that another broker of the group had better serve it (suggestPullingFromSlave). */
static int is_slow(const struct rmq_pulls *pulls, const struct rmq_pull_result *result)
{
    return result->last_position >= 0 && !rmq_queue_reader_in_memory(pulls->queues, (uint64_t)result->last_position);
}

/* The same of its first and oldest message: the reader's thread must not wait for the disk in the place of all others. */
static int is_on_disk(const struct rmq_pulls *pulls, const struct rmq_pull_result *result)
{
    uint64_t position = rmq_queue_reader_position(pulls->queues, result->ranges[0].map, result->ranges[0].at);
    return !rmq_queue_reader_in_memory(pulls->queues, position);
}

/* 1: this broker is no master, and name servers have named one. */
static int knows_master(const struct rmq_pulls *pulls)
{
    const struct rmq_read_context *context = pulls->context;
    return !rmq_is_master(context->plane->watermarks) && rmq_load(&context->header->replication.master_known);
}

/* The broker for the client's next read; twin: broker/replication/broker_suggestion.py. */
static int64_t suggested_broker(const struct rmq_pulls *pulls, const struct rmq_pull *p, const struct rmq_pull_result *result)
{
    const struct rmq_settings *s = pulls->context->settings;
    int slow = is_slow(pulls, result);
    if (!s->slave_read_enable || (!slow && knows_master(pulls)))
        return 0;
    return rmq_group_broker(p->group_config, slow);
}

/* While a master is known, a slave sends pulls that find no message to it. Without one it holds them. It corrects no offset
 * unless a setting says so, because the master may have the missing records. Twin: broker/replication/broker_suggestion.py. */
static void heed_master(const struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *result)
{
    const struct rmq_settings *s = pulls->context->settings;
    if (result->code == RMQ_ANSWER_SUCCESS || result->code == RMQ_ANSWER_BUSY || rmq_is_master(pulls->context->plane->watermarks))
        return;
    if (result->code == RMQ_ANSWER_MOVED && !s->offset_check_in_slave) {
        result->next_offset = p->offset;
        result->code = RMQ_ANSWER_NOT_FOUND;
    }
    if (knows_master(pulls) && !is_slow(pulls, result))
        result->code = RMQ_ANSWER_RETRY;
}

static void look(struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *result)
{
    rmq_pull_scan(pulls, p, result);
    pulls->context->counters[RMQ_READ_FILTERED] += result->filtered;
    pulls->context->counters[RMQ_READ_FILTER_LIMITED] += result->work > RMQ_FILTER_WORK_MAX;
    pulls->turn->units -= (int32_t)(result->work / RMQ_FILTER_WORK_OF_UNIT);
    heed_master(pulls, p, result);
}

static void count(struct rmq_pulls *pulls, const struct rmq_pull *p, const struct rmq_pull_result *result)
{
    struct rmq_read_context *context = pulls->context;
    context->counters[result->messages ? RMQ_READ_PULLS_FOUND : RMQ_READ_PULLS_MISSED]++;
    rmq_pull_stats_add(context->plane, context->port_number, p->group_id, p->queue_slot, result->messages, result->bytes,
                       (uint64_t)result->next_offset, context->now_ms);
}

static void answer(struct rmq_pulls *pulls, struct rmq_connection *c, const struct rmq_frame_header *h, const struct rmq_pull *p,
                   struct rmq_pull_result *result)
{
    if (result->code == RMQ_ANSWER_BUSY) {
        rmq_answer_busy(pulls->answers, c, h, result->status);
        return;
    }
    struct rmq_pull_answer a = {
        .head = {.code = result->code,
                 .opaque = h->opaque,
                 .serialise = h->serialise,
                 .remark = result->status,
                 .remark_length = (uint32_t)strlen(result->status)},
        .suggested_broker_id = suggested_broker(pulls, p, result),
        .next_offset = result->next_offset,
        .min_offset = result->min_offset,
        .max_offset = result->max_offset,
        .body_length = result->bytes,
    };
    uint8_t *to = rmq_output_reserve(pulls->outputs, c, rmq_pull_answer_bound(&a));
    if (to) {
        rmq_output_commit(pulls->outputs, c, rmq_pull_answer_put(to, &a));
        int on_disk = result->range_count && is_on_disk(pulls, result);
        for (uint32_t i = 0; i < result->range_count && c->state == RMQ_CONNECTION_OPEN; i++)
            rmq_output_map(pulls->outputs, c, result->ranges[i].map, result->ranges[i].at, result->ranges[i].length, on_disk);
        pulls->context->counters[RMQ_READ_PULLED_MESSAGES] += result->messages;
        count(pulls, p, result);
    }
    rmq_pull_release(result);
}

static int64_t hold_ms(const struct rmq_pulls *pulls, const struct rmq_pull *p)
{
    const struct rmq_settings *s = pulls->context->settings;
    return rmq_load(&s->long_polling_enable) ? p->suspend_ms : rmq_load(&s->short_polling_ms);
}

enum rmq_outcome rmq_pull_frame(struct rmq_pulls *pulls, struct rmq_connection *c, const struct rmq_frame_header *h,
                                uint8_t *frame, uint32_t length, int approved)
{
    pulls->turn->units -= RMQ_TURN_PULL - RMQ_TURN_FRAME;
    struct rmq_pull p;
    struct rmq_pull_result *result = pulls->result;
    if (rmq_pull_decode(pulls, c, h, &p, approved) == RMQ_OUTCOME_COLD) {
        if (!approved || !p.unread)
            return RMQ_OUTCOME_COLD;
        rmq_answer_field(pulls->answers, c, h, p.unread->key, p.unread->key_length);
        return RMQ_OUTCOME_DONE;
    }
    look(pulls, &p, result);
    if (result->waits_for_disk && result->next_offset == p.offset &&
        rmq_park(pulls->parking, c, p.queue_slot, p.offset, frame, length, RMQ_FILTER_DISK_MS) == 0) {
        if (p.sys_flag & RMQ_PULL_COMMIT)
            commit_offset(pulls, &p);
        pulls->context->counters[RMQ_READ_PULLS]++;
        return RMQ_OUTCOME_DONE;
    }
    if (result->code == RMQ_ANSWER_NOT_FOUND && p.sys_flag & RMQ_PULL_SUSPEND &&
        rmq_park(pulls->parking, c, p.queue_slot, p.offset, frame, length, hold_ms(pulls, &p)) == 0) {
        look(pulls, &p, result); /* its flag is set: earlier arrivals are seen now, later ones ring */
        if (result->code == RMQ_ANSWER_NOT_FOUND) {
            if (p.sys_flag & RMQ_PULL_COMMIT)
                commit_offset(pulls, &p);
            count(pulls, &p, result);
            pulls->context->counters[RMQ_READ_PULLS]++;
            return RMQ_OUTCOME_DONE;
        }
        rmq_unpark_last(pulls->parking, c);
    }
    answer(pulls, c, h, &p, result);
    if (p.sys_flag & RMQ_PULL_COMMIT)
        commit_offset(pulls, &p);
    pulls->context->counters[RMQ_READ_PULLS]++;
    return RMQ_OUTCOME_DONE;
}

int rmq_pull_again(struct rmq_pulls *pulls, struct rmq_connection *c, uint8_t *frame, uint32_t length, int peek, int64_t *scanned)
{
    struct rmq_frame_header h;
    struct rmq_pull p;
    int parsed = rmq_frame_header_parse(frame, length, &h);
    RMQ_INVARIANT(parsed == 0, parsed, length); /* it has been parsed before, and the copy is this process's own */
    if (rmq_pull_decode(pulls, c, &h, &p, 0) == RMQ_OUTCOME_COLD) {
        struct rmq_frame_ref none = {RMQ_NONE, RMQ_NONE, 0};
        return rmq_cold_frame(pulls->cold, c, &h, frame, length, &none, 0) != RMQ_OUTCOME_STALL;
    }
    if (peek && !rmq_pull_peek(pulls, &p, scanned))
        return 0;
    look(pulls, &p, pulls->result);
    answer(pulls, c, &h, &p, pulls->result);
    return 1;
}
