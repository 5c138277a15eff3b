/* pop_log_acks.c: acknowledgements and changes that wait for their records, and their answers. */
#include "pop/pop_log_acks.h"

#include <errno.h>
#include <stdlib.h>

#include "plane/invariant.h"
#include "plane/ring.h"
#include "pop/pop_desk.h"

#define ANSWER_BYTES 1024u
#define NO_ENTRY "no entry is free for the message (ringmqPopOpenMax), it keeps its time"
#define NO_RECORD "the new time cannot be stored in the log, the message keeps its time"

struct rmq_pop_log_answer {
    struct rmq_inbox_record ask;
    struct rmq_plain_asked asked;
    uint32_t acts;               /* that wait */
    uint32_t next;               /* of unused ones: number + 1 */
    int32_t code;
};

struct rmq_pop_log_acks *rmq_pop_log_acks_open(void)
{
    struct rmq_pop_log_acks *la = calloc(1, sizeof *la);
    if (!la)
        return NULL;
    la->acts = calloc(RMQ_POP_LOG_ACTS_MAX, sizeof *la->acts);
    la->answers = calloc(RMQ_POP_LOG_ANSWERS_MAX, sizeof *la->answers);
    la->answer = RMQ_NONE;
    if (la->acts && la->answers)
        return la;
    rmq_pop_log_acks_close(la);
    return NULL;
}

void rmq_pop_log_acks_close(struct rmq_pop_log_acks *la)
{
    free(la->acts);
    free(la->answers);
    free(la);
}

int rmq_pop_log_has_room(const struct rmq_pop_log_acks *la, uint64_t acts)
{
    return la->to - la->ended + acts <= RMQ_POP_LOG_ACTS_MAX && la->answers_used < RMQ_POP_LOG_ANSWERS_MAX;
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static uint32_t take_answer(struct rmq_pop_log_acks *la)
{
    uint32_t number = la->unused_answer ? la->unused_answer - 1 : la->answers_end++;
    if (la->unused_answer)
        la->unused_answer = la->answers[number].next;
    la->answers[number].acts = 0;
    la->answers_used++;
    return number;
}

static void free_answer(struct rmq_pop_log_acks *la, uint32_t number)
{
    la->answers[number].next = la->unused_answer;
    la->unused_answer = number + 1;
    la->answers_used--;
}

/* An act of the request that is served. */
static struct rmq_pop_log_act *add_act(struct rmq_pop_desk *d, const struct rmq_pop_log_named *n, uint32_t kind)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    if (la->answer == RMQ_NONE)
        la->answer = take_answer(la);
    la->answers[la->answer].acts++;
    struct rmq_pop_log_act *act = rmq_pop_log_act_at(la, la->to++);
    *act = (struct rmq_pop_log_act){
        .kind = kind, .window = rmq_pop_window_at(d->windows, n->place)->id, .group_id = n->group_id, .queue_slot = n->queue_slot,
        .answer = la->answer, .start_offset = n->start_offset, .pop_time_ms = n->pop_time_ms};
    return act;
}

/* 1, 0, or -1: there is no room. */
static int waits(struct rmq_pop_desk *d, const struct rmq_pop_log_named *n, int64_t offset, uint64_t bits)
{
    if (!d->log_acks || !d->log_acks->room.revive_queues ||
        !rmq_pop_in_log(d->windows, n->place, n->start_offset, n->pop_time_ms, offset, bits))
        return 0;
    return rmq_pop_log_has_room(d->log_acks, 1) ? 1 : -1;
}

int rmq_pop_log_ack(struct rmq_pop_desk *d, const struct rmq_pop_log_named *n, int64_t offset, uint64_t bits)
{
    int result = waits(d, n, offset, bits);
    if (result != 1)
        return result;
    struct rmq_pop_log_act *act = add_act(d, n, RMQ_POP_LOG_ACK);
    act->offset = offset;
    act->bits = bits;
    return 1;
}

int rmq_pop_log_change(struct rmq_pop_desk *d, const struct rmq_pop_log_named *n, int64_t offset, const struct rmq_pop_give *give)
{
    int result = waits(d, n, offset, 1);
    if (result != 1)
        return result;
    struct rmq_pop_log_act *act = add_act(d, n, RMQ_POP_LOG_CHANGE);
    act->offset = offset;
    act->bits = 1;
    act->give = *give;
    act->give.pop_time_ms = rmq_pop_time_for(d->windows, &n->place, &offset, 1, give->pop_time_ms);
    act->give.in_log = 1;
    return 1;
}

void rmq_pop_log_end(struct rmq_pop_log_acks *la, uint32_t window, uint32_t group_id, uint32_t queue_slot,
                     const struct rmq_pop_log_record *record)
{
    if (!la->room.revive_queues || la->to - la->ended == RMQ_POP_LOG_ACTS_MAX)
        return;
    *rmq_pop_log_act_at(la, la->to++) = (struct rmq_pop_log_act){
        .kind = RMQ_POP_LOG_END, .window = window, .group_id = group_id, .queue_slot = queue_slot, .answer = RMQ_NONE,
        .start_offset = record->start, .offset = record->offsets[0],
        .give = {.pop_time_ms = record->pop_time_ms, .invisible_ms = (uint32_t)record->invisible_ms,
                 .revive_queue = (uint16_t)record->revive_queue}};
}

int rmq_pop_log_wait(struct rmq_pop_desk *d, int32_t code)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    if (!la || la->answer == RMQ_NONE)
        return 0;
    struct rmq_pop_log_answer *answer = &la->answers[la->answer];
    answer->ask = d->row.ask;
    answer->asked = d->row.asked;
    answer->code = code;
    la->answer = RMQ_NONE;
    return 1;
}

/* --- what is stored ------------------------------------------------------------------------------------------------------- */

void rmq_pop_log_stored(struct rmq_pop_log_acks *la, const struct rmq_completion *done)
{
    la->flying--;
    if (done->bytes)
        return;
    rmq_pop_log_act_at(la, done->token & ~RMQ_POP_LOG_TOKEN)->refused = 1;
    la->refused++;
    la->refused_cause = done->cause ? done->cause : (uint32_t)done->code;
}

static void end_ack(struct rmq_pop_desk *d, const struct rmq_pop_log_act *act, uint32_t place)
{
    uint32_t done = 0;
    if (place != RMQ_NONE)
        rmq_pop_ack(d->windows, place, act->start_offset, act->pop_time_ms, act->offset, act->bits, &done);
    rmq_pop_count_acked(d, act->pop_time_ms, done);
    rmq_pop_count(d, RMQ_POP_COUNT_ACKS_LATE, (uint64_t)__builtin_popcountll(act->bits) - done);
}

/* The check point of a change without effect may not stay open in the log. One that an entry has is another change's. */
static void undo(struct rmq_pop_desk *d, const struct rmq_pop_log_act *change, uint32_t place)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    if (!change->is_written || place == RMQ_NONE ||
        rmq_pop_in_log(d->windows, place, change->offset, change->give.pop_time_ms, change->offset, 1))
        return;
    struct rmq_pop_log_act *act = rmq_pop_log_act_at(la, la->to++); /* the place of the change is free */
    *act = *change;
    act->kind = RMQ_POP_LOG_END;
    act->answer = RMQ_NONE;
    act->start_offset = change->offset;
}

static void end_change(struct rmq_pop_desk *d, const struct rmq_pop_log_act *act, uint32_t place, const struct rmq_pop_log_answer *answer)
{
    struct rmq_pop_give give = act->give;
    int64_t start = act->offset;
    int result = place == RMQ_NONE ? RMQ_POP_UNKNOWN : -ENOSPC;
    if (act->refused) {
        rmq_pop_put_code(d, &answer->ask, &answer->asked, 1, NO_RECORD);
        return;
    }
    if (place != RMQ_NONE && rmq_pop_has_room(d))
        result = rmq_pop_change(d->windows, place, act->start_offset, act->pop_time_ms, start, &give);
    if (result != RMQ_POP_DONE)
        undo(d, act, place);
    if (result < 0) {
        rmq_pop_put_code(d, &answer->ask, &answer->asked, 1, NO_ENTRY);
        return;
    }
    int64_t changed_ms = result == RMQ_POP_DONE || place == RMQ_NONE ? -1 : rmq_pop_changed_at(d->windows, place, start, &give);
    rmq_pop_count(d, result == RMQ_POP_DONE ? RMQ_POP_COUNT_CHANGES : RMQ_POP_COUNT_ACKS_LATE, 1);
    rmq_pop_put_change(d, &answer->ask, &answer->asked, changed_ms < 0 ? give.pop_time_ms : changed_ms, give.invisible_ms,
                       give.revive_queue);
}

/* 1, or 0: there is no room for its answer, and nothing is done. */
static int end_act(struct rmq_pop_desk *d, const struct rmq_pop_log_act *act)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    if (act->kind == RMQ_POP_LOG_END)
        return 1;
    struct rmq_pop_log_answer *answer = &la->answers[act->answer];
    uint32_t place = rmq_pop_window_place(d->windows, act->window), number = act->answer;
    if (answer->acts == 1 && rmq_pop_room(d, answer->ask.role) < ANSWER_BYTES)
        return 0;
    if (act->kind == RMQ_POP_LOG_ACK)
        end_ack(d, act, place);
    else
        end_change(d, act, place, answer);
    if (--answer->acts)
        return 1;
    if (act->kind == RMQ_POP_LOG_ACK && answer->code >= 0)
        rmq_pop_put_code(d, &answer->ask, &answer->asked, answer->code, NULL);
    free_answer(la, number);
    return 1;
}

/* 1, or 0: an answer waits for room. */
static int end_stored(struct rmq_pop_desk *d)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    while (la->ended < la->sent) {
        struct rmq_pop_log_act act = *rmq_pop_log_act_at(la, la->ended++);
        if (end_act(d, &act))
            continue;
        la->ended--;
        break;
    }
    la->lacks_room = la->ended < la->sent;
    return !la->lacks_room;
}

/* --- what waits ----------------------------------------------------------------------------------------------------------- */

static void submit(struct rmq_pop_desk *d)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    struct rmq_request requests[RMQ_POP_LOG_BATCH];
    const struct rmq_ring *ring = &rmq_port_at(d->plane, la->port)->request;
    uint64_t room = rmq_ring_room(ring, ring->head); /* only this process submits */
    la->room.now_ms = d->now_ms;
    uint32_t made = rmq_pop_log_batch(la, d->plane, d->windows, requests, room < RMQ_POP_LOG_BATCH ? (uint32_t)room : RMQ_POP_LOG_BATCH);
    uint32_t accepted = rmq_port_submit(d->plane, la->port, requests, made);
    RMQ_INVARIANT(accepted == made, accepted, made); /* there was room in the ring */
    la->flying = made;
    la->records += made;
}

/* Acts whose messages have got copies meanwhile need no record, so a batch may be empty. */
void rmq_pop_log_turn(struct rmq_pop_desk *d)
{
    struct rmq_pop_log_acks *la = d->log_acks;
    while (la && !la->flying && end_stored(d) && la->sent < la->to && !la->is_held) {
        submit(d);
        if (la->sent == la->ended)
            return; /* the ring is full */
    }
}
