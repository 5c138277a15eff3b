/* stalls.c: connections that wait to go on. */
#include <stdlib.h>

#include "reader/frames.h"

/* 1 when the connection's received bytes hold some of the last buffers: a stall for write or control then ends. */
static int must_refuse(const struct rmq_frames *frames, const struct rmq_connection *c)
{
    return rmq_spans_buffers(&c->input.spans) && rmq_buffers_last(frames->arena) && !frames->sends->takes_none;
}

static int may_resume(const struct rmq_frames *frames, const struct rmq_connection *c, int blocks_came_free)
{
    int must = must_refuse(frames, c);
    if (!must && c->input.stall & RMQ_STALL_RING && rmq_pendings_are_full(frames->pendings))
        return 0;
    if (!must && c->input.stall & RMQ_STALL_COLD && !rmq_cold_has_room(frames->cold, c))
        return 0;
    if (c->input.stall & RMQ_STALL_OUTPUT && !rmq_output_has_room(frames->outputs, c))
        return 0;
    return !(c->input.stall & RMQ_STALL_ROOM) || (blocks_came_free && c->input.room_bytes < frames->no_room_bytes);
}

static void resume(struct rmq_frames *frames, struct rmq_connection *c)
{
    struct rmq_input *input = &c->input;
    int for_room = input->stall & RMQ_STALL_ROOM;
    int64_t since_ms = c->waits_since_ms;
    frames->pendings->refuses = must_refuse(frames, c);
    input->stall = 0;
    rmq_cold_goes_on(c);
    input->waited = for_room != 0;
    if (!for_room) { /* the time for its frame stood still */
        rmq_input_stood_still(input, frames->context->now_ms - since_ms);
        rmq_connection_note_active(c, frames->context->now_ms);
    }
    rmq_turn_begin(frames->turn);
    if (input->frame_bytes && input->filled == input->frame_bytes)
        rmq_frames_run_block(frames, c);
    struct rmq_span *span;
    while (c->state == RMQ_CONNECTION_OPEN && !input->stall && (span = rmq_span_first(&input->spans)) != NULL) {
        uint32_t end = span->at + span->length;
        uint32_t at = rmq_frames_parse(frames, c, &span->ref, span->copy, span->at, end);
        if (c->state != RMQ_CONNECTION_OPEN)
            break; /* its spans are forgotten */
        span = rmq_span_first(&input->spans);
        span->at = at;
        span->length = end - at;
        if (at == end)
            rmq_span_pop(frames->arena, &input->spans);
    }
    frames->pendings->refuses = 0;
    rmq_turn_end(frames->turn);
    if (for_room && input->stall & RMQ_STALL_ROOM)
        rmq_connection_note_wait(c, since_ms); /* it waits on */
    if (!input->stall)
        rmq_connection_receive_again(frames->connections, c);
}

static void resume_some(struct rmq_frames *frames, int blocks_came_free, uint64_t room_most)
{
    uint32_t count = frames->stalled_count;
    frames->stalled_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_connection *c = rmq_connection_at(frames->connections, frames->stalled[i]);
        int is_left = room_most != UINT64_MAX && (!(c->input.stall & RMQ_STALL_ROOM) || c->input.room_bytes > room_most);
        if (c->state != RMQ_CONNECTION_OPEN || !c->input.stall) {
            c->input.in_stalled = 0;
        } else if (is_left || !may_resume(frames, c, blocks_came_free)) {
            frames->stalled[frames->stalled_count++] = rmq_connection_index(frames->connections, c);
        } else {
            c->input.in_stalled = 0;
            resume(frames, c); /* may put it back */
        }
    }
}

/* Small frames get a block before large ones that wait longer. Each try searches all blocks. So after a failed search no other
 * one of that size or above is made in this round. */
void rmq_stalls_resume(struct rmq_frames *frames)
{
    int blocks_came_free = rmq_blocks_came_free(frames->arena); /* those that resumed connections free are for the next round */
    frames->no_room_bytes = UINT32_MAX;
    if (blocks_came_free && frames->room_least)
        resume_some(frames, 1, 2 * (uint64_t)frames->room_least);
    resume_some(frames, blocks_came_free, UINT64_MAX);
}

struct rmq_connection *rmq_stalls_first_waiting(struct rmq_frames *frames, struct rmq_connection **least)
{
    struct rmq_connection *first = NULL;
    *least = NULL;
    for (uint32_t i = 0; i < frames->stalled_count; i++) {
        struct rmq_connection *c = rmq_connection_at(frames->connections, frames->stalled[i]);
        if (c->state != RMQ_CONNECTION_OPEN || !(c->input.stall & RMQ_STALL_ROOM))
            continue;
        if (!first || c->waits_since_ms < first->waits_since_ms)
            first = c;
        if (!*least || c->input.room_bytes < (*least)->input.room_bytes)
            *least = c;
    }
    frames->room_least = *least ? (*least)->input.room_bytes : 0;
    return first;
}

/* Receives that ended for want of buffers start again once some are there, as many as three quarters of these suffice for: a
 * connection that has not waited finds one of the others. */
void rmq_starved_resume(struct rmq_frames *frames)
{
    uint32_t waiting[256], lent = frames->arena->buffers_lent, most = lent - lent / 4;
    uint32_t count = rmq_connections_starved(frames->connections, waiting, most < 256 ? most : 256);
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_connection *c = rmq_connection_at(frames->connections, waiting[i]);
        if (c->input.stall || c->receiving)
            continue;
        rmq_input_stood_still(&c->input, frames->context->now_ms - c->waits_since_ms);
        rmq_connection_receive(frames->connections, c);
    }
}
