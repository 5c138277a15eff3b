#include "pop/pop_picks.h"

#include "log/loaded_pages.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "plane/settings_word.h"

#define RETRY_BYTES_MORE 512u   /* that a retry has more when it is written anew: receipt and topic */
#define RETRY_INLINE_MAX (36u << 10) /* of it beside a large body: fixed fields, topic, properties, a small body */
#define UNWANTED_MAX 256        /* stock: every 800th message */
#define TRIES 2                 /* reads of a queue whose first unit may be deleted */

static int64_t left_of(int64_t max_offset, int64_t next_offset) { return max_offset > next_offset ? max_offset - next_offset : 0; }

static void trouble(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t slot, int64_t offset, int error)
{
    rmq_pop_count(d, RMQ_POP_COUNT_UNREADABLE, 1);
    p->is_stuck |= error == -EBADMSG || error == -EINVAL;
    if (error == -EBUSY)
        return; /* a condition waits for the disk */
    d->trouble_slot = slot;
    d->trouble_offset = offset;
    d->trouble_error = error;
}

/* Holds the record of a retry, which is read. 0: it is on disk or cannot be mapped now. */
static int hold(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t slot, const struct rmq_queue_unit *unit,
                struct rmq_pop_message *m)
{
    struct rmq_loaded loaded = {0};
    uint64_t position = (uint64_t)unit->commit_log_offset;
    int rc = rmq_queue_reader_record(d->queues, position, (uint32_t)unit->size, &m->held);
    if (rc < 0) {
        trouble(d, p, slot, unit->queue_offset, rc);
        return 0;
    }
    m->is_held = 1;
    if (rmq_is_in_memory(d->queues->settings, p->log_end, position) || rmq_record_is_loaded(&loaded, m->held.map, m->held.at, m->size))
        return 1;
    rmq_queue_reader_release(&m->held);
    m->is_held = 0;
    return 0;
}

/* Adds the message of a unit. 0: it does not fit, or cannot be read now. */
static int add(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t slot, const struct rmq_queue_unit *unit, int is_retry)
{
    struct rmq_pop_message *m = &p->messages[p->message_count];
    uint32_t size = (uint32_t)unit->size, more = is_retry ? RETRY_BYTES_MORE : 0;
    uint32_t written = !is_retry ? 0 : size < RETRY_INLINE_MAX ? size + more : RETRY_INLINE_MAX;
    uint64_t position = (uint64_t)unit->commit_log_offset, lowest = position < p->lowest ? position : p->lowest;
    if (written > p->room || rmq_records_exceed(d->queues->settings, p->log_end, lowest, p->message_count + 1, p->bytes + size + more))
        return 0;
    *m = (struct rmq_pop_message){.queue_offset = unit->queue_offset, .position = position, .size = size};
    if (is_retry && !hold(d, p, slot, unit, m))
        return 0;
    p->room -= written;
    p->lowest = lowest;
    p->bytes += size + more;
    p->held_count = ++p->message_count;
    return 1;
}

static int read_units(struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint32_t slot, int64_t offset,
                      struct rmq_queue_unit *units, int room, int64_t *behind)
{
    static const struct rmq_subscription_copy all = {.kind = RMQ_SUBSCRIPTION_ALL};
    if (p->filter && p->filter->program)
        return rmq_queue_reader_matching(d->queues, slot, offset, p->filter->program, units, room, behind);
    return rmq_queue_reader_units(d->queues, slot, offset, p->filter ? &p->filter->wanted : &all, units, room, behind);
}

/* 1: a poll leaves the units from `offset` to `behind`, which its filter does not want, to others that ask. */
static int leaves(const struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint32_t slot, int64_t offset, int64_t behind)
{
    return p->is_woken && behind - offset <= UNWANTED_MAX && behind >= (int64_t)rmq_load(&rmq_queue_at(d->plane, slot)->max_offset);
}

/* Picks the next messages. Returns the offset behind those that were looked at. */
static int64_t pick_next(struct rmq_pop_desk *d, struct rmq_pop_picks *p, struct rmq_pop_pick *pick, uint32_t slot, int64_t offset)
{
    struct rmq_queue_unit units[RMQ_POP_MESSAGES_MAX];
    int count = -ENOENT, n = 0, room = (int)(p->wanted - p->message_count);
    int64_t behind = offset;
    for (uint32_t tries = 0; tries < TRIES && count == -ENOENT; tries++) {
        count = read_units(d, p, slot, offset, units, room, &behind);
        if (count != -ENOENT || behind <= offset)
            break;
        rmq_pop_skip_to(d->windows, pick->place, behind); /* retention has deleted what was before */
        offset = behind;
    }
    if (count < 0) {
        if (count != -ENOENT)
            trouble(d, p, slot, offset, count);
        return offset;
    }
    while (n < count && add(d, p, slot, &units[n], pick->flag != RMQ_POP_FLAG_NORMAL))
        n++;
    if (n < count) {
        behind = units[n].queue_offset;
        p->is_full = p->message_count > 0;
    }
    int64_t unwanted = n ? units[n - 1].queue_offset + 1 : offset;
    int is_left = behind > unwanted && leaves(d, p, slot, unwanted, behind);
    p->has_left |= (uint32_t)is_left;
    pick->start_offset = offset;
    pick->next_offset = is_left ? unwanted : behind;
    pick->count = (uint32_t)n;
    if (!n && behind > offset && !is_left)
        rmq_pop_skip_to(d->windows, pick->place, behind); /* the group wants none of them */
    return behind;
}

/* Ends returned messages whose records are deleted. */
static void end_returned(struct rmq_pop_desk *d, uint32_t place, const int64_t *offsets, uint32_t count)
{
    uint32_t done;
    struct rmq_pop_give give = {.pop_time_ms = d->now_ms, .mono_ms = d->now_ns / 1000000, .start_offset = offsets[0]};
    give.pop_time_ms = rmq_pop_time_for(d->windows, &place, offsets, 1, d->now_ms);
    if (rmq_pop_give_again(d->windows, place, &give, offsets, count) < 0)
        return; /* no entry is free: the next pop looks again */
    for (uint32_t i = 0; i < count; i++)
        rmq_pop_ack(d->windows, place, give.start_offset, give.pop_time_ms, offsets[i], 1, &done);
}

/* Picks messages that no consumer has received, as far as their records are there. 0: none of them is left. */
static int pick_returned(struct rmq_pop_desk *d, struct rmq_pop_picks *p, struct rmq_pop_pick *pick, uint32_t slot)
{
    int64_t offsets[RMQ_POP_MESSAGES_MAX], behind;
    struct rmq_queue_unit unit;
    uint32_t count = rmq_pop_returned(d->windows, pick->place, offsets, p->wanted - p->message_count), gone = 0, at = 0;
    for (; at < count; at++) {
        int rc = rmq_queue_reader_unit(d->queues, slot, offsets[at], &unit, &behind);
        if (rc == -ENOENT || (!rc && unit.is_filler)) {
            offsets[gone++] = offsets[at];
            continue;
        }
        if (rc < 0) {
            trouble(d, p, slot, offsets[at], rc);
            break;
        }
        if (!add(d, p, slot, &unit, pick->flag != RMQ_POP_FLAG_NORMAL)) {
            p->is_full = p->message_count > 0;
            break;
        }
        if (!pick->count++)
            pick->start_offset = offsets[at];
        pick->next_offset = offsets[at] + 1;
    }
    if (gone)
        end_returned(d, pick->place, offsets, gone);
    pick->is_again = gone < count;
    return gone < count;
}

static int is_held_back(const struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint32_t place)
{
    return p->message_count == p->wanted || p->is_full || p->pick_count == RMQ_POP_MESSAGES_MAX ||
           (d->open_max && rmq_pop_held_messages(d->windows, place) > d->open_max);
}

/* 1: the orderly pop may read the queue. It goes on behind messages that no normal pop has got to a consumer. */
static int may_read(struct rmq_pop_desk *d, const struct rmq_pop_picks *p, uint32_t place)
{
    if (rmq_pop_order_blocks(d->windows, place, p->order, d->now_ns / 1000000))
        return 0;
    rmq_pop_leave_returned(d->windows, place, INT64_MAX);
    return 1;
}

/* Picks the next messages of an orderly group, if a batch can be given. Returns the offset behind those that were looked at. */
static int64_t pick_batch(struct rmq_pop_desk *d, struct rmq_pop_picks *p, struct rmq_pop_pick *pick, uint32_t slot, int64_t offset)
{
    if (!rmq_pop_orders_ready(d->windows, p->pick_count + 1, d->now_ns / 1000000))
        return pick_next(d, p, pick, slot, offset);
    rmq_pop_count(d, RMQ_POP_COUNT_BOUND, !d->row.held); /* a poll tries again and again */
    p->is_full = 1;                                      /* no other queue gets a batch either */
    return offset;
}

/* A member of the group that pulls has committed a larger offset: the pop goes on there. One beyond the end is left to the next
 * pass over all offsets (pop_offsets.c). While a report is on its way, the table may have an offset of before a reset. */
static void follow_table(struct rmq_pop_desk *d, uint32_t group_id, uint32_t slot, uint32_t place)
{
    const struct rmq_pop_window *window = rmq_pop_window_at(d->windows, place);
    const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
    int64_t max_offset = (int64_t)rmq_load(&queue->max_offset);
    if (window->next_offset >= max_offset || rmq_ring_used(&rmq_port_at(d->plane, d->port)->commit))
        return;
    int64_t table = rmq_offset_get(d->plane, group_id, slot);
    if (table > window->committed && table <= max_offset)
        rmq_pop_skip_to(d->windows, place, table);
}

static uint32_t pick_queue(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t group_id, const struct rmq_pop_source *source,
                           uint32_t queue_id)
{
    uint32_t slot = rmq_queue_find(d->plane, source->topic_id, queue_id);
    if (slot == RMQ_NONE)
        return RMQ_POP_SERVED; /* it has never had a message */
    uint32_t place = rmq_pop_window_of(d, group_id, slot);
    if (place == RMQ_NONE) {
        d->wanted_group = group_id;
        d->wanted_topic = source->topic_id;
        return RMQ_POP_NEEDS_WINDOWS;
    }
    follow_table(d, group_id, slot, place);
    if (p->order && !may_read(d, p, place))
        return RMQ_POP_SERVED; /* messages behind a batch are no rest */
    int64_t max_offset = (int64_t)rmq_load(&rmq_queue_at(d->plane, slot)->max_offset), returned;
    int64_t behind = rmq_pop_window_at(d->windows, place)->next_offset;
    uint32_t has_returned; /* some more of them may be there */
    p->is_stuck = 0;
    if (is_held_back(d, p, place)) {
        has_returned = rmq_pop_returned(d->windows, place, &returned, 1);
    } else {
        struct rmq_pop_pick *pick = &p->picks[p->pick_count];
        *pick = (struct rmq_pop_pick){.place = place, .flag = source->flag, .queue_id = queue_id, .first = p->message_count};
        has_returned = !p->order && pick_returned(d, p, pick, slot);
        if (p->order)
            behind = pick_batch(d, p, pick, slot, behind);
        else if (!has_returned)
            behind = pick_next(d, p, pick, slot, behind);
        p->pick_count += pick->count > 0;
    }
    int64_t left = left_of(max_offset, behind);
    p->rest += left;
    p->has_left |= has_returned;
    p->has_later |= !p->is_stuck && (left || has_returned);
    return RMQ_POP_SERVED;
}

uint32_t rmq_pop_pick_topic(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t group_id, const struct rmq_pop_source *source)
{
    uint32_t why = RMQ_POP_SERVED;
    if (source->queue_id >= 0)
        return pick_queue(d, p, group_id, source, (uint32_t)source->queue_id);
    for (uint32_t i = 0; i < source->queues && why == RMQ_POP_SERVED; i++)
        why = pick_queue(d, p, group_id, source, (source->turn + i) % source->queues);
    return why;
}

void rmq_pop_picks_release(struct rmq_pop_picks *p)
{
    for (uint32_t i = 0; i < p->held_count; i++)
        if (p->messages[i].is_held)
            rmq_queue_reader_release(&p->messages[i].held);
}
