/* Completions of write and of the completer -> answers. */
#include <stdio.h>
#include <string.h>

#include "metrics/latency.h"
#include "reader/request_codes.h"
#include "reader/sends.h"

static const char *element_fault(uint16_t cause)
{
    switch (cause) {
    case RMQ_CAUSE_BATCH_ELEMENT:
        return " An element of the batch is malformed.";
    case RMQ_CAUSE_BATCH_PAIRS:
        return " properties of an element of the batch: they hold a NUL character or a pair without name or 0x01";
    case RMQ_CAUSE_BATCH_ALONE:
        return " properties of an element of the batch: only a single message may have DELAY > 0 or TRAN_MSG = true";
    default:
        return "";
    }
}

/* The remark of a refused send: the cause first, then the text of errno. */
static void remark_of(const struct rmq_sends *sends, const struct rmq_completion *done, char *to, size_t room)
{
    const char *system = done->cause_errno ? strerror(done->cause_errno) : "";
    const char *colon = done->cause_errno ? ": " : "";
    switch (done->cause) {
    case RMQ_FAULT_FSYNC:
        snprintf(to, room, "the store refuses writes: fsync of the commit log failed%s%s; an operator has to restart the broker", colon,
                 system);
        return;
    case RMQ_FAULT_DISK_FULL:
        snprintf(to, room, "the store refuses writes: no space left for the commit log%s%s", colon, system);
        return;
    case RMQ_FAULT_CREATE_FILE:
        snprintf(to, room, "create mapped file failed, server is busy or broken%s%s", colon, system);
        return;
    case RMQ_FAULT_QUEUE_IO:
        snprintf(to, room, "the store refuses writes: a consume queue or index file could not be written%s%s", colon, system);
        return;
    case RMQ_FAULT_QUEUE_SYNC:
        snprintf(to, room, "the store refuses writes: fsync of a consume queue or index file failed%s%s; an operator has to restart "
                           "the broker",
                 colon, system);
        return;
    case RMQ_CAUSE_MESSAGE_SIZE:
    case RMQ_CAUSE_BATCH_ELEMENT:
    case RMQ_CAUSE_BATCH_PAIRS:
    case RMQ_CAUSE_BATCH_ALONE:
        snprintf(to, room, "the message is illegal, maybe msg body or properties length not matched. msg body length limit %uB, msg "
                           "properties length limit 32KB.%s",
                 sends->context->settings->message_bytes_max, element_fault(done->cause));
        return;
    case RMQ_CAUSE_SEGMENT_LATE:
        snprintf(to, room, "[OVERLOAD]the next commit log file is not ready yet%s%s", colon, system);
        return;
    case RMQ_CAUSE_QUEUE_SLOT:
        snprintf(to, room, "the queue is gone: its topic was deleted or changed");
        return;
    case RMQ_CAUSE_IN_SYNC_REPLICAS:
        snprintf(to, room, "in-sync replicas not enough"); /* stock's very words, SendMessageProcessor */
        return;
    case RMQ_CAUSE_NO_MASTER:
        snprintf(to, room, "[REJECTREQUEST]this broker is no master now, send to the master of its group");
        return;
    case RMQ_CAUSE_YIELDED:
        snprintf(to, room, "[REJECTREQUEST]this broker is no master now; the message may be stored, send it to the master again");
        return;
    case RMQ_CAUSE_HELD:
        snprintf(to, room, "service not available now: the log of a slave is longer than this master's, or differs; an operator has "
                           "to choose (ringmq ha adopt, ringmq ha salvage)");
        return;
    default:
        snprintf(to, room, "the store refused the message%s%s", colon, system);
    }
}

static int is_stored(int16_t code) { return code == RMQ_ANSWER_SUCCESS || (code >= RMQ_ANSWER_FLUSH_TIMEOUT && code <= 12); }

static void answer(struct rmq_sends *sends, struct rmq_connection *c, struct rmq_pending *p, const struct rmq_completion *done)
{
    const struct rmq_send_note *note = rmq_send_note_of(p);
    char remark[384] = "";
    if (!is_stored(done->code))
        remark_of(sends, done, remark, sizeof remark);
    struct rmq_answer_head head = {
        .code = done->code,
        .opaque = p->opaque,
        .serialise = p->serialise,
        .remark = remark,
        .remark_length = (uint32_t)strlen(remark),
    };
    if (!is_stored(done->code)) {
        uint8_t *to = rmq_output_reserve(sends->answers->outputs, c, rmq_error_answer_bound(&head, &sends->answers->broker));
        if (to)
            rmq_output_commit(sends->answers->outputs, c, rmq_error_answer_put(to, &head, &sends->answers->broker));
        return;
    }
    struct rmq_send_answer a = {
        .head = head,
        .broker = &sends->answers->broker,
        .uniq_key = note->uniq_key_at ? sends->arena->bytes + note->uniq_key_at : NULL,
        .uniq_key_length = note->uniq_key_length,
        .batch = note->batch_at ? sends->arena->bytes + note->batch_at : NULL,
        .batch_length = note->batch_length,
        .queue_id = note->queue_id,
        .queue_offset = (int64_t)done->queue_offset,
        .commit_log_offset = done->commit_log_offset,
        .recall_ms = note->recall_ms,
    };
    if (note->recall_topic_id) {
        const struct rmq_topic *topic = rmq_topic_at(sends->context->plane, note->recall_topic_id);
        a.recall_topic = topic->name;
        a.recall_topic_length = topic->name_length;
    }
    uint8_t *to = rmq_output_reserve(sends->answers->outputs, c, rmq_send_answer_bound(&a));
    if (to)
        rmq_output_commit(sends->answers->outputs, c, rmq_send_answer_put(to, &a));
}

/* Control writes the line. A full ring has more than it may say at once. */
static void tell_slow(struct rmq_sends *sends, const struct rmq_connection *c, struct rmq_pending *p,
                      const struct rmq_completion *done, int64_t took_ns)
{
    const struct rmq_send_note *note = rmq_send_note_of(p);
    struct rmq_ring *ring = &sends->context->port->slow;
    if (!rmq_ring_room(ring, ring->head)) {
        rmq_store_relaxed(&sends->context->port->slow_dropped, sends->context->port->slow_dropped + 1);
        return;
    }
    struct rmq_slow_request *slow = rmq_ring_slot(sends->context->plane->base, ring, ring->head);
    *slow = (struct rmq_slow_request){
        .received_wall_ms = rmq_wall_ms() - took_ns / 1000000,
        .topic_id = note->topic_id,
        .queue_id = note->queue_id,
        .code = p->code,
        .answer_code = done->code,
        .port = c->port,
        .v6 = c->v6,
        .bytes = p->frame_length,
        .queued_us = note->queued_us,
        .appended_us = done->appended_us,
        .durable_us = done->durable_us,
        .answered_us = rmq_latency_us(took_ns),
    };
    memcpy(slow->host, c->host, sizeof slow->host);
    rmq_store(&ring->head, ring->head + 1);
}

static uint32_t drain(struct rmq_sends *sends, struct rmq_ring *ring)
{
    struct rmq_latency *latency = &sends->context->header->latency[sends->context->role_number][RMQ_READ_LATENCY_ANSWERED];
    struct rmq_latency_run run = {0, 0};
    int64_t slow_ns = (int64_t)rmq_load_relaxed(&sends->context->settings->slow_request_ms) * 1000000;
    uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
    uint32_t count = (uint32_t)(head - tail);
    for (; tail < head; tail++) {
        const struct rmq_completion *done = rmq_ring_slot(sends->context->plane->base, ring, tail);
        if (done->generation != sends->context->generation) { /* of a dead process's request */
            sends->context->counters[RMQ_READ_STALE]++;
            continue;
        }
        struct rmq_pending *p = rmq_pending_find(sends->pendings, (uint32_t)done->token); /* its completion alone releases it */
        RMQ_INVARIANT(p && p->kind == RMQ_PENDING_APPEND, done->token, tail, done->generation);
        struct rmq_connection *c = p->oneway ? NULL : rmq_pending_connection(sends->pendings, p);
        if (c)
            answer(sends, c, p, done);
        rmq_latency_run_add(latency, &run, p->received_ns, sends->context->now_ns);
        if (c && slow_ns && sends->context->now_ns - p->received_ns >= slow_ns)
            tell_slow(sends, c, p, done, sends->context->now_ns - p->received_ns);
        rmq_pending_release(sends->pendings, p);
    }
    rmq_latency_run_end(latency, &run, sends->context->now_ns);
    if (count) {
        RMQ_CRASH("reader-completions-answered");
        rmq_store(&ring->tail, tail);
    }
    return count;
}

uint32_t rmq_completions_drain(struct rmq_sends *sends)
{
    return drain(sends, &sends->context->port->appended) + drain(sends, &sends->context->port->completed);
}
