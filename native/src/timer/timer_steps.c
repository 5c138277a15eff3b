#include "timer/timer_steps.h"

#include "log/published_marks.h"
#include "metrics/latency.h"

#include <stdlib.h>

static int contains(const uint64_t *ascending, uint64_t count, uint64_t wanted)
{
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (ascending[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ascending[low] == wanted;
}

static int is_delivered(const struct rmq_timer_enqueue *e, int64_t queue_offset)
{
    return contains(e->delivered, e->delivered_count, (uint64_t)queue_offset);
}

/* --- enqueue ---------------------------------------------------------------------------------------------- */

static struct rmq_timer_slot *in_memory(const struct rmq_timer_enqueue *e, int64_t slot_ms)
{
    for (int i = 0; i < RMQ_TIMER_SLOTS_IN_MEMORY; i++)
        if (e->slots[i] && slot_ms >= rmq_timer_slot_time(e->slots[i]) && slot_ms < rmq_timer_slot_end(e->slots[i]))
            return e->slots[i];
    return NULL;
}

/* A delete holds for its slot of the wheel, of which several may be one slot in memory. */
static void key_in_slot(struct rmq_timer_record *record, int64_t slot_ms) { record->key[1] ^= (uint64_t)slot_ms; }

static int add(struct rmq_timer_slot *slot, uint64_t number, const struct rmq_timer_unit *unit,
               struct rmq_timer_record *record, struct rmq_timer_enqueue *e)
{
    key_in_slot(record, unit->slot_ms);
    if (!is_delivered(e, record->queue_offset))
        return rmq_timer_slot_add(slot, number, unit->magic, record);
    e->tally.repeated++;
    rmq_timer_topic_add(e->topics, rmq_timer_topic_row(e->topics, unit), -1);
    return 0;
}

static void count_enqueued(struct rmq_timer_enqueue *e, const struct rmq_timer_unit *unit, int64_t delay_ms)
{
    static const uint32_t bounds_s[RMQ_TIMER_DELAY_BUCKETS - 1] = {60, 600, 3600, 43200, 86400, 259200};
    uint64_t seconds = delay_ms <= 0 ? 0 : (uint64_t)delay_ms / 1000, at = 0;
    while (at < RMQ_TIMER_DELAY_BUCKETS - 1 && seconds > bounds_s[at])
        at++;
    e->tally.enqueued++;
    rmq_timer_topic_enqueued(e->topics, rmq_timer_topic_of(e->topics, unit), at, seconds);
}

static int64_t stored_ms(const struct rmq_timer_files *f, const struct rmq_timer_record *record)
{
    return record->store_time_ms - record->store_time_ms % f->precision_ms;
}

/* Of a message after so many rolls. Copies keep key, times of delivery and birth. A delete has the key of the message that it names. The
 * top bit tells it from a queue offset. */
static uint64_t name_of(const struct rmq_timer_record *record, uint32_t rolls)
{
    uint64_t number = (uint64_t)rolls << 1 | record->is_delete;
    uint64_t hash = record->key[0] ^ ((uint64_t)record->out_ms + (number << 44)) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= (uint64_t)record->born_time_ms * UINT64_C(0xC2B2AE3D27D4EB4F);
    return hash | UINT64_C(1) << 63;
}

uint32_t rmq_timer_rolled_sources(uint32_t range, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                                  uint32_t count, const uint64_t *secret, uint64_t *sources)
{
    uint32_t found = 0;
    struct rmq_timer_record record;
    for (uint32_t i = 0; i < count; i++) {
        if (!rmq_timer_record_read(records[i].at, (uint32_t)units[i].size, 1, secret, &record))
            continue;
        uint64_t mark = (uint64_t)record.prepared_transaction_offset;
        if (rmq_mark_range(mark) == range)
            sources[found++] = rmq_mark_offset(mark);
        else if (record.rolls && record.has_key)
            sources[found++] = name_of(&record, record.rolls - 1);
    }
    return found;
}

static int was_rolled(const struct rmq_timer_enqueue *e, const struct rmq_timer_record *record, int64_t queue_offset)
{
    if (!e->rolled_count)
        return 0;
    return contains(e->rolled, e->rolled_count, (uint64_t)queue_offset) ||
           (record->has_key && contains(e->rolled, e->rolled_count, name_of(record, record->rolls)));
}

/* 1 if the message went out, or was rolled, before its record came. Records of an earlier process may have waited in slots of another
 * precision or window: their own time tells if they went out, and the timer topic if they were rolled. */
static int was_done_before(const struct rmq_timer_files *f, const struct rmq_held_record *held, const struct rmq_queue_unit *of,
                           const struct rmq_timer_record *record, const struct rmq_timer_enqueue *e)
{
    struct rmq_timer_record as_known = *record;
    if (of->queue_offset < e->rolled_end && was_rolled(e, record, of->queue_offset))
        return 1;
    if (of->queue_offset >= e->known_offset)
        return 0;
    if (of->queue_offset >= e->rolled_end)
        return rmq_timer_place(f, record->exact_ms - 1, stored_ms(f, record), 0, 0).slot_ms < e->known_ms;
    if (e->known_coarsest_ms != f->coarsest_ms)
        (void)rmq_timer_record_read(held->at, (uint32_t)of->size, (uint32_t)e->known_coarsest_ms, NULL, &as_known);
    return as_known.exact_ms <= e->known_ms;
}

/* A delete may wait for the index files or for the next turn. Then, or if its target cannot be read now: 0 and e->stop. */
static int search(const struct rmq_timer_files *f, const struct rmq_queue_unit *of, const struct rmq_timer_record *record,
                  struct rmq_timer_enqueue *e, struct rmq_timer_place *place, int *is_found)
{
    struct rmq_timer_index *index = &e->index;
    if (!index->is_listed) {
        e->stop = RMQ_TIMER_STOP_INDEX;
        return 0;
    }
    if (rmq_mono_ns() >= index->until_ns) {
        if (of->queue_offset < index->all_below || e->write_ms - record->store_time_ms <= RMQ_TIMER_SEARCH_AGE_MS) {
            e->stop = RMQ_TIMER_STOP_TIME;
            return 0;
        }
        e->tally.not_searched++;
        return 1;
    }
    const struct rmq_timer_slot *open = in_memory(e, e->open_ms);
    int64_t end_ms = open ? rmq_timer_slot_end(open) : e->open_ms + f->precision_ms;
    *is_found = rmq_timer_find_target(f, index, record, of->commit_log_offset, open ? rmq_timer_slot_time(open) : e->open_ms,
                                      end_ms, place);
    e->stop = *is_found < 0 ? RMQ_TIMER_STOP_TIME : 0;
    return *is_found >= 0;
}

/* 1 = done, 0 = the log has no room or a delete has to wait, or -ENOMEM. */
static int enqueue(struct rmq_timer_files *f, const struct rmq_held_record *held, const struct rmq_queue_unit *of,
                   struct rmq_timer_enqueue *e, int64_t *store_ms)
{
    struct rmq_timer_record record;
    if (!rmq_timer_record_read(held->at, (uint32_t)of->size, f->coarsest_ms, e->index.secret, &record)) {
        e->tally.damaged++;
        return 1;
    }
    *store_ms = record.store_time_ms;
    if (record.out_ms == RMQ_TIMER_NO_TIME) {
        e->tally.without_time++;
        return 1;
    }
    int64_t from_ms = e->rolls_by_write ? e->write_ms : stored_ms(f, &record);
    struct rmq_timer_place place = rmq_timer_place(f, record.exact_ms - 1, from_ms, e->open_ms, record.is_delete);
    int is_found = 0;
    if (record.target_key && !search(f, of, &record, e, &place, &is_found))
        return 0;
    if (!is_found && was_done_before(f, held, of, &record, e)) {
        e->tally.done_before++;
        return 1;
    }
    /* The open slot lies ahead of a clock that was set back, and a delay has 32 bits. Late units have -1 ms for rmq_timer_latest. */
    int64_t enqueue_ms = e->write_ms > e->open_ms ? e->write_ms : e->open_ms;
    if (place.slot_ms == e->open_ms && record.exact_ms <= e->open_ms)
        enqueue_ms = e->open_ms + 1;
    struct rmq_timer_unit unit = {
        .enqueue_ms = enqueue_ms, .slot_ms = place.slot_ms, .commit_log_offset = of->commit_log_offset,
        .magic = place.magic, .size = of->size, .topic_hash = record.topic_hash,
    };
    if (!rmq_timer_append(f, &unit))
        return 0;
    count_enqueued(e, &unit, record.out_ms - record.store_time_ms);
    rmq_timer_topic_add(e->topics, rmq_timer_topic_row(e->topics, &unit), 1);
    struct rmq_timer_slot *slot = in_memory(e, place.slot_ms);
    int rc = slot ? add(slot, rmq_timer_number(f, unit.position), &unit, &record, e) : 0;
    return rc ? rc : 1;
}

int64_t rmq_timer_enqueue(struct rmq_timer_files *f, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                          uint32_t count, struct rmq_timer_enqueue *e)
{
    e->stop = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t store_ms = e->read_ms;
        int rc = enqueue(f, &records[i], &units[i], e, &store_ms);
        if (rc <= 0)
            return rc ? rc : (int64_t)i;
        e->read_ms = store_ms;
    }
    return count;
}

/* --- dequeue ---------------------------------------------------------------------------------------------- */

/* A unit of which no message comes does not wait. A later walk of the slot meets it again. */
static void leave_uncounted(struct rmq_timer_slot *slot, const struct rmq_timer_unit *unit, struct rmq_timer_enqueue *e)
{
    if (!rmq_timer_slot_is_walked_again(slot))
        rmq_timer_topic_add(e->topics, rmq_timer_topic_row(e->topics, unit), -1);
}

/* 1 if the record is that of the unit. A seal says the same, so only units of stock need it. Stock places a record by its out_ms, we by
 * its millisecond, which a rolled delay does not say. */
static int agrees(const struct rmq_timer_files *f, const struct rmq_timer_unit *unit, const struct rmq_timer_record *record)
{
    int is_delete = (unit->magic & RMQ_TIMER_DELETE) != 0, is_rolled = (unit->magic & RMQ_TIMER_ROLL) != 0;
    if (record->out_ms == RMQ_TIMER_NO_TIME || record->topic_hash != unit->topic_hash || record->is_delete != (uint32_t)is_delete)
        return 0;
    int64_t end_ms = unit->slot_ms + f->precision_ms;
    return is_delete || (is_rolled ? record->exact_ms > end_ms : record->out_ms < end_ms);
}

/* 1 if retention has taken the record. Units are in the order of their records, so that of an earlier unit is gone, too. Without it
 * a unit of stock whose offset the disk has changed would pass for one. */
static int is_gone(const struct rmq_timer_files *f, const struct rmq_queue_reader *q, const struct rmq_timer_unit *unit)
{
    int64_t log_min = (int64_t)rmq_load(&q->plane->watermarks->min_offset);
    uint64_t number = rmq_timer_number(f, unit->position);
    struct rmq_timer_unit before;
    if (unit->commit_log_offset < 0 || unit->commit_log_offset >= log_min)
        return 0;
    return !number || !rmq_timer_unit_at(f, rmq_timer_position(f, number - 1), &before) || before.commit_log_offset < log_min;
}

static int found(struct rmq_timer_files *f, struct rmq_queue_reader *q, struct rmq_timer_slot *slot,
                 const struct rmq_timer_unit *unit, struct rmq_timer_enqueue *e)
{
    struct rmq_held_record held;
    struct rmq_timer_record record;
    int rc = rmq_queue_reader_record(q, (uint64_t)unit->commit_log_offset, (uint32_t)unit->size, &held);
    int is_behind = rc == -ENODATA && !unit->is_sealed &&
                    (uint64_t)unit->commit_log_offset + (uint32_t)unit->size > rmq_load(&q->plane->watermarks->append_offset);
    if ((rc == -EAGAIN || rc == -ENOMEM || rc == -ENODATA) && !is_behind)
        return rc;
    int is_read = rc >= 0 && rmq_timer_record_read(held.at, (uint32_t)unit->size, f->coarsest_ms, rmq_timer_slot_secret(slot), &record);
    if (!unit->is_sealed && !(is_read ? agrees(f, unit, &record) : is_gone(f, q, unit))) {
        f->damaged = (uint64_t)unit->position + 1;
        rc = 0;
    } else if (!is_read) {
        e->tally.damaged++;
        leave_uncounted(slot, unit, e);
        rc = 0;
    } else if (is_delivered(e, record.queue_offset)) {
        e->tally.repeated++;
        leave_uncounted(slot, unit, e);
    } else {
        key_in_slot(&record, unit->slot_ms);
        rc = rmq_timer_slot_found(slot, rmq_timer_number(f, unit->position), unit->magic, &record);
    }
    rmq_queue_reader_release(&held);
    return rc;
}

void rmq_timer_walk_begin(const struct rmq_timer_files *f, struct rmq_timer_walk *w)
{
    w->position = rmq_timer_last(f, w->slot_ms);
    w->left = rmq_timer_count(f, w->slot_ms);
}

/* Goes to the next slot in use, which joins. Its later units come by hand. */
static void next_chain(struct rmq_timer_files *f, struct rmq_timer_slot *slot, struct rmq_timer_walk *w)
{
    int64_t step = f->precision_ms, end = rmq_timer_slot_end(slot), next = -1;
    if (w->is_again)
        next = rmq_timer_next_used(f, w->slot_ms + step, end);
    else
        next = rmq_timer_next_used(f, end, w->units < RMQ_TIMER_JOIN_UNITS ? w->until_ms : w->required_ms);
    w->is_over = next < 0;
    if (next < 0)
        return;
    w->slot_ms = next;
    rmq_timer_walk_begin(f, w);
    if (!w->is_again)
        rmq_timer_slot_extend(slot, next + step);
}

int rmq_timer_walk(struct rmq_timer_files *f, struct rmq_queue_reader *q, struct rmq_timer_slot *slot, struct rmq_timer_walk *w,
                   uint32_t limit, struct rmq_timer_enqueue *e)
{
    struct rmq_timer_unit unit;
    int64_t step = f->precision_ms;
    while (limit && !w->is_over && !f->damaged) {
        if (w->position == RMQ_TIMER_NO_UNIT) {
            next_chain(f, slot, w);
            continue;
        }
        if (w->position < (int64_t)f->log_begin) { /* retention takes old files */
            w->position = RMQ_TIMER_NO_UNIT;
            continue;
        }
        if (!rmq_timer_unit_at(f, w->position, &unit) || unit.previous >= w->position || unit.slot_ms / step != w->slot_ms / step) {
            f->damaged = (uint64_t)w->position + 1;
            break;
        }
        /* a walk that comes again leaves the later units, which are in memory since they came */
        int is_known = w->is_again && rmq_timer_number(f, unit.position) >= rmq_timer_slot_units_end(slot);
        int rc = is_known ? 0 : found(f, q, slot, &unit, e);
        if (rc < 0)
            return rc;
        w->left -= unit.magic & RMQ_TIMER_DELETE ? -1 : 1;
        if (unit.previous == RMQ_TIMER_NO_UNIT && w->left)
            f->damaged = (uint64_t)unit.position + 1;
        w->position = unit.previous;
        w->units++;
        limit--;
    }
    return 0;
}

static int is_rolled_delete(uint32_t magic) { return magic & RMQ_TIMER_ROLL && magic & RMQ_TIMER_DELETE; }

uint32_t rmq_timer_take(struct rmq_timer_files *f, struct rmq_timer_slot *slot, int64_t now_ms, struct rmq_timer_batch *b)
{
    int64_t until_ms = INT64_MAX;
    b->count = rmq_timer_slot_take(slot, now_ms, b->keys, b->room);
    for (uint32_t i = 0; i < b->count; i++) {
        if (rmq_timer_slot_exact_ms(slot, b->keys[i]) > until_ms) {
            (void)rmq_timer_slot_return(slot, b->keys + i, b->count - i); /* needs no memory: they were there before */
            b->count = i;
            break;
        }
        struct rmq_timer_unit unit = {0}; /* if retention has taken the unit, no record is found either */
        int64_t position = rmq_timer_position(f, rmq_timer_slot_unit(b->keys[i]));
        int is_there = rmq_timer_unit_at(f, position, &unit);
        if (!is_there && position >= (int64_t)f->log_begin)
            f->damaged = (uint64_t)position + 1;
        b->topic_rows[i] = is_there ? rmq_timer_topic_row(b->topics, &unit) : RMQ_NONE;
        b->units[i] = (struct rmq_queue_unit){.commit_log_offset = unit.commit_log_offset, .size = unit.size};
        b->enqueue_ms[i] = unit.enqueue_ms;
        b->slots_ms[i] = unit.slot_ms;
        b->magics[i] = unit.magic;
        if (is_rolled_delete(unit.magic))
            until_ms = rmq_timer_slot_exact_ms(slot, b->keys[i]);
    }
    return b->count;
}

static void leave_out(struct rmq_record_copy *copy)
{
    copy->queue_slot = RMQ_NONE;
    copy->cause = RMQ_COPY_NO_TOPIC;
    copy->detail = 0;
}

/* 1 if a delete of the slot names the message. Rolled deletes are not deleted. */
static int is_deleted(const struct rmq_timer_slot *slot, const struct rmq_timer_record *record)
{
    return !record->is_delete && record->has_key && rmq_timer_slot_deletes(slot, record->key);
}

void rmq_timer_copies(struct rmq_timer_slot *slot, struct rmq_timer_batch *b, struct rmq_record_copy *copies, uint32_t count,
                      struct rmq_pair_edit *edits, const struct rmq_record_copy *timer_target, int64_t now_ms,
                      uint32_t precision_ms)
{
    const uint64_t *secret = rmq_timer_slot_has_deletes(slot) ? rmq_timer_slot_secret(slot) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_record_copy *copy = &copies[i];
        struct rmq_timer_record record;
        int is_rolled = (b->magics[i] & RMQ_TIMER_ROLL) != 0;
        copy->edits_from = i * RMQ_TIMER_EDITS;
        copy->edits_count = is_rolled ? RMQ_TIMER_EDITS : RMQ_TIMER_EDITS - 1;
        edits[copy->edits_from].number = b->enqueue_ms[i];
        edits[copy->edits_from + 1].number = now_ms;
        if (is_rolled) {
            copy->topic_id = timer_target->topic_id;
            copy->queue_slot = timer_target->queue_slot;
            copy->queue_id = timer_target->queue_id;
        }
        b->units[i].queue_offset = 0;
        if (!rmq_timer_record_read(copy->record, (uint32_t)copy->record_bytes, precision_ms, secret, &record))
            continue; /* rmq_record_copies refuses it */
        b->units[i].queue_offset = record.queue_offset;
        key_in_slot(&record, b->slots_ms[i]);
        if (secret && is_deleted(slot, &record)) {
            leave_out(copy);
            b->magics[i] |= RMQ_TIMER_DELETED;
        }
    }
}

/* --- copies in flight ------------------------------------------------------------------------------------- */

int rmq_timer_submitted(struct rmq_timer_flight *flight, struct rmq_timer_slot *slot, const struct rmq_timer_batch *b,
                        const struct rmq_request *requests, uint32_t done, struct rmq_timer_tally *tally)
{
    uint32_t made = 0;
    flight->last_delete = 0;
    for (uint32_t i = 0; i < done; i++) {
        if (!requests[i].kind) {
            rmq_timer_topic_add(b->topics, b->topic_rows[i], -1);
            tally->deleted += (b->magics[i] & RMQ_TIMER_DELETED) != 0;
            tally->skipped += !(b->magics[i] & RMQ_TIMER_DELETED);
            continue;
        }
        uint32_t at = (flight->first + flight->count++) % flight->room;
        flight->keys[at] = b->keys[i];
        flight->is_rolled[at] = (b->magics[i] & RMQ_TIMER_ROLL) != 0;
        flight->topic_rows[at] = b->topic_rows[i];
        flight->due_ms[at] = rmq_timer_slot_exact_ms(slot, b->keys[i]);
        made++;
        if (is_rolled_delete(b->magics[i])) {
            flight->last_delete = made;
            flight->delete_ms = flight->due_ms[at];
        }
    }
    return rmq_timer_slot_return(slot, b->keys + done, b->count - done);
}

void rmq_timer_stored(struct rmq_timer_flight *flight, uint32_t count, int64_t now_ms)
{
    for (; count && flight->count; count--, flight->count--) {
        uint32_t at = flight->first;
        rmq_timer_topic_add(flight->topics, flight->topic_rows[at], -1);
        rmq_timer_topic_dequeued(flight->topics, flight->topic_rows[at]);
        if (flight->is_rolled[at]) {
            flight->rolled++;
        } else {
            flight->delivered++;
            rmq_latency_count(flight->lateness, (now_ms - flight->due_ms[at]) * 1000000, 1);
        }
        flight->first = (at + 1) % flight->room;
    }
}

int rmq_timer_refused(struct rmq_timer_flight *flight, struct rmq_timer_slot *slot)
{
    int rc = 0;
    for (; flight->count && !rc; flight->count--) {
        rc = rmq_timer_slot_return(slot, &flight->keys[flight->first], 1);
        flight->first = (flight->first + 1) % flight->room;
    }
    return rc;
}
