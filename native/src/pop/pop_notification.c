/* pop_notification.c: NOTIFICATION (200054) tells a client whether a pop would find a message, or waits until one would. It takes
 * no message, moves no offset and makes no window. Twin of the look: ringmq/pop/desk_twin.py.
 */
#include "plane/settings_word.h"
#include "pop/pop_hold.h"

#define ANSWER_BYTES_MAX 512
#define NS_A_MS 1000000ll

/* --- the look --------------------------------------------------------------------------------------------------- */

/* The messages that a pop would find. */
struct look {
    int64_t enough;              /* messages: then the look ends */
    int64_t there;
    int64_t ends;                /* of all queues, their sum */
    int64_t behind;              /* others, which a pop cannot get now */
    const struct rmq_pop_attempt *order; /* of an orderly pop; NULL: another one */
};

/* Messages that were returned and that retention has left. */
static int64_t returned_of(struct rmq_pop_desk *d, uint32_t place, int64_t min_offset)
{
    int64_t offsets[RMQ_POP_MESSAGES_MAX], count = 0;
    uint32_t found = rmq_pop_returned(d->windows, place, offsets, RMQ_POP_MESSAGES_MAX);
    for (uint32_t i = 0; i < found; i++)
        count += offsets[i] >= min_offset;
    return count;
}

static void look_at_queue(struct rmq_pop_desk *d, struct look *look, uint32_t group_id, uint32_t topic_id, uint32_t queue_id)
{
    uint32_t slot = rmq_queue_find(d->plane, topic_id, queue_id);
    if (slot == RMQ_NONE)
        return; /* it has never had a message */
    const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
    int64_t max_offset = (int64_t)rmq_load(&queue->max_offset), min_offset = (int64_t)rmq_load(&queue->min_offset), count = 0;
    uint32_t place = rmq_pop_window_of(d, group_id, slot);
    int64_t next = rmq_offset_get(d->plane, group_id, slot);
    if (place != RMQ_NONE) {
        if (look->order && rmq_pop_order_blocks(d->windows, place, look->order, d->now_ns / NS_A_MS))
            return;
        next = rmq_pop_window_at(d->windows, place)->next_offset;
        count = look->order ? 0 : returned_of(d, place, min_offset);
    }
    if (next < min_offset)
        next = min_offset;
    if (max_offset > next)
        count += max_offset - next;
    look->ends += max_offset;
    if (count && place != RMQ_NONE && d->open_max && rmq_pop_held_messages(d->windows, place) > d->open_max)
        look->behind += count;
    else
        look->there += count;
}

static void look_at_topic(struct rmq_pop_desk *d, struct look *look, uint32_t group_id, uint32_t topic_id, uint32_t queues)
{
    for (uint32_t i = 0; i < queues && look->there < look->enough; i++)
        look_at_queue(d, look, group_id, topic_id, i);
}

static void look_at_retries(struct rmq_pop_desk *d, struct look *look, const struct rmq_pop_key *key, uint32_t flag)
{
    uint32_t id = rmq_pop_retry_id(d, key, flag);
    if (id != RMQ_NONE)
        look_at_topic(d, look, key->group_id, id, rmq_topic_read_queues(rmq_load(&rmq_topic_at(d->plane, id)->config)));
}

static struct look look_for(struct rmq_pop_desk *d, const struct rmq_pop_key *key, uint32_t queues, int64_t enough,
                            const struct rmq_pop_attempt *order)
{
    struct look look = {.enough = enough, .order = order};
    if (d->settings & RMQ_POP_IS_DRAINING)
        return look;
    if (key->queue_id >= 0)
        look_at_queue(d, &look, key->group_id, key->topic_id, (uint32_t)key->queue_id);
    else
        look_at_topic(d, &look, key->group_id, key->topic_id, queues);
    if (order)
        return look; /* orderly groups have no retries, and no entries */
    if (d->settings & RMQ_POP_RETRY_V2)
        look_at_retries(d, &look, key, RMQ_POP_FLAG_RETRY_V2);
    if (d->settings & RMQ_POP_RETRY_V1)
        look_at_retries(d, &look, key, RMQ_POP_FLAG_RETRY_V1);
    if (look.there && (!rmq_pop_has_room(d) || rmq_pop_has_its_share(d, key->group_id)))
        look.behind += look.there, look.there = 0;
    return look;
}

/* --- the request -------------------------------------------------------------------------------------------------- */

static uint32_t check(struct rmq_pop_desk *d, const struct rmq_pop_row *row, struct rmq_pop_target *target)
{
    if (!(d->settings & RMQ_POP_READABLE))
        return RMQ_POP_BROKER_UNREADABLE;
    uint32_t why = rmq_pop_find_target(d, &row->pop, row->text, target);
    if (why == RMQ_POP_SERVED && rmq_pop_is_of_another_topic(d, row, target->topic_id))
        return RMQ_POP_NO_TOPIC;
    return why;
}

static void put_answer(struct rmq_pop_desk *d, const struct rmq_pop_row *row, int has_message, int is_full)
{
    uint8_t frame[ANSWER_BYTES_MAX];
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_SEND};
    struct rmq_notification_answer answer = {
        .head = rmq_pop_head_of(row, 0, RMQ_POP_NOTHING_SET), .has_message = (uint32_t)has_message, .is_full = (uint32_t)is_full};
    rmq_pop_put(d, row, &verdict, frame, (uint32_t)rmq_notification_answer_put(frame, &answer));
    rmq_pop_count(d, has_message ? RMQ_POP_COUNT_NOTIFIED : is_full ? RMQ_POP_COUNT_NOTIFY_FULL : RMQ_POP_COUNT_NOT_NOTIFIED, 1);
}

/* The number of notifications of the key that are to be told of a message. */
static int64_t due_of(const struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_key *key,
                      const struct look *look)
{
    if (look->order)
        return look->there > 0; /* as stock: each queue that becomes free, and each message, tells one */
    int64_t fresh = look->ends - rmq_pop_polls_told_to(d->polls, key);
    if (!row->held || row->is_last || look->there < fresh)
        return look->there;
    return fresh > 0 ? fresh : 0; /* clients were told of the other messages */
}

uint32_t rmq_pop_serve_notification(struct rmq_pop_desk *d, struct rmq_pop_row *row)
{
    struct rmq_pop_target target;
    uint32_t why = check(d, row, &target);
    if (why != RMQ_POP_SERVED)
        return why;
    struct rmq_pop_key key = {.topic_id = target.topic_id, .group_id = target.group_id, .kind = RMQ_POP_POLL_NOTIFICATION,
                              .queue_id = row->pop.queue_id < 0 ? -1 : row->pop.queue_id};
    const struct rmq_pop_attempt attempt = {row->text + row->pop.attempt.at, row->pop.attempt.length};
    int is_woken = row->held && !row->is_last, is_counted = !row->pop.order;
    struct look look = look_for(d, &key, target.queues, is_woken && is_counted ? INT64_MAX : 1, is_counted ? NULL : &attempt);
    row->due = due_of(d, row, &key, &look);
    if (row->due) {
        put_answer(d, row, 1, 0);
        if (is_woken && is_counted)
            rmq_pop_polls_tell_to(d->polls, &key, look.ends - look.behind - (row->due - 1));
        if (is_woken && look.behind)
            rmq_pop_polls_put_behind(d->polls, row->held - 1); /* the others are told once a pop can get them */
        return RMQ_POP_SERVED;
    }
    enum rmq_pop_waiting waiting = rmq_pop_wait(d, row, &key, look.behind > 0);
    if (waiting == RMQ_POP_IS_HELD) {
        if (!look.behind && is_counted)
            rmq_pop_polls_tell_to(d->polls, &key, look.ends);
        return row->held ? RMQ_POP_WAITS : RMQ_POP_SERVED;
    }
    put_answer(d, row, 0, waiting == RMQ_POP_IS_FULL);
    return RMQ_POP_SERVED;
}
