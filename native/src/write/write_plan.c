/* write_plan.c: plans a batch, the first step of each batch of write (write_batch.h). A plan is the list of the requests that
 * the batch takes, with their places in the log or their refusals. It is private to write, so a death here leaves nothing.
 * ipc/write_plan_twin.py is the twin; tests/native/test_write_plan_twin.py compares both.
 *
 *   share   a batch has at most RMQ_BATCH_REQUESTS requests and RMQ_BATCH_BYTES. Ports with waiting requests share it by weight,
 *           at least one request each; a chain that took more pays later. Each batch begins at another port.
 *   room    a port gets no more requests than its rings, `parked` and parked_max have room for answers. Others go on.
 *   refuse  2: the broker is no master any more. 14: a fault of the store, or a hold until an operator chooses a log. 1: too few
 *           replicas, a topic or queue that is gone, a log file that comes too late. 13: too large, or malformed.
 *   order   an ordered port refuses all that follows a refusal, until its owner acknowledges it.
 *   chain   tied requests: all get a place, or all are refused (layout.h, 3). A chain that lacks room waits as a whole. One that
 *           can never fit (too many requests, too many bytes) is refused.
 *   place   a request that does not fit into the log file goes to the next one. If that is not there yet, the batch ends. */
#include <string.h>

#include "codec/batch_body.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "plane/settings_word.h"
#include "write/write_batch.h"
#include "write/write_request.h"

enum {
    CODE_SYSTEM_ERROR = 1,
    CODE_SYSTEM_BUSY = 2,
    CODE_MESSAGE_ILLEGAL = 13,
    CODE_SERVICE_NOT_AVAILABLE = 14,
};

void rmq_writer_queues_learn(struct rmq_writer *w)
{
    uint32_t count = rmq_load(&w->header->tables.queue_count);
    for (; w->queues_known < count; w->queues_known++) {
        uint64_t max_offset = rmq_load(&rmq_queue_at(w->plane, w->queues_known)->max_offset);
        w->queue_offsets[w->queues_known] = max_offset;
    }
}

/* --- one request ---------------------------------------------------------------------------------------- */

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

/* 1 if the names of a request exist. Its maker has checked them, but the request comes from another process. */
static int names_are_sound(struct rmq_writer *w, const struct rmq_request *r, uint32_t port)
{
    if (r->queue_slot >= w->queues_known)
        rmq_writer_queues_learn(w);
    if (r->queue_slot >= w->queues_known || r->topic_id > rmq_load(&w->header->tables.topic_count))
        return 0;
    const struct rmq_queue *queue = rmq_queue_at(w->plane, r->queue_slot);
    return queue->topic_id == r->topic_id && queue->queue_id == r->queue_id &&
           rmq_topic_is_live(rmq_load(&rmq_topic_at(w->plane, r->topic_id)->config)) &&
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

/* Refuses a request because of the state of the store and of its replicas, before the request itself is checked. 1 = refused. */
static int refuse_by_state(struct rmq_writer *w, struct rmq_write_plan *plan)
{
    const struct rmq_watermarks *marks = w->plane->watermarks;
    uint32_t fault = rmq_load(&marks->store_fault), dispatch_fault = rmq_load(&marks->dispatch_fault);
    if (!rmq_is_master(marks))
        refuse(plan, CODE_SYSTEM_BUSY, RMQ_CAUSE_NO_MASTER, 0);
    else if (fault)
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, fault, marks->store_fault_errno);
    else if (dispatch_fault)
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, dispatch_fault, marks->dispatch_fault_errno);
    else if (rmq_load(&marks->write_hold))
        refuse(plan, CODE_SERVICE_NOT_AVAILABLE, RMQ_CAUSE_HELD, 0);
    else if (waits(plan->request, w->header->settings.sync_replication) && rmq_load(&marks->replication_state))
        refuse(plan, CODE_SYSTEM_ERROR, RMQ_CAUSE_IN_SYNC_REPLICAS, 0);
    return plan->code != 0;
}

static void check(struct rmq_writer *w, struct rmq_write_plan *plan)
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
 * while n + 1 is stored. Another port: everything up to the end of a broken chain. `refused_at`: as the requests planned so
 * far leave it. */
static int refuse_by_order(struct rmq_write_plan *plan, const struct rmq_port *port, uint64_t position, uint64_t *refused_at)
{
    uint32_t ordered = port->flags & RMQ_PORT_ORDERED;
    uint64_t acknowledged = ordered ? rmq_load(&port->acknowledged) : *refused_at;
    *refused_at = rmq_port_refusal(*refused_at, acknowledged, position);
    if (*refused_at)
        refuse(plan, CODE_SYSTEM_ERROR, ordered ? RMQ_CAUSE_BEHIND_REFUSED : RMQ_CAUSE_CHAIN_REFUSED, 0);
    return plan->code != 0;
}

/* --- chains -------------------------------------------------------------------------------------------- */

/* Position behind the requests that are tied to one another from `at` on, as far as they are published up to `head`; 1 in `whole`
 * when the last of them ends the chain. All are of one generation: behind a request of the port's own there is no other. */
static uint64_t chain_reach(struct rmq_writer *w, const struct rmq_ring *ring, uint64_t at, uint64_t head, int *whole)
{
    const struct rmq_request *request = rmq_ring_slot(w->plane->base, ring, at);
    *whole = 1;
    while (request->flags & RMQ_APPEND_FLAG_WITH_NEXT) {
        if (++at == head) {
            *whole = 0;
            return at;
        }
        request = rmq_ring_slot(w->plane->base, ring, at);
    }
    return at + 1;
}

/* Room for the largest record, and for others of a batch beside it. All fits into one file, so that a chain rolls once. */
static uint64_t chain_bytes_max(const struct rmq_writer *w)
{
    uint64_t most = (uint64_t)w->header->settings.message_bytes_max + RMQ_RECORD_OVERHEAD_MAX + RMQ_BATCH_BYTES;
    uint64_t file = w->segment_bytes - RMQ_BLANK_BYTES;
    return most < file ? most : file;
}

/* The request of the chain that is at fault, NULL = none. */
static struct rmq_write_plan *check_chain(struct rmq_writer *w, struct rmq_write_plan *chain, uint32_t length)
{
    uint64_t bytes = 0, most = chain_bytes_max(w);
    for (struct rmq_write_plan *plan = chain; plan < chain + length; plan++) {
        check(w, plan);
        bytes += plan->bytes;
        if (!plan->code && bytes > most)
            refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_CHAIN_BYTES, 0);
        if (plan->code)
            return plan;
    }
    return NULL;
}

/* Plans the chain that begins with the plan behind the last: all of its requests get a place, or all are refused; 0 when
 * that needs a file that is not there yet. */
static int plan_chain(struct rmq_writer *w, uint32_t port, uint64_t tail, uint32_t length)
{
    struct rmq_write_plan *chain = &w->plan[w->plans];
    const struct rmq_ring *ring = &w->ports[port].request;
    uint64_t plan_end = w->plan_end;
    for (uint32_t i = 0; i < length; i++) {
        const struct rmq_request *request = rmq_ring_slot(w->plane->base, ring, tail + i);
        chain[i] = (struct rmq_write_plan){.request = request, .port = port, .tied = (uint16_t)i};
    }
    struct rmq_write_plan *fault = check_chain(w, chain, length);
    for (uint32_t i = 0; i < length && !fault; i++) {
        if (!place(w, &chain[i])) {
            w->plan_end = plan_end;
            return 0;
        }
        fault = chain[i].code ? &chain[i] : NULL;
    }
    for (uint32_t i = 0; i < length && fault; i++)
        if (&chain[i] != fault)
            refuse(&chain[i], fault->code, RMQ_CAUSE_CHAIN_REFUSED, 0);
    w->plan_end = fault ? plan_end : w->plan_end;
    w->plans += length;
    return 1;
}

/* The next `length` requests of the port wait for room for their answers, or until fewer than parked_max are parked. If only
 * `parked` is short, the other ports leave `length` places of it free for the chain. Otherwise they would take each place that
 * comes free, and the chain would wait for ever. A chain that waits for its owner or for its own port reserves no places. */
static void wait_for_room(struct rmq_writer *w, uint32_t number, uint64_t length)
{
    const struct rmq_port *port = &w->ports[number];
    const struct rmq_journal_port *next = &w->next.port[number];
    uint64_t parked = next->parked_count - rmq_load(&port->completed.head);
    w->blocked |= 1u << number;
    w->room_wanted[number] = (uint32_t)length;
    if (rmq_ring_room(&port->appended, next->completion_head) < length || rmq_ring_room(&port->completed, next->parked_count) < length)
        w->waits_for_owner |= 1u << number;
    else if (length > 1 && parked + length <= port->parked_max &&
             rmq_ring_room(&w->header->ports.parked, w->next.parked_head) < w->plans + length) {
        w->parked_kept = length;
        w->kept_for = number;
    }
}

/* Requests of the longest chain that the port may have. */
static uint64_t chain_max(const struct rmq_writer *w, const struct rmq_port *port)
{
    uint64_t most = w->header->ports.parked.capacity < RMQ_CHAIN_MAX ? w->header->ports.parked.capacity : RMQ_CHAIN_MAX;
    return port->parked_max < most ? port->parked_max : most;
}

/* Requests at `tail` that have to find room together: a chain that may be taken, or one. */
static uint64_t length_at(struct rmq_writer *w, const struct rmq_port *port, uint64_t tail, uint64_t head)
{
    int whole;
    uint64_t length = chain_reach(w, &port->request, tail, head, &whole) - tail;
    return whole && length <= chain_max(w, port) ? length : 1;
}

/* Plans the chain that `plan` begins. The number of requests taken; 0 = it waits, and the other ports go on; -1 = the batch
 * ends here. */
static int plan_tied(struct rmq_writer *w, struct rmq_write_plan *plan, uint64_t tail, uint64_t head, uint64_t room,
                     uint64_t *refused_at)
{
    const struct rmq_port *port = &w->ports[plan->port];
    int whole;
    uint64_t end = chain_reach(w, &port->request, tail, head, &whole), length = end - tail;
    if (!whole || length > chain_max(w, port)) { /* refused one by one: it may be longer than a batch */
        refuse(plan, CODE_MESSAGE_ILLEGAL, RMQ_CAUSE_CHAIN_BROKEN, 0);
        *refused_at = plan->at = end;
        w->plans++;
        return 1;
    }
    if (length > room) {
        wait_for_room(w, plan->port, length);
        return 0;
    }
    if (w->plans + length > RMQ_BATCH_REQUESTS)
        return 0;
    if (!plan_chain(w, plan->port, tail, (uint32_t)length))
        return -1;
    if (plan->code && port->flags & RMQ_PORT_ORDERED)
        *refused_at = end;
    return (int)length;
}

/* --- ports --------------------------------------------------------------------------------------------- */

/* Plans up to `limit` of the `waiting` requests of one port, of which `room` may be answered. A chain that begins among them is
 * planned to its end. 0 if the batch ends here. Stale ones leave the ring even if `room` is 0, because the replacement of their
 * owner takes no completion before they are gone. */
static int plan_port(struct rmq_writer *w, uint32_t number, uint64_t limit, uint64_t waiting, uint64_t room)
{
    const struct rmq_port *port = &w->ports[number];
    uint32_t generation = rmq_load(&port->generation), ordered = port->flags & RMQ_PORT_ORDERED;
    uint64_t tail = w->next.port[number].request_tail, refused_at = w->next.port[number].refused_at, head = tail + waiting;
    for (uint64_t end = tail + limit; tail < end && w->plans < RMQ_BATCH_REQUESTS; tail++) {
        struct rmq_write_plan *plan = &w->plan[w->plans];
        memset(plan, 0, sizeof *plan);
        plan->request = rmq_ring_slot(w->plane->base, &port->request, tail);
        plan->port = number;
        plan->stale = plan->request->generation != generation;
        if (!plan->stale && !room) {
            wait_for_room(w, number, length_at(w, port, tail, head));
            return 1;
        }
        if (!plan->stale && !((ordered || refused_at) && refuse_by_order(plan, port, tail, &refused_at))) {
            if (plan->request->flags & RMQ_APPEND_FLAG_WITH_NEXT) {
                int taken = plan_tied(w, plan, tail, head, room, &refused_at);
                if (taken <= 0 || w->plan_end - w->next.append_offset >= RMQ_BATCH_BYTES)
                    return !taken;
                tail += (uint64_t)taken - 1;
                room -= (uint64_t)taken;
                continue;
            }
            check(w, plan);
        }
        room -= !plan->stale;
        if (!plan->stale && !plan->code && !place(w, plan))
            return 0;
        if (ordered && plan->code && !refused_at)
            refused_at = tail + 1;
        w->plans++;
        if (w->plan_end - w->next.append_offset >= RMQ_BATCH_BYTES)
            return 0;
    }
    return 1;
}

/* Requests of the port that may be answered: its rings have free slots, and no more of them wait than may. A parked request has
 * its slot in `completed` from the start. Otherwise an owner that takes nothing would stop the completer, and with it all
 * ports. */
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

/* The port's share of this batch: at least one request, except after a chain has had more than the share. */
static uint64_t share_of(struct rmq_writer *w, uint32_t port, uint64_t weights)
{
    uint64_t share = RMQ_BATCH_REQUESTS * (uint64_t)w->ports[port].weight / weights;
    share = share ? share : 1;
    uint32_t paid = w->overdrawn[port] < share ? w->overdrawn[port] : (uint32_t)share;
    w->overdrawn[port] -= paid;
    return share - paid;
}

void rmq_writer_plan(struct rmq_writer *w)
{
    uint64_t waiting[RMQ_PORTS_MAX];
    uint64_t weights = 0;
    uint64_t parked_room = rmq_ring_room(&w->header->ports.parked, w->next.parked_head);
    w->plans = 0;
    w->plan_end = w->next.append_offset;
    w->needs_segment = 0;
    w->blocked = w->waits_for_owner = 0;
    for (uint32_t p = 0; p < w->port_count; p++) {
        waiting[p] = rmq_ring_waiting(&w->ports[p].request, w->next.port[p].request_tail);
        weights += waiting[p] ? w->ports[p].weight : 0;
    }
    if (!weights)
        return;
    for (uint32_t i = 0; i < w->port_count; i++) {
        uint32_t p = (w->first_port + i) % w->port_count;
        if (!waiting[p])
            continue;
        uint64_t limit = share_of(w, p, weights), kept = 0;
        if (w->parked_kept && p != w->kept_for)
            kept = w->parked_kept < parked_room ? w->parked_kept : parked_room;
        else
            w->parked_kept = 0;
        uint32_t before = w->plans;
        int goes_on = plan_port(w, p, limit < waiting[p] ? limit : waiting[p], waiting[p], answer_room(w, p, parked_room - kept));
        uint64_t taken = w->plans - before;
        parked_room -= taken < parked_room ? taken : parked_room;
        w->overdrawn[p] += (uint32_t)(taken > limit ? taken - limit : 0);
        if (!goes_on)
            break;
    }
    w->first_port = (w->first_port + 1) % w->port_count;
}
