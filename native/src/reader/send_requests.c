/* send_requests.c: the slot of a send in the request ring. */
#include <string.h>

#include "codec/record.h"
#include "codec/topic_names.h"
#include "metrics/latency.h"
#include "reader/sends.h"

#define HOST_SYS_FLAGS (RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6)

static void fill_request(struct rmq_sends *sends, const struct rmq_connection *c, const struct rmq_send *s, struct rmq_request *q,
                         const struct rmq_pending *p, uint32_t extra_length, uint8_t *body, uint32_t body_length)
{
    q->body_at = rmq_arena_offset(sends->arena, body);
    q->properties_at = s->properties_length ? rmq_arena_offset(sends->arena, s->properties) : 0;
    q->extra_at = extra_length ? rmq_arena_offset(sends->arena, rmq_pending_scratch(sends->pendings, p)) : 0;
    q->body_length = body_length;
    q->properties_length = (uint16_t)s->properties_length;
    q->extra_length = (uint16_t)extra_length;
    q->token = rmq_pending_id(sends->pendings, p);
    q->generation = sends->context->generation;
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
static int keep(struct rmq_sends *sends, struct rmq_send *s, uint8_t **frame, uint32_t length, struct rmq_frame_ref *ref,
                struct rmq_frame_ref *kept)
{
    if (ref->buffer != RMQ_NONE && rmq_buffers_few(sends->arena)) {
        uint8_t *old = *frame;
        int may = length <= sends->arena->buffer_bytes / 4 || rmq_blocks_many(sends->arena);
        uint8_t *to = may ? rmq_block_take(sends->arena, length, kept) : NULL;
        if (to) {
            memcpy(to, old, length);
            *frame = to;
            s->properties = s->properties_length ? to + (s->properties - old) : NULL;
            s->uniq_key = s->uniq_key ? to + (s->uniq_key - old) : NULL;
            return 1;
        }
        if (rmq_buffers_last(sends->arena))
            return 0;
    }
    rmq_frame_ref_retain(sends->arena, ref, kept);
    return 1;
}

static struct rmq_latency *latency_queued(const struct rmq_read_context *context)
{
    return &context->header->latency[context->role_number][RMQ_READ_LATENCY_QUEUED];
}

/* Stores the time of its receipt: the beginning of this round, or of the round in which no slot was free. */
static void stamp(struct rmq_sends *sends, struct rmq_connection *c, struct rmq_pending *p)
{
    p->received_ns = c->sends.stalled_ns ? c->sends.stalled_ns : sends->context->now_ns;
    rmq_send_note_of(p)->queued_us = rmq_latency_us(sends->context->now_ns - p->received_ns);
    if (c->sends.stalled_ns)
        rmq_latency_count(latency_queued(sends->context), sends->context->now_ns - c->sends.stalled_ns, 1);
    else
        sends->fresh++;
    c->sends.stalled_ns = 0;
}

/* A pair that the client did not send; its bytes. */
static uint32_t add_uniq_pair(struct rmq_sends *sends, struct rmq_send *s, uint8_t *to)
{
    uint32_t length = rmq_uniq_pair_length(&sends->uniq_keys);
    rmq_uniq_pair_put(&sends->uniq_keys, to);
    s->uniq_key = to + sizeof RMQ_UNIQ_NAME;
    s->uniq_key_length = length - (uint32_t)sizeof RMQ_UNIQ_NAME - 1;
    return length;
}

/* The handle by which the message can be recalled (SendMessageProcessor.attachRecallHandle): one ms behind TIMER_OUT_MS.
 * None of a batch, and none of a message that waits for a retry. */
static void note_recall(const struct rmq_sends *sends, const struct rmq_send *s, const struct rmq_send_target *target,
                        struct rmq_send_note *note)
{
    const struct rmq_topic *topic = rmq_topic_at(sends->context->plane, s->topic_id);
    note->recall_topic_id = 0;
    if (!target->out_ms || s->batch || rmq_is_retry_topic(topic->name, topic->name_length))
        return;
    uint32_t named = target->rule->recall_topic_id, topics = rmq_load(&sends->context->header->tables.topic_count);
    RMQ_INVARIANT(named <= topics, named, topics, s->topic_id); /* control published the rule behind its topics */
    note->recall_topic_id = named ? named : s->topic_id;
    note->recall_ms = target->out_ms + 1;
}

const char *rmq_send_push(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h,
                          struct rmq_send *s, const struct rmq_send_target *target, uint8_t *frame, uint32_t length,
                          struct rmq_frame_ref *ref)
{
    struct rmq_frame_ref kept;
    if (!keep(sends, s, &frame, length, ref, &kept))
        return "[OVERLOAD]too many bytes under way, try again later";
    struct rmq_pending *p = rmq_pending_take(sends->pendings, RMQ_PENDING_APPEND, c, h);
    if (!p) { /* cannot be: the table holds more than appends_max */
        rmq_frame_ref_release(sends->arena, &kept);
        return "[OVERLOAD]too many requests under way, try again later";
    }
    p->ref = kept;
    uint8_t *scratch = rmq_pending_scratch(sends->pendings, p);
    uint32_t extra_length = s->uniq_key || s->batch ? 0 : add_uniq_pair(sends, s, scratch);
    if (target->rule)
        extra_length = (uint32_t)(rmq_send_put_pairs(sends->context->plane, s, target, scratch + extra_length) - scratch);
    RMQ_CRASH("reader-properties-ready");
    uint8_t *body = frame + 8 + h->header_length;
    uint32_t body_length = length - 8 - h->header_length;
    struct rmq_send_note *note = rmq_send_note_of(p);
    note->uniq_key_at = s->uniq_key ? rmq_arena_offset(sends->arena, s->uniq_key) : 0;
    note->uniq_key_length = (uint16_t)s->uniq_key_length;
    note->batch_at = s->batch ? rmq_arena_offset(sends->arena, body) : 0;
    note->batch_length = s->batch ? body_length : 0;
    note->queue_id = s->queue_id;
    note->topic_id = s->topic_id;
    note_recall(sends, s, target, note);
    p->frame_length = length;
    stamp(sends, c, p);
    if (target->rule)
        rmq_send_redirect(s, target); /* the answer names the client's topic, as in stock */
    struct rmq_request *q = rmq_ring_slot(sends->context->plane->base, sends->requests, sends->request_head);
    fill_request(sends, c, s, q, p, extra_length, body, body_length);
    sends->request_head++;
    RMQ_CRASH("reader-request-filled");
    return NULL;
}

void rmq_sends_publish(struct rmq_sends *sends)
{
    if (sends->request_head == rmq_load_relaxed(&sends->requests->head))
        return;
    if (sends->fresh)
        rmq_latency_count(latency_queued(sends->context), rmq_mono_ns() - sends->context->now_ns, sends->fresh);
    sends->fresh = 0;
    rmq_store(&sends->requests->head, sends->request_head);
    RMQ_CRASH("reader-requests-published");
    rmq_role_wake(sends->context->plane, RMQ_ROLE_WRITE);
}
