/* pop_copies.c: copies of messages whose invisible time is over. pop_copies.h has their way. */
#include "pop/pop_copies.h"

#include <errno.h>
#include <string.h>

#include "codec/record.h"
#include "log/loaded_pages.h"
#include "plane/invariant.h"
#include "pop/pop_entries.h"
#include "pop/pop_index.h"

#define DUE_ROOM 1024 /* messages of one call */

/* --- check points in the log --------------------------------------------------------------------------------------- */

/* The acknowledgement of a message that has a check point in the log. 1, or 0: it has none. */
static int ack_of(const struct rmq_pop_copies *c, const struct rmq_pop_copy *row, struct rmq_pop_log_record *record)
{
    uint32_t entry = RMQ_NONE;
    if (c->log_acks && c->log_acks->room.revive_queues)
        entry = rmq_pop_flying_in_log(c->windows, row->due.window, row->due.queue_offset);
    if (entry == RMQ_NONE)
        return 0;
    const struct rmq_pop_entry *e = &c->windows->entries[entry];
    *record = (struct rmq_pop_log_record){
        .offsets = &row->due.queue_offset, .count = 1, .is_ack = 1, .start = rmq_pop_start_of(e), .pop_time_ms = e->pop_time_ms,
        .invisible_ms = e->invisible_ms, .revive_queue = e->revive_queue & ~(uint32_t)RMQ_POP_CHANGED,
        .queue_id = c->windows->windows[rmq_pop_place_of(c->windows, e)].queue_id};
    return 1;
}

/* The request of the acknowledgement. 1, or 0: the message has no check point in the log. */
static int put_ack(const struct rmq_pop_copies *c, const struct rmq_pop_copy *row, struct rmq_request *request, uint64_t *arena_at)
{
    struct rmq_pop_log_record record;
    uint32_t place = row->due.place;
    if (!row->has_ack || !ack_of(c, row, &record))
        return 0;
    rmq_pop_log_names(c->log_acks, c->plane, rmq_pop_index_group(c->index, place), rmq_pop_index_queue(c->index, place));
    record.group = c->log_acks->names[0];
    record.topic = c->log_acks->names[1];
    struct rmq_pop_log_room room = c->log_acks->room;
    room.now_ms = rmq_wall_ms();
    room.arena_at = *arena_at;
    rmq_pop_log_record_put(&room, request, &record);
    request->flags |= RMQ_APPEND_FLAG_NO_WAIT;
    *arena_at = room.arena_at;
    return 1;
}

/* A copy is stored whose message got its check point while the copy was with write. */
static void end_point(const struct rmq_pop_copies *c, const struct rmq_pop_copy *row)
{
    struct rmq_pop_log_record record;
    uint32_t place = row->due.place;
    if (!row->has_ack && ack_of(c, row, &record))
        rmq_pop_log_end(c->log_acks, row->due.window, rmq_pop_index_group(c->index, place),
                        rmq_pop_index_queue(c->index, place), &record);
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

void rmq_pop_copies_ready(struct rmq_pop_copies *c, uint32_t slot) { c->ready[c->ready_count++] = slot; }

void rmq_pop_copies_release(struct rmq_pop_copies *c, uint32_t slot) { c->unused[c->unused_count++] = slot; }

uint32_t rmq_pop_copies_due(struct rmq_pop_copies *c, int64_t mono_ms)
{
    struct rmq_pop_due due[DUE_ROOM];
    uint32_t taken = 0, count = 1;
    while (count && c->unused_count >= RMQ_POP_ENTRY_MESSAGES) {
        count = rmq_pop_due(c->windows, mono_ms, due, c->unused_count < DUE_ROOM ? c->unused_count : DUE_ROOM);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t slot = c->unused[--c->unused_count];
            c->rows[slot] = (struct rmq_pop_copy){.due = due[i]};
            rmq_pop_copies_ready(c, slot);
        }
        taken += count;
    }
    return taken;
}

/* --- a batch ------------------------------------------------------------------------------------------------------- */

static uint32_t case_of(struct rmq_pop_copies *c, const struct rmq_pop_due *due)
{
    for (uint32_t i = c->cases_count; i > 0; i--)
        if (c->cases[i - 1].window == due->window)
            return i - 1;
    if (c->cases_count == RMQ_POP_CASES_MAX)
        return RMQ_NONE;
    c->cases[c->cases_count] = (struct rmq_pop_copy_case){.window = due->window, .place = due->place};
    return c->cases_count++;
}

uint32_t rmq_pop_copies_look(struct rmq_pop_copies *c, uint32_t room)
{
    uint32_t kept = 0, i = 0;
    room = room < RMQ_POP_COPY_BATCH ? room : RMQ_POP_COPY_BATCH;
    c->taken_count = c->copied_count = c->cases_count = 0;
    for (; i < c->ready_count && c->taken_count < room; i++) {
        uint32_t slot = c->ready[i], number = case_of(c, &c->rows[slot].due);
        if (number == RMQ_NONE) {
            c->ready[kept++] = slot;
            continue;
        }
        c->rows[slot].case_number = number;
        c->cases[number].rows++;
        c->taken[c->taken_count++] = slot;
    }
    memmove(c->ready + kept, c->ready + i, (c->ready_count - i) * sizeof *c->ready);
    c->ready_count -= i - kept;
    return c->taken_count;
}

static int leave(struct rmq_pop_copy *row, uint32_t left, int32_t detail)
{
    row->left = left;
    row->detail = detail;
    return 0;
}

static int later(struct rmq_pop_copy *row)
{
    row->is_later = 1;
    return 0;
}

/* Sorts an error of the queue reader. */
static int not_read(struct rmq_pop_copy *row, int error)
{
    if (error == -ENOENT)
        return leave(row, RMQ_POP_LEFT_GONE, 0);
    return error == -EAGAIN || error == -ENOMEM || error == -ENODATA ? later(row) : leave(row, RMQ_POP_LEFT_UNREADABLE, error);
}

/* Holds the record of a message if it is in memory, whole and sound. 1, or 0: the row says why not. */
static int hold(struct rmq_queue_reader *q, struct rmq_pop_copy *row, uint32_t slot, struct rmq_loaded *loaded,
                struct rmq_record_view *view)
{
    struct rmq_queue_unit unit;
    int64_t next;
    int error = rmq_queue_reader_unit(q, slot, row->due.queue_offset, &unit, &next);
    if (error < 0)
        return not_read(row, error);
    if (unit.is_filler)
        return leave(row, RMQ_POP_LEFT_GONE, 0);
    uint32_t size = (uint32_t)unit.size;
    if ((error = rmq_queue_reader_record(q, (uint64_t)unit.commit_log_offset, size, &row->source)) < 0)
        return not_read(row, error);
    if (!rmq_queue_reader_in_memory(q, (uint64_t)unit.commit_log_offset)) {
        *loaded = (struct rmq_loaded){0};
        if (!rmq_bytes_are_loaded(loaded, row->source.map, row->source.at, size))
            return later(row);
    }
    if (rmq_record_parse(row->source.at, size, 0, view) != RMQ_RECORD_OK || view->physical_offset != unit.commit_log_offset)
        return leave(row, RMQ_POP_LEFT_NO_COPY, RMQ_COPY_DAMAGED);
    return 1;
}

/* The copy of a message that comes again: the time of its first pop stays with it. */
static void describe_again(struct rmq_pop_copies *c, const struct rmq_pop_copy *row, const struct rmq_record_view *view,
                           struct rmq_record_copy *copy)
{
    struct rmq_pair_edit *edit = &c->edits[c->copied_count];
    *edit = (struct rmq_pair_edit){.kind = view->reconsume_times ? RMQ_EDIT_DEFAULT : RMQ_EDIT_SET, .value_from = RMQ_FROM_NUMBER,
                                   .name_length = (uint16_t)c->name_length, .name_at = c->name_at, .number = row->due.pop_time_ms};
    copy->edits_from = c->copied_count;
    copy->edits_count = 1;
}

static void describe(struct rmq_pop_copies *c, const struct rmq_pop_copy *row, const struct rmq_record_view *view,
                     struct rmq_record_copy *copy)
{
    const struct rmq_pop_copy_case *decided = &c->cases[row->case_number];
    const struct rmq_pop_copy_target *target = row->is_dead ? &decided->dead : &decided->again;
    uint64_t mark = (uint64_t)RMQ_ROLE_POP << RMQ_MARK_RANGE_SHIFT | (uint64_t)row->due.window << RMQ_MARK_POP_SHIFT;
    *copy = (struct rmq_record_copy){
        .record = row->source.at, .record_bytes = view->total_size, .position = view->physical_offset,
        .topic_id = target->topic_id, .queue_slot = target->queue_slot, .queue_id = target->queue_id,
        .flags = RMQ_COPY_NO_WAIT | RMQ_COPY_ADD_RECONSUME_TIMES, .reconsume_times = 1,
        .prepared_transaction_offset = (int64_t)(mark | (uint64_t)row->due.queue_offset),
        .sys_flag_clear = RMQ_SYS_TRANSACTION_MASK,
    };
    if (row->is_dead) {
        copy->edits_from = decided->dead_edits;
        copy->edits_count = RMQ_POP_CASE_EDITS;
    } else {
        describe_again(c, row, view, copy);
    }
}

uint32_t rmq_pop_copies_fill(struct rmq_pop_copies *c, struct rmq_queue_reader *q, struct rmq_record_copy *copies)
{
    struct rmq_loaded loaded = {0};
    struct rmq_record_view view;
    struct rmq_pop_log_record record;
    c->copied_count = c->acks_count = 0;
    if (c->log_acks)
        c->log_acks->names[0].length = 0; /* a slot may have another topic since the last batch */
    for (uint32_t i = 0; i < c->taken_count; i++) {
        struct rmq_pop_copy *row = &c->rows[c->taken[i]];
        const struct rmq_pop_copy_case *decided = &c->cases[row->case_number];
        row->left = row->is_later = row->has_ack = 0;
        row->source = (struct rmq_held_record){0};
        if (!decided->is_copied) {
            leave(row, RMQ_POP_LEFT_BY_CASE, 0);
            continue;
        }
        if (!hold(q, row, decided->source_slot, &loaded, &view))
            continue;
        row->is_dead = view.reconsume_times >= decided->times_max;
        if (row->is_dead && decided->dead.queue_slot == RMQ_NONE) {
            leave(row, RMQ_POP_LEFT_NO_DEAD, 0);
            continue;
        }
        describe(c, row, &view, &copies[c->copied_count]);
        c->acks_count += row->has_ack = (uint32_t)ack_of(c, row, &record);
        c->copied[c->copied_count++] = c->taken[i];
    }
    return c->copied_count;
}

/* Rows that wait go behind the others: a message on disk holds back none that is in memory. Those without room stay in front. */
static void postpone(struct rmq_pop_copies *c, const uint32_t *slots, uint32_t count)
{
    memmove(c->ready + count, c->ready, c->ready_count * sizeof *c->ready);
    memcpy(c->ready, slots, count * sizeof *slots);
    c->ready_count += count;
}

uint32_t rmq_pop_copies_tokens(struct rmq_pop_copies *c, const struct rmq_record_copy *copies, const struct rmq_request *requests,
                               uint32_t done, uint64_t batch, struct rmq_request *out, uint64_t *arena_at)
{
    uint32_t first[RMQ_POP_COPY_BATCH], made = 0, copied = 0, waiting = 0;
    for (uint32_t i = 0; i < c->taken_count; i++) {
        uint32_t slot = c->taken[i];
        struct rmq_pop_copy *row = &c->rows[slot];
        int is_copied = copied < c->copied_count && c->copied[copied] == slot;
        rmq_queue_reader_release(&row->source);
        if (is_copied && copied >= done) {
            first[waiting++] = slot;
        } else if (is_copied && requests[copied].kind) {
            out[made] = requests[copied];
            out[made].token = slot;
            row->batch = batch;
            row->is_with_write = 1;
            if (put_ack(c, row, &out[made + 1], arena_at)) {
                out[made++].flags |= RMQ_APPEND_FLAG_WITH_NEXT;
                out[made].token = RMQ_POP_COPY_ACK_TOKEN | batch % RMQ_POP_COPIES_MAX;
            }
            made++;
        } else if (row->is_later) {
            rmq_pop_copies_ready(c, slot);
        } else {
            if (is_copied)
                leave(row, RMQ_POP_LEFT_NO_COPY, (int32_t)copies[copied].cause);
            c->left[c->left_count++] = slot;
        }
        copied += (uint32_t)is_copied;
    }
    postpone(c, first, waiting);
    c->open[batch % RMQ_POP_COPIES_MAX] = made;
    return made;
}

/* --- answers ------------------------------------------------------------------------------------------------------- */

static void end_request(struct rmq_pop_copies *c, uint64_t batch)
{
    RMQ_INVARIANT(c->open[batch], batch);
    c->open[batch]--;
}

uint32_t rmq_pop_copies_answers(struct rmq_pop_copies *c)
{
    struct rmq_completion done;
    uint32_t count = 0;
    for (; rmq_port_take(c->plane, c->port, &done); count++) {
        if (done.token & RMQ_POP_LOG_TOKEN) {
            rmq_pop_log_stored(c->log_acks, &done);
            continue;
        }
        if (done.token & RMQ_POP_COPY_ACK_TOKEN) {
            end_request(c, done.token & (RMQ_POP_COPIES_MAX - 1));
            continue;
        }
        RMQ_INVARIANT(done.token < RMQ_POP_COPIES_MAX, done.token); /* else it is of another user of the port */
        uint32_t slot = (uint32_t)done.token;
        struct rmq_pop_copy *row = &c->rows[slot];
        RMQ_INVARIANT(row->is_with_write, slot, row->batch);
        row->is_with_write = 0;
        end_request(c, row->batch % RMQ_POP_COPIES_MAX);
        if (done.bytes) {
            end_point(c, row);
            rmq_pop_copied(c->windows, row->due.window, row->due.queue_offset, done.commit_log_offset + done.bytes);
            c->stored++;
            c->dead += row->is_dead;
            rmq_pop_copies_release(c, slot);
        } else {
            leave(row, RMQ_POP_LEFT_REFUSED, done.cause);
            c->left[c->left_count++] = slot;
        }
    }
    return count;
}
