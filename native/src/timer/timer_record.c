#include "timer/timer_record.h"

#include "base/siphash.h"
#include "codec/property_pairs.h"
#include "log/published_marks.h"
#include "plane/ports_layout.h"

void rmq_siphash128(const uint8_t *bytes, uint64_t count, const uint64_t *secret, uint64_t *out)
{
    struct rmq_siphash hash;
    rmq_siphash_begin(&hash, secret);
    rmq_siphash_add(&hash, bytes, count);
    struct rmq_hash128 found = rmq_siphash_end(&hash);
    out[0] = found.low;
    out[1] = found.high;
}

/* The pairs that count. Of equal names the last value does. */
struct pairs {
    struct rmq_text out, topic, uniq_key, delete_key, delay_sec, delay_ms, deliver_ms, roll_times;
};

#define IS(text) rmq_text_is(pair.name, text, sizeof text - 1)

static void find_pairs(const uint8_t *at, const uint8_t *end, struct pairs *found)
{
    struct rmq_pair pair;
    while (rmq_next_pair(&at, end, &pair)) {
        switch (pair.name.at[0]) {
        case 'T':
            if (IS("TIMER_OUT_MS"))
                found->out = pair.value;
            else if (IS("TIMER_DELAY_SEC"))
                found->delay_sec = pair.value;
            else if (IS("TIMER_DELAY_MS"))
                found->delay_ms = pair.value;
            else if (IS("TIMER_DELIVER_MS"))
                found->deliver_ms = pair.value;
            else if (IS("TIMER_ROLL_TIMES"))
                found->roll_times = pair.value;
            else if (IS("TIMER_DEL_UNIQKEY"))
                found->delete_key = pair.value;
            break;
        case 'R':
            if (IS("REAL_TOPIC"))
                found->topic = pair.value;
            break;
        case 'U':
            if (IS("UNIQ_KEY"))
                found->uniq_key = pair.value;
        }
    }
}

/* ASCII digits as a number of at most 63 bits. Twin: store.record_numbers.decimal. */
static int decimal(struct rmq_text text, int64_t *out)
{
    uint64_t number = 0;
    if (!text.length)
        return 0;
    for (uint32_t i = 0; i < text.length; i++) {
        unsigned digit = text.at[i] - (unsigned)'0';
        if (digit > 9 || number > ((uint64_t)INT64_MAX - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    *out = (int64_t)number;
    return 1;
}

/* A time that clients chose may overflow: then it lies behind the end. */
static int64_t within(int64_t from_ms, int64_t delay, int64_t unit_ms, int64_t out_ms, int64_t end_ms)
{
    int64_t delay_ms, time_ms;
    if (__builtin_mul_overflow(delay, unit_ms, &delay_ms) || __builtin_add_overflow(from_ms, delay_ms, &time_ms) || time_ms > end_ms)
        return end_ms;
    return time_ms > out_ms ? time_ms : out_ms + 1;
}

/* The largest step of precision that the message may have been admitted by. Twin: timer.placement.step_of. */
static int64_t step_of(int64_t out_ms, uint32_t coarsest_ms)
{
    static const uint32_t steps_ms[] = {1000, 500, 200, 100};
    for (uint32_t i = 0; i < sizeof steps_ms / sizeof *steps_ms; i++)
        if (steps_ms[i] <= coarsest_ms && out_ms % steps_ms[i] == 0)
            return steps_ms[i];
    return coarsest_ms;
}

static int64_t exact_ms(const struct pairs *found, int64_t store_ms, int64_t out_ms, uint32_t coarsest_ms)
{
    int64_t end_ms = out_ms + step_of(out_ms, coarsest_ms), number;
    int is_rolled = found->roll_times.length != 0;
    if (decimal(found->delay_sec, &number))
        return is_rolled ? end_ms : within(store_ms, number, 1000, out_ms, end_ms);
    if (decimal(found->delay_ms, &number))
        return is_rolled ? end_ms : within(store_ms, number, 1, out_ms, end_ms);
    return decimal(found->deliver_ms, &number) ? within(0, number, 1, out_ms, end_ms) : end_ms;
}

static void find_key(const struct pairs *found, const uint64_t *secret, struct rmq_timer_record *out)
{
    struct rmq_siphash hash;
    rmq_siphash_begin(&hash, secret);
    if (out->is_delete) {
        rmq_siphash_add(&hash, found->delete_key.at, found->delete_key.length);
    } else {
        rmq_siphash_add(&hash, found->topic.at, found->topic.length);
        rmq_siphash_add(&hash, (const uint8_t *)"+", 1);
        rmq_siphash_add(&hash, found->uniq_key.at, found->uniq_key.length);
    }
    struct rmq_hash128 key = rmq_siphash_end(&hash);
    out->key[0] = key.low;
    out->key[1] = key.high;
}

static void find_target_key(const struct pairs *found, struct rmq_timer_record *out)
{
    struct rmq_text name = found->delete_key, topic = found->topic;
    if (!topic.length || name.length <= topic.length + 1 || memcmp(name.at, topic.at, topic.length) || name.at[topic.length] != '+')
        return;
    out->target_key = name.at + topic.length + 1;
    out->target_key_length = name.length - topic.length - 1;
}

int rmq_timer_record_read(const uint8_t *record, uint32_t size, uint32_t coarsest_ms, const uint64_t *secret,
                          struct rmq_timer_record *out)
{
    struct rmq_record_view view;
    struct pairs found;
    memset(&found, 0, sizeof found);
    if (rmq_record_parse(record, size, 0, &view) != RMQ_RECORD_OK)
        return 0;
    const uint8_t *pairs = record + view.properties_at;
    find_pairs(pairs, pairs + view.properties_length, &found);
    *out = (struct rmq_timer_record){
        .out_ms = RMQ_TIMER_NO_TIME,
        .exact_ms = RMQ_TIMER_NO_TIME,
        .queue_offset = view.queue_offset,
        .store_time_ms = view.store_time_ms,
        .born_time_ms = view.born_time_ms,
        .prepared_transaction_offset = view.prepared_transaction_offset,
        .topic_hash = found.topic.length ? rmq_java_hash(found.topic.at, found.topic.length) : 0,
        .is_delete = found.delete_key.length != 0,
    };
    int64_t rolls;
    if (decimal(found.roll_times, &rolls) && rolls <= UINT32_MAX)
        out->rolls = (uint32_t)rolls;
    if (decimal(found.out, &out->out_ms) && out->out_ms <= INT64_MAX / 2)
        out->exact_ms = exact_ms(&found, view.store_time_ms, out->out_ms, coarsest_ms);
    else
        out->out_ms = RMQ_TIMER_NO_TIME;
    out->has_key = out->out_ms != RMQ_TIMER_NO_TIME && (found.delete_key.length || found.uniq_key.length);
    if (secret && out->has_key)
        find_key(&found, secret, out);
    if (out->has_key && out->is_delete)
        find_target_key(&found, out);
    return 1;
}

void rmq_timer_latest_copies(uint32_t range, const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                             uint32_t precision_ms, int64_t *latest_ms)
{
    static const char timer_topic[] = "rmq_sys_wheel_timer";
    struct rmq_record_view view;
    struct rmq_timer_record record;
    uint64_t bytes;
    for (uint64_t at = from; at < limit; at += bytes) {
        bytes = rmq_published_step(file, at, end, file_start, &view);
        uint64_t mark = (uint64_t)view.prepared_transaction_offset;
        if (!mark || rmq_mark_range(mark) != range)
            continue;
        if (!rmq_timer_record_read(file + at, (uint32_t)bytes, precision_ms, NULL, &record) || record.out_ms == RMQ_TIMER_NO_TIME)
            continue;
        struct rmq_text topic = {file + at + view.topic_at, view.topic_length};
        int is_rolled = rmq_text_is(topic, timer_topic, sizeof timer_topic - 1);
        int64_t slot_ms = record.out_ms - record.out_ms % precision_ms;
        if (is_rolled && slot_ms > record.store_time_ms)
            slot_ms = record.store_time_ms; /* no slot is rolled before its time */
        if (slot_ms > latest_ms[is_rolled])
            latest_ms[is_rolled] = slot_ms;
    }
}
