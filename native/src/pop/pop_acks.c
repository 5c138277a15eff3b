/* pop_acks.c: ACK (200051) and CHANGE_INVISIBLE (200053). pop_batch_acks.c has batches. */
#include <string.h>

#include "codec/answer.h"
#include "plane/settings_word.h"
#include "pop/pop_desk.h"

/* A receipt with the window that it names. */
struct named {
    uint32_t place;              /* RMQ_NONE: nothing is known of it */
    uint32_t group_id, queue_slot; /* of a place */
    uint32_t is_orderly;
    struct rmq_pop_receipt receipt;
};

static int is_own(const struct rmq_pop_desk *d, const uint8_t *broker, uint32_t length)
{
    return length == d->broker_bytes && !memcmp(broker, d->broker, length);
}

static uint32_t find(struct rmq_pop_desk *d, const struct rmq_pop_row *row, int is_change, struct named *n)
{
    const struct rmq_pop_ack_fields *f = &row->ack;
    uint64_t config;
    uint32_t topic = rmq_pop_topic_id(d, row->text + f->topic.at, f->topic.length, &config);
    if (topic == RMQ_NONE)
        return RMQ_POP_NO_TOPIC;
    if (f->queue_id < 0 || f->queue_id >= (int32_t)rmq_topic_read_queues(config))
        return RMQ_POP_NO_QUEUE;
    uint32_t slot = rmq_queue_find(d->plane, topic, (uint32_t)f->queue_id);
    const struct rmq_queue *queue = slot == RMQ_NONE ? NULL : rmq_queue_at(d->plane, slot);
    int64_t min = queue ? (int64_t)rmq_load(&queue->min_offset) : 0, max = queue ? (int64_t)rmq_load(&queue->max_offset) : 0;
    if (f->offset < min || f->offset > max || (is_change && f->offset == max))
        return RMQ_POP_BAD_OFFSET;
    if (!rmq_pop_receipt_read(row->text + f->receipt.at, f->receipt.length, &n->receipt))
        return RMQ_POP_BAD_RECEIPT;
    n->is_orderly = n->receipt.revive_queue == RMQ_POP_ORDERLY;
    n->place = RMQ_NONE;
    if (!is_own(d, row->text + f->receipt.at + n->receipt.broker.at, n->receipt.broker.length)) {
        rmq_pop_count(d, RMQ_POP_COUNT_ACKS_FOREIGN, 1);
        return RMQ_POP_SERVED;
    }
    n->group_id = rmq_group_find(d->plane, (const char *)row->text + f->group.at, f->group.length);
    n->queue_slot = slot;
    if (n->group_id != RMQ_NONE && slot != RMQ_NONE)
        n->place = rmq_pop_window_of(d, n->group_id, slot);
    return RMQ_POP_SERVED;
}


static struct rmq_pop_log_named named_of(const struct named *n)
{
    return (struct rmq_pop_log_named){.place = n->place, .group_id = n->group_id, .queue_slot = n->queue_slot,
                                      .start_offset = n->receipt.start_offset, .pop_time_ms = n->receipt.pop_time_ms};
}

/* An acknowledgement that has ended so many messages. */
static void count(struct rmq_pop_desk *d, int64_t pop_time_ms, uint32_t done)
{
    rmq_pop_count_acked(d, pop_time_ms, done);
    rmq_pop_count(d, RMQ_POP_COUNT_ACKS_LATE, !done);
}

/* Acknowledges a message of an orderly group. If that frees the queue, a poll looks again. */
static int ack_in_order(struct rmq_pop_desk *d, uint32_t place, uint32_t group_id, uint32_t queue_slot, int64_t pop_time_ms,
                        int64_t offset)
{
    static const struct rmq_pop_attempt none = {NULL, 0};
    int result = rmq_pop_order_ack(d->windows, place, pop_time_ms, offset);
    if (result == RMQ_POP_DONE && !rmq_pop_order_blocks(d->windows, place, &none, d->now_ns / 1000000))
        rmq_pop_wake_order(d, group_id, queue_slot);
    if (result == RMQ_POP_ILLEGAL)
        d->committed_offset = rmq_pop_window_at(d->windows, place)->next_offset;
    return result;
}

static int ack(struct rmq_pop_desk *d, const struct named *n, int64_t offset, uint32_t *done)
{
    int result = RMQ_POP_UNKNOWN;
    *done = 0;
    if (n->place != RMQ_NONE && !n->is_orderly)
        return rmq_pop_ack(d->windows, n->place, n->receipt.start_offset, n->receipt.pop_time_ms, offset, 1, done);
    if (n->place != RMQ_NONE)
        result = ack_in_order(d, n->place, n->group_id, n->queue_slot, n->receipt.pop_time_ms, offset);
    *done = result == RMQ_POP_DONE;
    return result;
}

uint32_t rmq_pop_serve_ack(struct rmq_pop_desk *d, struct rmq_pop_row *row)
{
    struct named n;
    uint32_t why = find(d, row, 0, &n), done;
    if (why != RMQ_POP_SERVED)
        return why;
    if (n.place != RMQ_NONE && !n.is_orderly) {
        struct rmq_pop_log_named named = named_of(&n);
        int waits = rmq_pop_log_ack(d, &named, row->ack.offset, 1);
        if (waits < 0)
            return RMQ_POP_NO_ROOM;
        if (rmq_pop_log_wait(d, 0))
            return RMQ_POP_SERVED;
    }
    if (ack(d, &n, row->ack.offset, &done) == RMQ_POP_ILLEGAL)
        return RMQ_POP_NOT_OF_BATCH;
    count(d, n.receipt.pop_time_ms, done);
    rmq_pop_put_code(d, &row->ask, &row->asked, 0, NULL);
    return RMQ_POP_SERVED;
}

/* Gives the message another time. Without effect for a receipt of which nothing is known. A worker that dies before it has answered
 * leaves the request to its replacement, which finds the message moved: the client gets the receipt that counts. */
static int change(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct named *n, struct rmq_pop_give *give)
{
    int64_t start = row->ack.offset;
    if (n->place == RMQ_NONE)
        return RMQ_POP_UNKNOWN;
    give->pop_time_ms = rmq_pop_time_for(d->windows, &n->place, &start, 1, give->pop_time_ms);
    int result = rmq_pop_change(d->windows, n->place, n->receipt.start_offset, n->receipt.pop_time_ms, start, give);
    if (result >= 0 && result != RMQ_POP_DONE) {
        int64_t changed_ms = rmq_pop_changed_at(d->windows, n->place, start, give);
        give->pop_time_ms = changed_ms < 0 ? give->pop_time_ms : changed_ms;
    }
    return result;
}

/* Gives a message of an orderly group another time. The receipt stays, so the answer counts from its pop on. A message that is done
 * gets zeros, as in stock. */
static uint32_t serve_order_change(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct named *n)
{
    int64_t due_ms = rmq_pop_given_ms(d, row->ack.invisible_ms) + row->ack.invisible_ms;
    int64_t pop_time_ms = n->receipt.pop_time_ms, from_pop_ms;
    int result = n->place == RMQ_NONE ? RMQ_POP_UNKNOWN
                                      : rmq_pop_order_change(d->windows, n->place, pop_time_ms, row->ack.offset, due_ms);
    rmq_pop_count(d, result == RMQ_POP_DONE ? RMQ_POP_COUNT_CHANGES : RMQ_POP_COUNT_ACKS_LATE, 1);
    if (__builtin_sub_overflow(d->now_ms + row->ack.invisible_ms, pop_time_ms, &from_pop_ms))
        from_pop_ms = pop_time_ms < 0 ? INT64_MAX : INT64_MIN;
    if (result == RMQ_POP_KNOWN)
        rmq_pop_put_change(d, &row->ask, &row->asked, 0, 0, 0);
    else
        rmq_pop_put_change(d, &row->ask, &row->asked, pop_time_ms, from_pop_ms, RMQ_POP_ORDERLY);
    return RMQ_POP_SERVED;
}

/* A change that follows its records. ODD: the message has no check point in the log. */
static uint32_t change_in_log(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct named *n, const struct rmq_pop_give *give)
{
    struct rmq_pop_log_named named = named_of(n);
    if (!d->log_acks || !rmq_pop_in_log(d->windows, n->place, named.start_offset, named.pop_time_ms, row->ack.offset, 1))
        return RMQ_POP_ODD;
    if (give->pop_time_ms + give->invisible_ms > d->log_acks->until_ms)
        return RMQ_POP_NEEDS_NOTICE;
    if (rmq_pop_log_change(d, &named, row->ack.offset, give) < 0)
        return RMQ_POP_NO_ROOM;
    return rmq_pop_log_wait(d, 0) ? RMQ_POP_SERVED : RMQ_POP_ODD;
}

uint32_t rmq_pop_serve_change(struct rmq_pop_desk *d, struct rmq_pop_row *row)
{
    struct named n;
    uint32_t why = find(d, row, 1, &n);
    if (why != RMQ_POP_SERVED)
        return why;
    if (row->ack.invisible_ms < 0 || row->ack.invisible_ms > RMQ_POP_INVISIBLE_MS_MAX)
        return RMQ_POP_BAD_INVISIBLE;
    if (n.is_orderly)
        return serve_order_change(d, row, &n);
    struct rmq_pop_give give = {
        .pop_time_ms = d->now_ms, .mono_ms = rmq_pop_given_ms(d, row->ack.invisible_ms),
        .start_offset = row->ack.offset, .next_offset = row->ack.offset + 1,
        .invisible_ms = (uint32_t)row->ack.invisible_ms, .client = rmq_pop_client(d->clients, &row->ask),
        .revive_queue = (uint16_t)n.receipt.revive_queue};
    if (!rmq_pop_has_room(d))
        return RMQ_POP_ENTRIES_USED;
    if (n.place != RMQ_NONE && (why = change_in_log(d, row, &n, &give)) != RMQ_POP_ODD)
        return why;
    int result = change(d, row, &n, &give);
    if (result < 0)
        return RMQ_POP_ENTRIES_USED;
    rmq_pop_count(d, result == RMQ_POP_DONE ? RMQ_POP_COUNT_CHANGES : RMQ_POP_COUNT_ACKS_LATE, 1);
    rmq_pop_put_change(d, &row->ask, &row->asked, give.pop_time_ms, give.invisible_ms, (int32_t)n.receipt.revive_queue);
    return RMQ_POP_SERVED;
}

/* 8 bytes of a bit map from `at` on, little-endian; missing ones are 0. */
static uint64_t word_at(const uint8_t *bits, uint32_t bit_bytes, uint32_t at)
{
    uint64_t word = 0;
    uint32_t left = bit_bytes - at;
    memcpy(&word, bits + at, left < 8 ? left : 8);
    return word;
}

/* The bits of a word whose offsets, from `offset` on, lie in [min, max]. */
static uint64_t within(uint64_t word, int64_t offset, int64_t min, int64_t max)
{
    if (offset > max || offset < min - 63)
        return 0;
    if (offset < min)
        word &= ~UINT64_C(0) << (min - offset);
    return max - offset < 63 ? word & ((UINT64_C(2) << (max - offset)) - 1) : word;
}

/* The window of the names in a batch. RMQ_NONE: nothing is known of it, or the receipt is none of a pop. */
static uint32_t window_of(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                          uint32_t topic_length, uint32_t flag, int32_t queue_id, uint32_t *group_id, uint32_t *slot)
{
    uint8_t name[RMQ_NAME_MAX];
    uint64_t config;
    uint32_t length = flag ? rmq_pop_retry_topic(name, group, group_length, topic, topic_length, flag) : topic_length;
    uint32_t topic_id = length ? rmq_pop_topic_id(d, flag ? name : topic, length, &config) : RMQ_NONE;
    *group_id = rmq_group_find(d->plane, (const char *)group, group_length);
    *slot = topic_id == RMQ_NONE || queue_id < 0 ? RMQ_NONE : rmq_queue_find(d->plane, topic_id, (uint32_t)queue_id);
    return *slot == RMQ_NONE || *group_id == RMQ_NONE ? RMQ_NONE : rmq_pop_window_of(d, *group_id, *slot);
}

static int is_start(int64_t start_offset, uint32_t bit_bytes)
{
    return start_offset >= 0 && start_offset <= INT64_MAX - (int64_t)bit_bytes * 8 - 64;
}

uint64_t rmq_pop_ack_bits(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                          uint32_t topic_length, uint32_t flag, int32_t queue_id, int64_t start_offset, int64_t pop_time_ms,
                          const uint8_t *bits, uint32_t bit_bytes)
{
    uint64_t all = 0;
    uint32_t done, group_id, slot;
    uint32_t place = window_of(d, group, group_length, topic, topic_length, flag, queue_id, &group_id, &slot);
    if (place == RMQ_NONE || !is_start(start_offset, bit_bytes)) {
        count(d, pop_time_ms, 0);
        return 0;
    }
    const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
    int64_t min = (int64_t)rmq_load(&queue->min_offset), max = (int64_t)rmq_load(&queue->max_offset);
    struct rmq_pop_log_named named = {place, group_id, slot, start_offset, pop_time_ms};
    for (uint32_t at = 0; at < bit_bytes; at += 8) {
        int64_t offset = start_offset + (int64_t)at * 8;
        uint64_t word = within(word_at(bits, bit_bytes, at), offset, min, max);
        if (!word || rmq_pop_log_ack(d, &named, offset, word) > 0)
            continue;
        done = 0;
        rmq_pop_ack(d->windows, place, start_offset, pop_time_ms, offset, word, &done);
        rmq_pop_count_acked(d, pop_time_ms, done);
        rmq_pop_count(d, RMQ_POP_COUNT_ACKS_LATE, (uint64_t)__builtin_popcountll(word) - done);
        all += done;
    }
    return all;
}

uint64_t rmq_pop_ack_order_bits(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                                uint32_t topic_length, uint32_t flag, int32_t queue_id, int64_t start_offset, int64_t pop_time_ms,
                                const uint8_t *bits, uint32_t bit_bytes, int64_t *illegal)
{
    uint64_t all = 0;
    uint32_t group_id, slot, looked = 0;
    uint32_t place = window_of(d, group, group_length, topic, topic_length, flag, queue_id, &group_id, &slot);
    *illegal = -1;
    if (place == RMQ_NONE || !is_start(start_offset, bit_bytes)) {
        count(d, pop_time_ms, 0);
        return 0;
    }
    const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
    int64_t min = (int64_t)rmq_load(&queue->min_offset), max = (int64_t)rmq_load(&queue->max_offset);
    for (uint32_t at = 0; at < bit_bytes; at += 8) {
        int64_t offset = start_offset + (int64_t)at * 8;
        for (uint64_t left = within(word_at(bits, bit_bytes, at), offset, min, max); left; left &= left - 1) {
            int64_t each = offset + __builtin_ctzll(left);
            if (looked++ == RMQ_POP_ORDER_MESSAGES) { /* no batch has more, and a body has millions of bits */
                d->committed_offset = rmq_pop_window_at(d->windows, place)->next_offset;
                *illegal = each;
                return all;
            }
            int result = ack_in_order(d, place, group_id, slot, pop_time_ms, each);
            if (result == RMQ_POP_ILLEGAL)
                *illegal = each;
            else
                count(d, pop_time_ms, result == RMQ_POP_DONE);
            all += result == RMQ_POP_DONE;
        }
    }
    return all;
}
