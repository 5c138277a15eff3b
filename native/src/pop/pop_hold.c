#include "pop/pop_hold.h"

#include <string.h>

#include "plane/port.h"
#include "plane/settings_word.h"

#define NS_A_MS 1000000ll
#define LEAD_MS 50              /* a poll is served once more so long before its time, as in stock */
#define HELD_MS_MAX 3600000     /* of a read worker */
#define ANSWER_BYTES 512u       /* of an answer without messages */

/* --- wishes ----------------------------------------------------------------------------------------------------- */

uint8_t *rmq_pop_wishes(const struct rmq_pop_desk *d)
{
    return (uint8_t *)d->plane->base + rmq_port_at(d->plane, d->port)->parked_flags_at;
}

void rmq_pop_want_none(struct rmq_pop_desk *d)
{
    struct rmq_port *port = rmq_port_at(d->plane, d->port);
    uint32_t queues = rmq_load(&rmq_plane_header_of(d->plane)->tables.queue_count);
    RMQ_INVARIANT(port->flags & RMQ_PORT_ARRIVALS, port->flags, d->port);
    uint8_t *flags = rmq_pop_wishes(d);
    for (uint32_t slot = 0; slot < queues; slot++)
        if (flags[slot])
            rmq_store_relaxed(&flags[slot], 0);
    uint64_t tail = rmq_load_relaxed(&port->arrived.tail);
    rmq_store(&port->arrived.tail, tail + rmq_ring_waiting(&port->arrived, tail));
    rmq_store_relaxed(&port->awaits, 0);
}

void rmq_pop_tell_waiting(struct rmq_pop_desk *d)
{
    rmq_store_relaxed(&rmq_port_at(d->plane, d->port)->awaits, rmq_pop_polls_count(d->polls));
}

static int want_of(struct rmq_pop_desk *d, uint32_t topic_id, uint32_t queue_id)
{
    uint32_t slot = rmq_queue_find(d->plane, topic_id, queue_id);
    if (slot == RMQ_NONE || rmq_load_relaxed(&rmq_pop_wishes(d)[slot]))
        return 0;
    rmq_port_want_arrival(d->plane, d->port, slot);
    return 1;
}

/* Wants arrivals at a queue of a topic, or at all. 1: some were not wanted before. */
static int want(struct rmq_pop_desk *d, uint32_t topic_id, int32_t queue_id)
{
    uint32_t queues = rmq_topic_read_queues(rmq_load(&rmq_topic_at(d->plane, topic_id)->config));
    int is_new = 0;
    if (queue_id >= 0)
        return want_of(d, topic_id, (uint32_t)queue_id);
    for (uint32_t i = 0; i < queues; i++)
        is_new |= want_of(d, topic_id, i);
    return is_new;
}

uint32_t rmq_pop_retry_id(const struct rmq_pop_desk *d, const struct rmq_pop_key *key, uint32_t flag)
{
    const struct rmq_group *group = rmq_group_at(d->plane, key->group_id);
    const struct rmq_topic *topic = rmq_topic_at(d->plane, key->topic_id);
    uint8_t name[RMQ_NAME_MAX];
    uint64_t config;
    uint32_t length = rmq_pop_retry_topic(name, (const uint8_t *)group->name, group->name_length, (const uint8_t *)topic->name,
                                          topic->name_length, flag);
    return length ? rmq_pop_topic_id(d, name, length, &config) : RMQ_NONE;
}

void rmq_pop_want_all(struct rmq_pop_desk *d, const struct rmq_pop_key *key)
{
    uint32_t v1 = rmq_pop_retry_id(d, key, RMQ_POP_FLAG_RETRY_V1), v2 = rmq_pop_retry_id(d, key, RMQ_POP_FLAG_RETRY_V2);
    int is_new = want(d, key->topic_id, key->queue_id);
    rmq_pop_polls_set_retries(d->polls, key, v1, v2);
    if (v1 != RMQ_NONE)
        is_new |= want(d, v1, -1);
    if (v2 != RMQ_NONE)
        is_new |= want(d, v2, -1);
    if (is_new)
        rmq_pop_polls_wake_key(d->polls, key);
}

/* --- a poll begins ----------------------------------------------------------------------------------------------- */

/* The end of the client's patience; 0: it has none. */
static int64_t until_of(const struct rmq_pop_desk *d, const struct rmq_pop_row *row)
{
    int64_t born_ms = row->pop.born_ms ? row->pop.born_ms : d->now_ms, end_ms;
    if (row->until_ns)
        return row->until_ns;
    if (row->pop.poll_ms <= 0)
        return 0;
    if (__builtin_add_overflow(born_ms, row->pop.poll_ms, &end_ms))
        end_ms = INT64_MAX;
    if (end_ms <= d->now_ms)
        return 0; /* stock refuses no notification for it, however late it is */
    int64_t left_ms = end_ms - d->now_ms;
    return d->now_ns + (left_ms < HELD_MS_MAX ? left_ms : HELD_MS_MAX) * NS_A_MS;
}

static uint32_t keep(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_key *key, int64_t until_ns)
{
    uint8_t bytes[sizeof(struct rmq_pop_request) + RMQ_POP_TEXT_BYTES_MAX];
    struct rmq_pop_request request = {.ask = row->ask, .asked = row->asked, .fields = row->pop, .until_ns = until_ns};
    struct rmq_pop_poll_ask ask = {
        .key = *key, .role = row->ask.role, .role_generation = row->ask.role_generation, .connection = row->ask.connection,
        .connection_generation = row->ask.connection_generation, .serial = rmq_pop_given_serial(d->given),
        .due_ms = until_ns / NS_A_MS - LEAD_MS};
    memcpy(bytes, &request, sizeof request);
    memcpy(bytes + sizeof request, row->text, row->pop.head.text_bytes);
    return rmq_pop_polls_add(d->polls, &d->poll_limits, &ask, bytes, (uint32_t)sizeof request + row->pop.head.text_bytes);
}

/* The answer of the read worker at the end of the poll's time. */
static uint32_t put_end(const struct rmq_pop_row *row, uint8_t *to, uint32_t kind)
{
    struct rmq_notification_answer notification = {.head = rmq_pop_head_of(row, 0, RMQ_POP_NOTHING_SET)};
    struct rmq_pop_answer pop = {.head = rmq_pop_head_of(row, 210, RMQ_POP_NOTHING)};
    return (uint32_t)(kind == RMQ_POP_POLL_NOTIFICATION ? rmq_notification_answer_put(to, &notification)
                                                        : rmq_pop_answer_put(to, &pop));
}

static void put_hold(struct rmq_pop_desk *d, const struct rmq_pop_row *row, uint32_t number, int64_t until_ns)
{
    struct rmq_hold *hold = (struct rmq_hold *)d->payload;
    uint8_t *answer_at = d->payload + sizeof *hold + row->frame_bytes;
    const struct rmq_pop_poll_ask *poll = &rmq_pop_polls_at(d->polls, number)->ask;
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_HOLD, .serial = poll->serial};
    *hold = (struct rmq_hold){.slot = number, .ask_bytes = row->frame_bytes, .deadline_ns = until_ns};
    memcpy(hold + 1, row->frame, row->frame_bytes);
    hold->answer_bytes = put_end(row, answer_at, poll->key.kind);
    rmq_pop_put(d, row, &verdict, d->payload, (uint32_t)(answer_at - d->payload) + hold->answer_bytes);
}

static int may_wait(const struct rmq_pop_desk *d, const struct rmq_pop_row *row, uint32_t kind, int64_t until_ns)
{
    int wants_some = kind == RMQ_POP_POLL_NOTIFICATION || row->pop.messages_max > 0;
    uint64_t bytes = sizeof(struct rmq_hold) + (uint64_t)row->frame_bytes + ANSWER_BYTES;
    return wants_some && !row->asked.is_oneway && row->frame && until_ns - LEAD_MS * NS_A_MS > d->now_ns &&
           bytes <= rmq_pop_room(d, row->ask.role);
}

int rmq_pop_is_of_another_topic(const struct rmq_pop_desk *d, const struct rmq_pop_row *row, uint32_t topic_id)
{
    return row->held && rmq_pop_polls_at(d->polls, row->held - 1)->ask.key.topic_id != topic_id;
}

enum rmq_pop_waiting rmq_pop_wait(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_key *key,
                                  int is_behind)
{
    uint32_t number = row->held - 1;
    if (row->is_last)
        return RMQ_POP_IS_OVER;
    if (!row->held) {
        int64_t until_ns = until_of(d, row);
        if (!may_wait(d, row, key->kind, until_ns))
            return RMQ_POP_IS_OVER;
        number = keep(d, row, key, until_ns);
        if (number == RMQ_NONE)
            return RMQ_POP_IS_FULL;
        put_hold(d, row, number, until_ns);
        rmq_pop_want_all(d, key);
        rmq_pop_tell_waiting(d);
    }
    if (is_behind)
        rmq_pop_polls_put_behind(d->polls, number);
    return RMQ_POP_IS_HELD;
}
