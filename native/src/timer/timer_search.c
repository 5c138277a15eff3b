#include "timer/timer_search.h"

#include <string.h>

#define TOPIC "rmq_sys_wheel_timer"

/* Offsets of records with the hash of the key, the newest first. Their number. */
static uint32_t candidates(const struct rmq_timer_index *index, const struct rmq_timer_record *of, int64_t *offsets)
{
    int32_t hash = rmq_index_key_hash((const uint8_t *)TOPIC, sizeof TOPIC - 1, of->target_key, of->target_key_length);
    uint32_t count = 0, steps = RMQ_TIMER_SEARCH_STEPS;
    for (uint32_t i = 0; i < index->file_count && count < RMQ_TIMER_SEARCH_RECORDS && steps; i++)
        count += (uint32_t)rmq_index_query_bounded(&index->files[i], hash, index->begin_ms, INT64_MAX, &steps, offsets + count,
                                                   RMQ_TIMER_SEARCH_RECORDS - count);
    return count;
}

static int may_be_target(const struct rmq_timer_unit *unit, const struct rmq_timer_record *of, int64_t open_ms)
{
    return !(unit->magic & RMQ_TIMER_DELETE) && unit->slot_ms >= open_ms && unit->topic_hash == of->topic_hash;
}

/* 1 = the delete names the record of the unit, 0, or an error after which the caller asks again. */
static int is_named(const struct rmq_timer_files *f, const struct rmq_timer_index *index, const struct rmq_timer_unit *unit,
                    const struct rmq_timer_record *of)
{
    struct rmq_held_record held;
    struct rmq_timer_record record;
    int rc = rmq_queue_reader_record(index->reader, (uint64_t)unit->commit_log_offset, (uint32_t)unit->size, &held);
    if (rc < 0)
        return rc == -EAGAIN || rc == -ENOMEM || rc == -ENODATA ? rc : 0;
    rc = rmq_timer_record_read(held.at, (uint32_t)unit->size, f->coarsest_ms, index->secret, &record) && !record.is_delete &&
         record.has_key && !memcmp(record.key, of->key, sizeof record.key);
    rmq_queue_reader_release(&held);
    return rc;
}

/* A message of the open slot that is rolled may be on its way into the timer topic, where it is found in the slot behind. */
static struct rmq_timer_place place_at(const struct rmq_timer_unit *unit, int64_t open_end_ms)
{
    struct rmq_timer_place place = {unit->slot_ms, RMQ_TIMER_DEFAULT | RMQ_TIMER_DELETE, 0};
    if (unit->slot_ms < open_end_ms && unit->magic & RMQ_TIMER_ROLL) {
        place.slot_ms = open_end_ms;
        place.magic |= RMQ_TIMER_ROLL;
    }
    return place;
}

static int is_own(const struct rmq_timer_place *own, const struct rmq_timer_unit *unit)
{
    return !(own->magic & RMQ_TIMER_ROLL) && unit->slot_ms == own->slot_ms;
}

/* Number of the first named unit from 1 on, of those in the delete's own slot or of the others. 0 = none, or an error. */
static int find_named(const struct rmq_timer_files *f, const struct rmq_timer_index *index, const struct rmq_timer_record *of,
                      const struct rmq_timer_unit *units, uint32_t count, const struct rmq_timer_place *own, int is_in_own)
{
    for (uint32_t i = 0; i < count; i++) {
        int rc = is_own(own, &units[i]) == is_in_own ? is_named(f, index, &units[i], of) : 0;
        if (rc)
            return rc < 0 ? rc : (int)i + 1;
    }
    return 0;
}

int rmq_timer_find_target(const struct rmq_timer_files *f, const struct rmq_timer_index *index, const struct rmq_timer_record *of,
                          int64_t offset, int64_t open_ms, int64_t open_end_ms, struct rmq_timer_place *place)
{
    int64_t offsets[RMQ_TIMER_SEARCH_RECORDS];
    struct rmq_timer_unit units[RMQ_TIMER_SEARCH_RECORDS];
    uint32_t count = candidates(index, of, offsets), found = 0, own = 0;
    for (uint32_t i = 0; i < count; i++)
        if (offsets[i] < offset && rmq_timer_unit_of(f, offsets[i], &units[found]) && may_be_target(&units[found], of, open_ms))
            own += is_own(place, &units[found++]);
    if (own == found)
        return own > 0; /* no record need be read: the delete stays in its slot */
    int named = find_named(f, index, of, units, found, place, 1);
    if (named)
        return named < 0 ? named : 1;
    named = find_named(f, index, of, units, found, place, 0);
    if (named > 0)
        *place = place_at(&units[named - 1], open_end_ms);
    return named < 0 ? named : named > 0;
}
