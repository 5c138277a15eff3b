#include "write/write_batch.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/batch_body.h"
#include "metrics/latency.h"
#include "plane/ring.h"
#include "write/write_request.h"

/* --- encode -------------------------------------------------------------------------------------------- */

static uint64_t segment_end(struct rmq_writer *w, uint64_t at) { return at - at % w->segment_bytes + w->segment_bytes; }

static int takes_queue_offset(int32_t sys_flag)
{
    int transaction = sys_flag & RMQ_SYS_TRANSACTION_MASK;
    return transaction != RMQ_SYS_TRANSACTION_PREPARED && transaction != RMQ_SYS_TRANSACTION_ROLLBACK;
}

/* Returns the bytes written, or another number than plan->bytes if the arena no longer holds the planned request. */
static int64_t encode_single(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    struct rmq_record_in in;
    fill_single(w, plan->request, w->plane->arenas[plan->port], &in);
    in.physical_offset = (int64_t)plan->at;
    in.queue_offset = (int64_t)plan->queue_offset;
    return rmq_record_encode((uint8_t *)rmq_append_window_at(&w->window, plan->at), plan->bytes, &in);
}

static int64_t encode_batch(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    struct rmq_record_in in;
    uint64_t done = 0, count = 0;
    uint8_t *to = (uint8_t *)rmq_append_window_at(&w->window, plan->at);
    uint8_t *at = arena_at(w, plan, plan->request->body_at), *end = at + plan->request->body_length;
    fill_batch(w, plan->request, w->plane->arenas[plan->port], &in);
    while (at < end) {
        uint32_t element_bytes = rmq_batch_element_take(at, (uint32_t)(end - at), &in);
        if (!element_bytes)
            return -1;
        in.physical_offset = (int64_t)(plan->at + done);
        in.queue_offset = (int64_t)(plan->queue_offset + count);
        int64_t size = rmq_record_encode(to + done, plan->bytes - done, &in);
        if (size < 0)
            return size;
        RMQ_CRASH("write-element");
        rmq_put64(at + 4, plan->at + done);
        RMQ_CRASH("write-element-offset");
        at += element_bytes;
        done += (uint64_t)size;
        count++;
    }
    return count == plan->messages ? (int64_t)done : -1;
}

/* Wipes the bytes of a batch that stopped early: none may stay above the append position. */
static void wipe(struct rmq_writer *w, uint64_t from, uint64_t to)
{
    while (from < to) {
        uint64_t end = segment_end(w, from);
        end = end < to ? end : to;
        char *at = rmq_append_window_at(&w->window, from);
        if (at)
            memset(at, 0, end - from);
        from = end;
    }
}

static int encode_plan(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    uint64_t position = w->next.append_offset;
    uint64_t *queue_offset = &w->queue_offsets[plan->request->queue_slot];
    int counted = takes_queue_offset(plan->request->sys_flag);
    if (plan->at != position) {
        rmq_blank_encode((uint8_t *)rmq_append_window_at(&w->window, position), plan->at - position);
        RMQ_CRASH("write-blank");
    }
    plan->queue_offset = counted ? *queue_offset : 0;
    int64_t size = plan->request->kind == RMQ_APPEND_BATCH ? encode_batch(w, plan) : encode_single(w, plan);
    if (size != (int64_t)plan->bytes)
        return 0;
    RMQ_CRASH("write-record");
    w->rolled += plan->at != position;
    w->next.append_offset = plan->at + plan->bytes;
    *queue_offset += counted ? plan->messages : 0;
    return 1;
}

/* The request leaves its ring. */
static void take(struct rmq_journal_port *next, uint32_t flags, const struct rmq_write_plan *plan)
{
    next->request_tail++;
    if (plan->cause == RMQ_CAUSE_CHAIN_BROKEN)
        next->refused_at = plan->at;
    if (!(flags & RMQ_PORT_ORDERED) || plan->stale)
        return;
    if (!plan->code)
        next->refused_at = 0;
    else if (plan->cause != RMQ_CAUSE_BEHIND_REFUSED && plan->cause != RMQ_CAUSE_CHAIN_BROKEN)
        next->refused_at = next->request_tail;
}

/* The batch ends before plan `i`, and before the whole chain that it is in. `before`: where the batch began. */
static void end_before(struct rmq_writer *w, uint32_t i, uint64_t before)
{
    w->plans = i - w->plan[i].tied;
    while (i-- > w->plans) { /* requests of the chain, which are encoded */
        const struct rmq_write_plan *plan = &w->plan[i];
        int counted = takes_queue_offset(plan->request->sys_flag);
        w->queue_offsets[plan->request->queue_slot] -= counted ? plan->messages : 0;
        w->messages -= plan->messages;
        w->next.port[plan->port].request_tail--;
    }
    w->next.append_offset = before;
    w->rolled = 0;
    for (i = 0; i < w->plans; i++) {
        const struct rmq_write_plan *plan = &w->plan[i];
        if (plan->stale || plan->code)
            continue;
        w->rolled += plan->at != w->next.append_offset;
        w->next.append_offset = plan->at + plan->bytes;
    }
    wipe(w, w->next.append_offset, w->plan_end);
}

void rmq_writer_encode(struct rmq_writer *w)
{
    uint64_t before = w->next.append_offset;
    w->messages = w->refused = w->too_few_replicas = w->stale = 0;
    w->rolled = 0;
    for (uint32_t i = 0; i < w->plans; i++) {
        struct rmq_write_plan *plan = &w->plan[i];
        if (!plan->stale && !plan->code && !encode_plan(w, plan)) {
            end_before(w, i, before);
            break;
        }
        take(&w->next.port[plan->port], w->ports[plan->port].flags, plan);
        w->stale += plan->stale;
        w->refused += plan->code != 0;
        w->too_few_replicas += plan->cause == RMQ_CAUSE_IN_SYNC_REPLICAS;
        w->messages += plan->code ? 0 : plan->messages;
    }
    w->appended = w->next.append_offset - before;
    w->next.appended_messages += w->messages;
}

/* --- answers ------------------------------------------------------------------------------------------- */

static void fill_completion(const struct rmq_write_plan *plan, uint32_t appended_us, struct rmq_completion *out)
{
    memset(out, 0, sizeof *out);
    out->appended_us = appended_us;
    out->token = plan->request->token;
    out->generation = plan->request->generation;
    out->code = plan->code;
    out->cause = plan->cause;
    out->cause_errno = plan->cause_errno;
    if (plan->code)
        return;
    out->commit_log_offset = plan->at;
    out->bytes = plan->bytes;
    out->queue_offset = plan->queue_offset;
}

/* Times of the batch: one look at the clock, before the answers are out. */
static uint32_t count_time(struct rmq_writer *w, const struct rmq_write_plan *plan, struct rmq_latency_run *run, int64_t now_ns)
{
    int64_t received_ns = plan->request->received_mono_ns;
    rmq_latency_run_add(&w->header->latency[RMQ_ROLE_WRITE][RMQ_WRITE_LATENCY_APPENDED], run, received_ns, now_ns);
    return received_ns ? rmq_latency_us(now_ns - received_ns) : 0;
}

static void answer_parked(struct rmq_writer *w, const struct rmq_write_plan *plan, uint32_t appended_us, int64_t now_ms)
{
    struct rmq_parked *slot = rmq_ring_slot(w->plane->base, &w->header->ports.parked, w->next.parked_head++);
    memset(slot, 0, sizeof *slot);
    fill_completion(plan, appended_us, &slot->completion);
    slot->parked_mono_ms = now_ms;
    slot->received_mono_ns = plan->request->received_mono_ns;
    slot->completed_position = w->next.port[plan->port].parked_count++;
    slot->port = plan->port;
    w->parked++;
}

void rmq_writer_answer(struct rmq_writer *w)
{
    const struct rmq_settings *settings = &w->header->settings;
    uint32_t policy = settings->sync_flush | settings->sync_replication;
    int64_t now_ns = rmq_mono_ns();
    struct rmq_latency_run run = {0, 0};
    memset(w->answered, 0, sizeof w->answered);
    w->parked = 0;
    for (uint32_t i = 0; i < w->plans; i++) {
        const struct rmq_write_plan *plan = &w->plan[i];
        if (plan->stale)
            continue;
        uint32_t appended_us = plan->code ? 0 : count_time(w, plan, &run, now_ns);
        if (!plan->code && waits(plan->request, policy)) {
            answer_parked(w, plan, appended_us, now_ns / 1000000);
        } else {
            struct rmq_ring *ring = &w->ports[plan->port].appended;
            uint64_t at = w->next.port[plan->port].completion_head++;
            fill_completion(plan, appended_us, rmq_ring_slot(w->plane->base, ring, at));
            w->answered[plan->port] = 1;
        }
        RMQ_CRASH("write-answer");
    }
    rmq_latency_run_end(&w->header->latency[RMQ_ROLE_WRITE][RMQ_WRITE_LATENCY_APPENDED], &run, now_ns);
}
