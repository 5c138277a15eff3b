#include "timer/timer_topics.h"

#include "base/name_hash.h"

uint32_t rmq_timer_topic_of(struct rmq_timer_topics *topics, const struct rmq_timer_unit *unit)
{
    if (!topics)
        return RMQ_NONE;
    uint32_t at = rmq_pair_hash(topics->secret, 0, (uint32_t)unit->topic_hash) % RMQ_TIMER_TOPICS;
    for (uint32_t step = 0; step < RMQ_TIMER_TOPICS; step++, at = (at + 1) % RMQ_TIMER_TOPICS) {
        struct rmq_timer_topic *row = &topics->rows[at];
        if (row->record_bytes && row->topic_hash == unit->topic_hash)
            return at;
        if (!row->record_bytes && topics->used < RMQ_TIMER_TOPICS - RMQ_TIMER_TOPICS / 8 && unit->size > 0) {
            *row = (struct rmq_timer_topic){
                .topic_hash = unit->topic_hash, .record_bytes = unit->size, .commit_log_offset = unit->commit_log_offset,
            };
            topics->used++;
            return at;
        }
        if (!row->record_bytes)
            break;
    }
    return RMQ_TIMER_TOPICS;
}

uint32_t rmq_timer_topic_row(struct rmq_timer_topics *topics, const struct rmq_timer_unit *unit)
{
    return unit->magic & RMQ_TIMER_DELETE ? RMQ_NONE : rmq_timer_topic_of(topics, unit);
}

void rmq_timer_topic_enqueued(struct rmq_timer_topics *topics, uint32_t row, uint32_t bucket, uint64_t delay_seconds)
{
    if (row == RMQ_NONE)
        return;
    topics->rows[row].enqueued++;
    topics->rows[row].delays[bucket]++;
    topics->rows[row].delay_seconds += delay_seconds;
}

void rmq_timer_topic_dequeued(struct rmq_timer_topics *topics, uint32_t row)
{
    if (row != RMQ_NONE)
        topics->rows[row].dequeued++;
}

void rmq_timer_topic_add(struct rmq_timer_topics *topics, uint32_t row, int64_t count)
{
    if (row == RMQ_NONE)
        return;
    topics->rows[row].messages += count;
    topics->messages += count;
}

/* Position of the unit at or behind a position: a blank ends each file. */
static int64_t unit_at_or_behind(const struct rmq_timer_files *f, int64_t position)
{
    uint64_t in_file = (uint64_t)position % f->file_bytes;
    if (in_file + RMQ_TIMER_UNIT_BYTES + RMQ_TIMER_BLANK_BYTES > f->file_bytes)
        return position - (int64_t)in_file + (int64_t)f->file_bytes;
    return position;
}

uint64_t rmq_timer_topics_count(const struct rmq_timer_files *f, struct rmq_timer_topics *topics, int64_t *position, int64_t end,
                                int64_t from_ms, int64_t sign, uint64_t limit)
{
    uint64_t counted = 0;
    struct rmq_timer_unit unit;
    if (*position < (int64_t)f->log_begin)
        *position = (int64_t)f->log_begin;
    for (; limit && (*position = unit_at_or_behind(f, *position)) < end; limit--, *position += RMQ_TIMER_UNIT_BYTES) {
        if (!rmq_timer_unit_at(f, *position, &unit) || unit.slot_ms < from_ms || unit.magic & RMQ_TIMER_DELETE)
            continue;
        rmq_timer_topic_add(topics, rmq_timer_topic_row(topics, &unit), sign);
        counted++;
    }
    if (*position > end)
        *position = end;
    return counted;
}

int64_t rmq_timer_oldest(const struct rmq_timer_files *f, int64_t *position, int64_t end, int64_t from_ms, uint64_t limit)
{
    struct rmq_timer_unit unit;
    if (*position < (int64_t)f->log_begin)
        *position = (int64_t)f->log_begin;
    for (; limit && (*position = unit_at_or_behind(f, *position)) < end; limit--, *position += RMQ_TIMER_UNIT_BYTES)
        if (rmq_timer_unit_at(f, *position, &unit) && unit.slot_ms >= from_ms)
            return unit.commit_log_offset;
    return *position < end ? RMQ_TIMER_OLDEST_UNKNOWN : RMQ_TIMER_OLDEST_NONE;
}
