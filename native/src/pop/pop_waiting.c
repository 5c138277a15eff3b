#include "pop/pop_waiting.h"

#include <string.h>

#include "plane/port.h"
#include "plane/settings_word.h"
#include "pop/pop_hold.h"

#define NS_A_MS 1000000ll
#define LATE_MS 100             /* behind its time the read worker answers: then a message would not reach the client */
#define ARRIVALS_OF_TURN 1024u
#define KEYS_OF_TURN 256u
#define TRIES_OF_KEY 64u        /* filters: then other keys go on */
#define LOOKS_OF_KEY 1024u      /* polls, of them those with the same filters or without room for an answer */
#define DUE_OF_TURN 512u
#define STEPS_OF_TURN 4096u
#define BEHIND_OF_PASS 128u
#define LOOKS_OF_TURN 256u
#define LOOK_PART 4             /* of the time for polls */
#define ORDERS_OF_TURN 64u
#define PASS_MS 10              /* between two passes over keys that are behind */

static const struct rmq_pop_request *request_of(const struct rmq_pop_poll *poll) { return (const void *)poll->request; }

static int has_time(int64_t until_ns) { return rmq_mono_ns() < until_ns; }

static void take_arrivals(struct rmq_pop_desk *d, int64_t until_ns)
{
    struct rmq_ring *ring = &rmq_port_at(d->plane, d->port)->arrived;
    uint64_t tail = rmq_load_relaxed(&ring->tail), waiting = rmq_ring_waiting(ring, tail);
    uint32_t queues = rmq_load(&rmq_plane_header_of(d->plane)->tables.queue_count);
    uint8_t *wishes = rmq_pop_wishes(d);
    uint64_t i = 0;
    for (; i < waiting && i < ARRIVALS_OF_TURN && (!i || has_time(until_ns)); i++) { /* each walks the keys of its topic */
        uint32_t slot = *(const uint32_t *)rmq_ring_slot(d->plane->base, ring, tail + i);
        RMQ_INVARIANT(slot < queues, slot, queues);
        const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
        if (!rmq_pop_polls_wake_queue(d->polls, queue->topic_id, queue->queue_id))
            rmq_store(&wishes[slot], 0);
    }
    d->has_arrivals = i < waiting;
    if (i)
        rmq_store(&ring->tail, tail + i);
    d->arrivals += i;
}

/* --- a poll is served again -------------------------------------------------------------------------------------- */

static uint32_t serve_kind(struct rmq_pop_desk *d, struct rmq_pop_row *row, uint32_t kind)
{
    if (d->settings & RMQ_POP_IS_STOPPED)
        return RMQ_POP_STOPPED;
    return kind == RMQ_POP_POLL_NOTIFICATION ? rmq_pop_serve_notification(d, row) : rmq_pop_serve_pop(d, row);
}

/* 1: the poll is over. 0: it goes on waiting. A poll that is refused, or that needs something first, is asked for again: that is
 * the way of each request. */
static int serve(struct rmq_pop_desk *d, uint32_t number, uint32_t is_last)
{
    const struct rmq_pop_poll *poll = rmq_pop_polls_at(d->polls, number);
    const struct rmq_pop_request *request = request_of(poll);
    struct rmq_pop_row *row = &d->row;
    row->ask = request->ask;
    row->ask.pending = number;
    row->asked = request->asked;
    row->pop = request->fields;
    memcpy(row->text, request + 1, row->pop.head.text_bytes);
    row->frame = NULL;
    row->held = number + 1;
    row->serial = poll->ask.serial;
    row->is_last = is_last;
    row->due = 0;
    uint32_t why = serve_kind(d, row, poll->ask.key.kind);
    if (why != RMQ_POP_SERVED && why != RMQ_POP_WAITS) {
        struct rmq_verdict verdict = {.type = RMQ_VERDICT_REDO};
        rmq_pop_put(d, row, &verdict, row, 0);
        if (why < RMQ_POP_TOO_LATE)
            rmq_pop_polls_put_behind(d->polls, number); /* the next one tries it soon */
        else
            rmq_pop_polls_wake_key(d->polls, &poll->ask.key); /* the others are refused, too */
    }
    row->held = row->is_last = 0;
    if (why == RMQ_POP_WAITS)
        return 0;
    rmq_pop_polls_end(d->polls, number);
    return 1;
}

static int is_text(const struct rmq_pop_request *request, struct rmq_plain_text text, const struct rmq_pop_request *other,
                   struct rmq_plain_text same)
{
    return text.length == same.length &&
           !memcmp((const uint8_t *)(request + 1) + text.at, (const uint8_t *)(other + 1) + same.at, text.length);
}

/* 1: others of its key may get messages that it does not. */
static int has_filter(const struct rmq_pop_request *request)
{
    if (request->fields.order)
        return 1;
    const struct rmq_plain_text text = request->fields.expression;
    return text.length > 1 || (text.length == 1 && *((const uint8_t *)(request + 1) + text.at) != '*');
}

static int is_filter_of(const struct rmq_pop_request *request, const struct rmq_pop_request *other)
{
    return request->fields.order == other->fields.order &&
           is_text(request, request->fields.expression, other, other->fields.expression) &&
           is_text(request, request->fields.expression_type, other, other->fields.expression_type);
}

static int is_tried(const struct rmq_pop_request *request, const struct rmq_pop_request **tried, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_filter_of(tried[i], request))
            return 1;
    return 0;
}

/* Polls of orderly groups whose queues are free by time. */
static void take_orders(struct rmq_pop_desk *d)
{
    uint32_t places[ORDERS_OF_TURN], count = rmq_pop_orders_due(d->windows, d->now_ns / NS_A_MS, places, ORDERS_OF_TURN);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t group_id = rmq_pop_index_group(d->index, places[i]);
        if (group_id != RMQ_NONE)
            rmq_pop_wake_order(d, group_id, rmq_pop_index_queue(d->index, places[i]));
    }
}

/* Serves the first poll of a key that gets something, from `number` on. Its answer wakes the key again if more is there. A poll
 * whose filter wants nothing of what is there is no reason that one with another filter waits. One try is made in any case: the
 * key goes on behind it. */
static void serve_key(struct rmq_pop_desk *d, uint32_t number, int64_t until_ns)
{
    const struct rmq_pop_request *tried[TRIES_OF_KEY];
    uint32_t tries = 0, without_room = RMQ_NONE;
    for (uint32_t looks = 0; number != RMQ_NONE && tries < TRIES_OF_KEY && looks < LOOKS_OF_KEY; looks++) {
        if (tries && !has_time(until_ns))
            break;
        const uint32_t at = number;
        const struct rmq_pop_poll *poll = rmq_pop_polls_at(d->polls, at);
        const struct rmq_pop_request *request = request_of(poll);
        number = rmq_pop_polls_next_of(d->polls, at);
        if (poll->ask.due_ms <= d->now_ns / NS_A_MS || is_tried(request, tried, tries))
            continue;
        if (rmq_pop_room(d, poll->ask.role) < RMQ_POP_ANSWER_BYTES_MIN) {
            without_room = at;
            continue;
        }
        if (serve(d, at, 0))
            return;
        if (!has_filter(request))
            number = RMQ_NONE;
        tried[tries++] = request;
    }
    if (without_room != RMQ_NONE)
        rmq_pop_polls_put_behind(d->polls, without_room);
    else if (number != RMQ_NONE)
        rmq_pop_polls_resume(d->polls, number);
}

/* Answers the notifications of a key, from `number` on, as many as are to be told of a message. */
static void notify_key(struct rmq_pop_desk *d, uint32_t number, int64_t until_ns)
{
    uint32_t without_room = RMQ_NONE;
    for (uint32_t looks = 0; number != RMQ_NONE; looks++) {
        const uint32_t at = number;
        const struct rmq_pop_poll *poll = rmq_pop_polls_at(d->polls, at);
        if (looks == LOOKS_OF_KEY || (looks && !has_time(until_ns))) {
            rmq_pop_polls_resume(d->polls, at);
            return;
        }
        number = rmq_pop_polls_next_of(d->polls, at);
        if (poll->ask.due_ms <= d->now_ns / NS_A_MS)
            continue;
        if (rmq_pop_room(d, poll->ask.role) < RMQ_POP_ANSWER_BYTES_MIN)
            without_room = at;
        else if (!serve(d, at, 0) || d->row.due <= 1)
            return;
    }
    if (without_room != RMQ_NONE)
        rmq_pop_polls_put_behind(d->polls, without_room);
}

static void end_due(struct rmq_pop_desk *d, int64_t until_ns)
{
    uint32_t steps = STEPS_OF_TURN, number;
    for (uint32_t n = 0; n < DUE_OF_TURN && (!n || has_time(until_ns)); n++) {
        number = rmq_pop_polls_due(d->polls, d->now_ns / NS_A_MS, &steps);
        if (number == RMQ_NONE)
            break;
        const struct rmq_pop_poll *poll = rmq_pop_polls_at(d->polls, number);
        int is_late = d->now_ns > request_of(poll)->until_ns + LATE_MS * NS_A_MS;
        if (is_late || rmq_pop_room(d, poll->ask.role) < RMQ_POP_ANSWER_BYTES_MIN || !serve(d, number, 1))
            rmq_pop_polls_end(d->polls, number); /* its read worker answers */
    }
}

/* --- looks -------------------------------------------------------------------------------------------------------- */

static int is_there(const struct rmq_pop_desk *d, const struct rmq_pop_key *key)
{
    return rmq_topic_is_live(rmq_load(&rmq_topic_at(d->plane, key->topic_id)->config)) &&
           rmq_load(&rmq_group_at(d->plane, key->group_id)->config) & RMQ_GROUP_LIVE;
}

/* Some keys of a look. */
static void look_on(struct rmq_pop_desk *d, int64_t until_ns)
{
    struct rmq_pop_key key;
    for (uint32_t n = 0; d->look_at && n < LOOKS_OF_TURN && (!n || has_time(until_ns)); n++) {
        uint32_t number = rmq_pop_polls_key_from(d->polls, d->look_at - 1, &key);
        if (number == RMQ_NONE) {
            d->look_at = d->looks_again;
            d->looks_again = 0;
            continue;
        }
        d->look_at = number + 2;
        rmq_pop_want_all(d, &key);
        if (!is_there(d, &key))
            rmq_pop_polls_wake_key(d->polls, &key);
    }
}

void rmq_pop_waiting_look(struct rmq_pop_desk *d)
{
    if (!rmq_pop_polls_count(d->polls))
        return;
    if (d->look_at)
        d->looks_again = 1;
    else
        d->look_at = 1;
}

/* --- turns ------------------------------------------------------------------------------------------------------- */

void rmq_pop_waiting_turn(struct rmq_pop_desk *d)
{
    take_arrivals(d, rmq_mono_ns() + d->polls_ns);
    take_orders(d);
    if (d->now_ns / NS_A_MS >= d->go_on_ms) {
        d->go_on_ms = d->now_ns / NS_A_MS + PASS_MS;
        rmq_pop_polls_go_on(d->polls, BEHIND_OF_PASS);
    }
    look_on(d, rmq_mono_ns() + d->polls_ns / LOOK_PART);
    int64_t until_ns = rmq_mono_ns() + d->polls_ns;
    for (uint32_t keys = 0; keys < KEYS_OF_TURN && (!keys || has_time(until_ns)); keys++) {
        uint32_t first = rmq_pop_polls_take_awake(d->polls);
        if (first == RMQ_NONE)
            break;
        if (rmq_pop_polls_at(d->polls, first)->ask.key.kind == RMQ_POP_POLL_NOTIFICATION)
            notify_key(d, first, until_ns);
        else
            serve_key(d, first, until_ns);
    }
    end_due(d, rmq_mono_ns() + d->polls_ns);
    rmq_pop_tell_waiting(d);
}

int rmq_pop_waiting_has_more(const struct rmq_pop_desk *d)
{
    return d->has_arrivals || d->look_at || rmq_pop_polls_is_awake(d->polls);
}

int64_t rmq_pop_waiting_next_ms(const struct rmq_pop_desk *d)
{
    int64_t next_ms = rmq_pop_polls_next_ms(d->polls), free_ms = rmq_pop_orders_next_ms(d->windows);
    if (free_ms < next_ms && rmq_pop_polls_count(d->polls))
        next_ms = free_ms;
    return rmq_pop_polls_is_behind(d->polls) && d->go_on_ms < next_ms ? d->go_on_ms : next_ms;
}

/* --- notices ----------------------------------------------------------------------------------------------------- */

void rmq_pop_waiting_wake_all(struct rmq_pop_desk *d)
{
    struct rmq_pop_key key;
    for (uint32_t at = 0; (at = rmq_pop_polls_key_from(d->polls, at, &key)) != RMQ_NONE; at++)
        rmq_pop_polls_wake_key(d->polls, &key);
}

uint32_t rmq_pop_waiting_unsent(struct rmq_pop_desk *d, uint32_t serial)
{
    uint32_t number = rmq_pop_polls_named(d->polls, serial);
    if (number != RMQ_NONE) {
        rmq_pop_polls_end(d->polls, number);
        return 0;
    }
    uint32_t place = rmq_pop_given_place(d->given, serial), count = rmq_pop_given_unsent(d->given, d->windows, serial);
    if (count)
        rmq_pop_polls_wake_group(d->polls, rmq_pop_index_group(d->index, place));
    return count;
}
