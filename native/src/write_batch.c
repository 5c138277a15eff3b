#include "write_batch.h"

#include <string.h>

#include "batch_body.h"
#include "bytes.h"
#include "latency.h"
#include "port.h"
#include "ring.h"
#include "writer.h"

enum {
    CODE_SYSTEM_ERROR = 1,
    CODE_MESSAGE_ILLEGAL = 13,
    CODE_SERVICE_NOT_AVAILABLE = 14,
    PAIR_END = 2,
};

void rmq_writer_queues_learn(struct rmq_writer *w)
{
    uint32_t count = rmq_load(&w->header->tables.queue_count);
    for (; w->queues_known < count; w->queues_known++) {
        uint64_t max_offset = rmq_load(&rmq_queue_at(w->plane, w->queues_known)->max_offset);
        w->queue_offsets[w->queues_known] = max_offset;
    }
}

/* --- from request to record ---------------------------------------------------------------------------- */

static int is_v6(const struct rmq_request *request) { return request->flags & RMQ_APPEND_FLAG_BORN_V6; }

/* Everything but body, properties and offsets. */
static void fill_common(struct rmq_writer *w, const struct rmq_request *request, struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    const struct rmq_topic *topic = rmq_topic_at(w->plane, request->topic_id);
    memset(in, 0, sizeof *in);
    in->born_time_ms = request->born_time_ms;
    in->store_time_ms = (int64_t)w->next.store_time_ms;
    in->topic = (const uint8_t *)topic->name;
    in->topic_length = topic->name_length;
    in->queue_id = (int32_t)request->queue_id;
    in->flag = request->flag;
    in->sys_flag = request->sys_flag & ~(RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6);
    in->sys_flag |= is_v6(request) ? RMQ_SYS_BORN_HOST_V6 : 0;
    in->sys_flag |= settings->store_host_bytes == 16 ? RMQ_SYS_STORE_HOST_V6 : 0;
    in->reconsume_times = request->reconsume_times;
    in->born_port = (int32_t)request->born_port;
    in->store_port = (int32_t)settings->store_port;
    memcpy(in->born_host, request->born_host, sizeof in->born_host);
    memcpy(in->store_host, settings->store_host, sizeof in->store_host);
}

static void fill_single(struct rmq_writer *w, const struct rmq_request *request, const char *arena,
                        struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    fill_common(w, request, in);
    in->prepared_transaction_offset = request->prepared_transaction_offset;
    in->body = (const uint8_t *)arena + request->body_at;
    in->body_length = request->body_length;
    in->properties[0] = (const uint8_t *)arena + request->properties_at;
    in->properties_length[0] = request->properties_length;
    in->properties[1] = (const uint8_t *)arena + request->extra_at;
    in->properties_length[1] = request->extra_length;
    in->properties[2] = (const uint8_t *)settings->additions;
    in->properties_length[2] = request->flags & RMQ_APPEND_FLAG_COPY ? 0 : settings->additions_length;
}

static uint32_t join(uint8_t *to, uint32_t at, const void *piece, uint32_t length)
{
    if (!length)
        return at;
    memcpy(to + at, piece, length);
    at += length;
    if (to[at - 1] != PAIR_END)
        to[at++] = PAIR_END;
    return at;
}

/* The batch-level properties, which every record of the batch carries behind its own. */
static void fill_batch(struct rmq_writer *w, const struct rmq_request *request, const char *arena,
                       struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    fill_common(w, request, in);
    in->prepared_transaction_offset = request->prepared_transaction_offset;
    uint32_t length = join(w->tail, 0, arena + request->properties_at, request->properties_length);
    length = join(w->tail, length, arena + request->extra_at, request->extra_length);
    length = join(w->tail, length, settings->additions, settings->additions_length);
    in->properties[1] = w->tail;
    in->properties_length[1] = length;
}

static uint8_t *arena_at(struct rmq_writer *w, const struct rmq_write_plan *plan, uint64_t at)
{
    return (uint8_t *)w->plane->arenas[plan->port] + at;
}

/* --- plan ---------------------------------------------------------------------------------------------- */

static void refuse(struct rmq_write_plan *plan, int16_t code, uint32_t cause, int32_t cause_errno)
{
    plan->code = code;
    plan->cause = (uint16_t)cause;
    plan->cause_errno = cause_errno;
}

static int in_arena(struct rmq_writer *w, uint32_t port, uint64_t at, uint64_t length)
{
    uint64_t bytes = w->plane->arenas[port] ? w->plane->arena_bytes[port] : 0;
    return !length || (at <= bytes && length <= bytes - at);
}

/* What a request names must be there: it was checked by its maker, but it comes from another process. */
static int names_are_sound(struct rmq_writer *w, const struct rmq_request *r, uint32_t port)
{
    if (r->queue_slot >= w->queues_known)
        rmq_writer_queues_learn(w);
    if (r->queue_slot >= w->queues_known || r->topic_id > rmq_load(&w->header->tables.topic_count))
        return 0;
    const struct rmq_queue *queue = rmq_queue_at(w->plane, r->queue_slot);
    return queue->topic_id == r->topic_id && queue->queue_id == r->queue_id &&
           (rmq_load(&rmq_topic_at(w->plane, r->topic_id)->config) >> 40 & RMQ_TOPIC_LIVE) &&
           in_arena(w, port, r->body_at, r->body_length) &&
           in_arena(w, port, r->properties_at, r->properties_length) &&
           in_arena(w, port, r->extra_at, r->extra_length);
}

static void size_single(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    struct rmq_record_in in;
    uint64_t limit = (uint64_t)w->header->settings.message_bytes_max + RMQ_RECORD_OVERHEAD_MAX;
    fill_single(w, plan->request, w->plane->arenas[plan->port], &in);
    int64_t size = rmq_record_size(&in);
    if (size < 0 || (uint64_t)size > limit)
        refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_MESSAGE_SIZE, 0);
    plan->bytes = size < 0 ? 0 : (uint32_t)size;
    plan->messages = 1;
}

static void size_batch(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    struct rmq_record_in in;
    struct rmq_batch_size size;
    uint64_t limit = (uint64_t)w->header->settings.message_bytes_max + RMQ_RECORD_OVERHEAD_MAX;
    fill_batch(w, plan->request, w->plane->arenas[plan->port], &in);
    uint8_t *body = arena_at(w, plan, plan->request->body_at);
    uint32_t cause = rmq_batch_measure(body, plan->request->body_length, limit, &in, &size);
    if (!cause && (plan->request->sys_flag & RMQ_SYS_TRANSACTION_MASK))
        cause = RMQ_CAUSE_BATCH_ELEMENT;
    if (cause)
        refuse(plan, CODE_MESSAGE_ILLEGAL, cause, 0);
    plan->bytes = (uint32_t)size.bytes;
    plan->messages = size.messages;
}

static int waits(const struct rmq_request *request, uint32_t policy)
{
    return policy && !(request->flags & RMQ_APPEND_FLAG_NO_WAIT);
}

/* What the state of the store and of its replicas says before the request itself is looked at; 1 = refused. */
static int refuse_by_state(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    const struct rmq_watermarks *marks = w->plane->watermarks;
    uint32_t fault = rmq_load(&marks->store_fault), dispatch_fault = rmq_load(&marks->dispatch_fault);
    if (fault)
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, fault, marks->store_fault_errno);
    else if (dispatch_fault)
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, dispatch_fault, marks->dispatch_fault_errno);
    else if (rmq_load(&marks->write_hold))
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, RMQ_CAUSE_HELD, 0);
    else if (waits(plan->request, w->header->settings.sync_replication) && rmq_load(&marks->replication_state))
        refuse(plan, CODE_SYSTEM_ERROR, RMQ_CAUSE_IN_SYNC_REPLICAS, 0);
    return plan->code != 0;
}

static void judge(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    const struct rmq_request *r = plan->request;
    if (refuse_by_state(w, plan))
        return;
    if (!names_are_sound(w, r, plan->port))
        refuse(plan, CODE_SYSTEM_ERROR, RMQ_CAUSE_QUEUE_SLOT, 0);
    else if (r->body_length > w->header->settings.message_bytes_max)
        refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_MESSAGE_SIZE, 0);
    else if (r->kind == RMQ_APPEND_BATCH)
        size_batch(w, plan);
    else if (r->kind == RMQ_APPEND_SINGLE && !(r->sys_flag & RMQ_SYS_INNER_BATCH))
        size_single(w, plan);
    else
        refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_BATCH_ELEMENT, 0);
    if (!plan->code && (uint64_t)plan->bytes + RMQ_BLANK_BYTES > w->segment_bytes)
        refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_MESSAGE_SIZE, 0);
}

/* Gives the request its place; 0 when that needs a file that is not there yet. */
static int place(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    uint64_t at = w->plan_end, limit = at - at % w->segment_bytes + w->segment_bytes;
    if (plan->bytes + (uint64_t)RMQ_BLANK_BYTES > limit - at)
        at = limit;
    if (!rmq_append_window_at(&w->window, at)) {
        w->needs_segment = 1;
        if (!w->segment_late)
            return 0;
        refuse(plan, CODE_SYSTEM_ERROR, RMQ_CAUSE_SEGMENT_LATE, 0);
        return 1;
    }
    plan->at = at;
    w->plan_end = at + plan->bytes;
    return 1;
}

/* An ordered port: behind a refusal everything is refused until its owner has acknowledged it, so that n is never missing
 * while n + 1 is stored. `refused_at`: as the requests planned so far leave it. */
static int refuse_by_order(struct rmq_write_plan *plan, const struct rmq_port *port, uint64_t position, uint64_t *refused_at)
{
    *refused_at = rmq_port_refusal(*refused_at, rmq_load(&port->acknowledged), position);
    if (*refused_at)
        refuse(plan, CODE_SYSTEM_ERROR, RMQ_CAUSE_BEHIND_REFUSED, 0);
    return plan->code != 0;
}

/* Plans up to `limit` requests of one port, of which `room` may be answered; 0 when the batch ends here. Stale ones leave
 * the ring though there is no room: who replaces their owner takes no completion before they are gone. */
static int plan_port(struct rmq_writer *w, uint32_t number, uint64_t limit, uint64_t room)
{
    const struct rmq_port *port = &w->ports[number];
    uint32_t generation = rmq_load(&port->generation), ordered = port->flags & RMQ_PORT_ORDERED;
    uint64_t tail = w->next.port[number].request_tail, refused_at = w->next.port[number].refused_at;
    for (uint64_t end = tail + limit; tail < end && w->plans < RMQ_BATCH_REQUESTS; tail++) {
        struct rmq_write_plan *plan = &w->plan[w->plans];
        memset(plan, 0, sizeof *plan);
        plan->request = rmq_ring_slot(w->plane->base, &port->request, tail);
        plan->port = number;
        plan->stale = plan->request->generation != generation;
        if (!plan->stale && !room) {
            w->blocked |= 1u << number;
            return 1;
        }
        room -= !plan->stale;
        if (!plan->stale && !(ordered && refuse_by_order(plan, port, tail, &refused_at)))
            judge(w, plan);
        if (!plan->stale && !plan->code && !place(w, plan))
            return 0;
        if (plan->code && !refused_at)
            refused_at = tail + 1;
        w->plans++;
        if (w->plan_end - w->next.append_offset >= RMQ_BATCH_BYTES)
            return 0;
    }
    return 1;
}

/* Requests of the port that may be answered: its rings have room, and no more of them wait than may. What is parked has its
 * place in `completed` from the start: an owner that takes nothing would stop the completer, and with it all ports. */
static uint64_t answer_room(const struct rmq_writer *w, uint32_t number, uint64_t parked_room)
{
    const struct rmq_port *port = &w->ports[number];
    const struct rmq_journal_port *next = &w->next.port[number];
    uint64_t room = rmq_ring_room(&port->appended, next->completion_head);
    uint64_t places = rmq_ring_room(&port->completed, next->parked_count);
    uint64_t parked = next->parked_count - rmq_load(&port->completed.head);
    uint64_t may_park = parked < port->parked_max ? port->parked_max - parked : 0;
    room = room < parked_room ? room : parked_room;
    room = room < places ? room : places;
    return room < may_park ? room : may_park;
}

void rmq_writer_plan(struct rmq_writer *w)
{
    uint64_t waiting[RMQ_PORTS_MAX];
    uint64_t weights = 0;
    uint64_t parked_room = rmq_ring_room(&w->header->ports.parked, w->next.parked_head);
    w->plans = 0;
    w->plan_end = w->next.append_offset;
    w->needs_segment = w->blocked = 0;
    for (uint32_t p = 0; p < w->port_count; p++) {
        waiting[p] = rmq_load(&w->ports[p].request.head) - w->next.port[p].request_tail;
        weights += waiting[p] ? w->ports[p].weight : 0;
    }
    if (!weights)
        return;
    for (uint32_t i = 0; i < w->port_count; i++) {
        uint32_t p = (w->first_port + i) % w->port_count;
        if (!waiting[p])
            continue;
        uint64_t share = RMQ_BATCH_REQUESTS * (uint64_t)w->ports[p].weight / weights, limit = share ? share : 1;
        limit = waiting[p] < limit ? waiting[p] : limit;
        uint64_t room = answer_room(w, p, parked_room);
        parked_room -= limit < room ? limit : room;
        if (!plan_port(w, p, limit, room))
            break;
    }
    w->first_port = (w->first_port + 1) % w->port_count;
}

/* --- encode -------------------------------------------------------------------------------------------- */

static uint64_t segment_end(struct rmq_writer *w, uint64_t at) { return at - at % w->segment_bytes + w->segment_bytes; }

static int takes_queue_offset(int32_t sys_flag)
{
    int transaction = sys_flag & RMQ_SYS_TRANSACTION_MASK;
    return transaction != RMQ_SYS_TRANSACTION_PREPARED && transaction != RMQ_SYS_TRANSACTION_ROLLBACK;
}

/* Bytes written, or anything else than plan->bytes when the arena no longer says what was planned. */
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

/* Nothing of a batch that stopped early may stay above the append position. */
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
    if (!(flags & RMQ_PORT_ORDERED) || plan->stale)
        return;
    if (!plan->code)
        next->refused_at = 0;
    else if (plan->cause != RMQ_CAUSE_BEHIND_REFUSED)
        next->refused_at = next->request_tail;
}

void rmq_writer_encode(struct rmq_writer *w)
{
    uint64_t before = w->next.append_offset;
    w->messages = w->refused = w->too_few_replicas = w->stale = 0;
    w->rolled = 0;
    for (uint32_t i = 0; i < w->plans; i++) {
        struct rmq_write_plan *plan = &w->plan[i];
        if (!plan->stale && !plan->code && !encode_plan(w, plan)) {
            wipe(w, w->next.append_offset, w->plan_end);
            w->plans = i;
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
