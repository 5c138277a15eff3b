/* reader_receive.c: received bytes -> whole frames. A frame that ends inside its buffer is used in place. A frame that crosses
 * its end goes to a block at once, so that a slow client never pins a shared buffer. A connection that cannot go on (no block,
 * request ring full, its own answers unread) stalls: its bytes wait in spans, its receive is stopped. A connection that has
 * used its share of a turn waits for the next turn.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "reader/reader_state.h"
#include "reader/spans.h"

#define ABSURD_BYTES (256u << 20) /* a length beyond is no frame's, but text or another protocol */

static void stall(struct rmq_reader *r, struct rmq_connection *c, uint8_t reason)
{
    if (!c->stall)
        c->stall_ms = r->context.now_ms;
    c->stall |= reason;
    r->context.counters[RMQ_READ_STALLS] += reason != RMQ_STALL_TURN;
    if (!c->in_stalled) {
        c->in_stalled = 1;
        r->stalled[r->stalled_count++] = rmq_connection_index(&r->connections, c);
    }
}

static void wait_for_turn(struct rmq_reader *r, struct rmq_connection *c)
{
    stall(r, c, RMQ_STALL_TURN);
    r->turn.waits = 1;
}

/* 1 = the connection may go on. */
static int run_frame(struct rmq_reader *r, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                     struct rmq_frame_ref *ref)
{
    if (rmq_output_is_full(&r->outputs, c)) {
        stall(r, c, RMQ_STALL_OUTPUT);
        return 0;
    }
    if (r->turn.units <= 0) {
        wait_for_turn(r, c);
        return 0;
    }
    r->turn.units -= RMQ_TURN_FRAME;
    c->spoke = 1;
    enum rmq_outcome outcome = rmq_frame_process(r, c, frame, length, ref, 0);
    if (outcome == RMQ_OUTCOME_STALL) {
        stall(r, c, rmq_cold_is_full(&r->cold, c) ? RMQ_STALL_COLD : RMQ_STALL_RING);
        return 0;
    }
    c->taken_ms = r->context.now_ms;
    c->stalled_ns = 0; /* another role may have taken the send that waited: the next one's time begins again */
    if (c->state == RMQ_CONNECTION_OPEN)
        return 1;
    rmq_closings_settle(r);
    return 0;
}

/* The block of the connection is complete. */
static int run_block(struct rmq_reader *r, struct rmq_connection *c)
{
    struct rmq_frame_ref ref = c->block;
    uint32_t length = c->frame_bytes;
    uint8_t *frame = rmq_block_at(&r->arena, ref.block);
    c->block.block = RMQ_NONE;
    c->frame_bytes = c->filled = c->head_length = 0;
    int go_on = run_frame(r, c, frame, length, &ref);
    if (c->stall && c->state == RMQ_CONNECTION_OPEN) {
        c->block = ref;
        c->frame_bytes = c->filled = length;
        c->head_length = 4;
        return 0;
    }
    rmq_frame_ref_release(&r->arena, &ref);
    return go_on;
}

static void wait_for_room(struct rmq_reader *r, struct rmq_connection *c, uint32_t bytes)
{
    stall(r, c, RMQ_STALL_ROOM);
    c->room_bytes = bytes;
    if (bytes < r->no_room_bytes)
        r->no_room_bytes = bytes;
}

/* A frame of `total` bytes begins; its first 4 are known, `there` bytes of it have come. 0 = stalled or closed. */
static int begin_block(struct rmq_reader *r, struct rmq_connection *c, uint32_t total, uint32_t there)
{
    if ((total + RMQ_BLOCK_BYTES - 1) / RMQ_BLOCK_BYTES > rmq_block_pages_max(&r->arena)) {
        rmq_closings_close(r, c, RMQ_READ_CLOSED_LARGE);
        return 0;
    }
    uint32_t first = rmq_frame_first_bytes(total, there, rmq_blocks_many(&r->arena));
    if (!rmq_block_take(&r->arena, first, &c->block)) {
        wait_for_room(r, c, first);
        return 0;
    }
    c->frame_bytes = total;
    c->filled = 0;
    c->waited = 0;
    c->partial_ms = r->context.now_ms;
    return 1;
}

/* Whole frame length from its length field, the first 4 of `there` bytes; 0 = impossible, the connection is closed. */
static uint32_t frame_total(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *at, uint32_t there)
{
    uint32_t length = rmq_get32(at);
    if (length < 4 || length > r->context.settings->frame_bytes_max - 4) {
        int is_large = length >= 4 && length < ABSURD_BYTES;
        rmq_junk_close(&r->junk, c, at, there, is_large ? RMQ_READ_CLOSED_LARGE : RMQ_READ_CLOSED_FRAME);
        rmq_closings_settle(r);
        return 0;
    }
    return length + 4;
}

/* Adds the bytes to `early`, which holds a frame's first bytes while they are few. 0 = closed. */
static int gather_early(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    if (!c->early) {
        c->early = malloc(RMQ_FEW_BYTES);
        if (!c->early) {
            rmq_closings_close(r, c, RMQ_READ_CLOSED_MEMORY);
            return 0;
        }
        memcpy(c->early, c->head, c->head_length);
    }
    memcpy(c->early + c->head_length, bytes + *at, end - *at);
    c->head_length += end - *at;
    *at = end;
    return 1;
}

/* Begins a frame that comes in pieces: its length, then its first bytes in `early`, then a block.
 * 0 = stalled or closed; the call is repeated after a stall. */
static int gather(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    if (!c->head_length)
        c->partial_ms = r->context.now_ms;
    while (c->head_length < 4 && *at < end)
        c->head[c->head_length++] = bytes[(*at)++];
    if (c->head_length < 4)
        return 1;
    uint32_t total = frame_total(r, c, c->head, 4);
    if (!total)
        return 0;
    if (c->head_length + (end - *at) < (total < RMQ_FEW_BYTES ? total : RMQ_FEW_BYTES))
        return gather_early(r, c, bytes, at, end);
    if (!begin_block(r, c, total, c->head_length + (end - *at)))
        return 0;
    memcpy(rmq_block_at(&r->arena, c->block.block), c->early ? c->early : c->head, c->head_length);
    c->filled = c->head_length;
    free(c->early);
    c->early = NULL;
    return 1;
}

/* The first part of its memory is full: the frame gets the rest. 0 = stalled. */
static int grow_block(struct rmq_reader *r, struct rmq_connection *c)
{
    if (!rmq_block_grow(&r->arena, &c->block, c->filled, c->frame_bytes)) {
        wait_for_room(r, c, c->frame_bytes);
        return 0;
    }
    if (c->waited) /* for this: its time begins again */
        c->partial_ms = r->context.now_ms;
    c->waited = 0;
    return 1;
}

static int fill_block(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    uint32_t room = c->block.block_pages * RMQ_BLOCK_BYTES;
    if (c->filled == room) {
        if (!grow_block(r, c))
            return 0;
        room = c->block.block_pages * RMQ_BLOCK_BYTES;
    }
    if (room > c->frame_bytes)
        room = c->frame_bytes;
    uint32_t part = room - c->filled < end - *at ? room - c->filled : end - *at;
    memcpy(rmq_block_at(&r->arena, c->block.block) + c->filled, bytes + *at, part);
    c->filled += part;
    *at += part;
    return c->filled < c->frame_bytes || run_block(r, c);
}

/* Bytes [at, end) of a buffer, or of a block or copy where they waited: frames are taken out of these, as if they straddled.
 * Returns how far it came: less than `end` when the connection stalled. */
static uint32_t parse(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_ref *from, uint8_t *copy,
                      uint32_t at,
                      uint32_t end)
{
    int waited = from->buffer == RMQ_NONE;
    uint8_t *bytes = copy     ? copy
                     : waited ? rmq_block_at(&r->arena, from->block)
                              : rmq_buffer_at(&r->arena, from->buffer);
    while (at < end) {
        if (c->frame_bytes) {
            if (!fill_block(r, c, bytes, &at, end))
                return at;
            continue;
        }
        if (c->head_length || end - at < 4) {
            if (!gather(r, c, bytes, &at, end))
                return at;
            continue;
        }
        uint32_t total = frame_total(r, c, bytes + at, end - at);
        if (!total)
            return at;
        if (total > end - at && end - at < RMQ_FEW_BYTES) {
            if (!gather(r, c, bytes, &at, end))
                return at;
            continue;
        }
        if (total > end - at || waited) {
            if (!begin_block(r, c, total, end - at))
                return at;
            continue;
        }
        struct rmq_frame_ref ref = *from;
        if (!run_frame(r, c, bytes + at, total, &ref)) {
            if (!c->stall)
                at += total;
            return at;
        }
        at += total;
    }
    return at;
}

static void received(struct rmq_reader *r, struct rmq_connection *c, uint32_t buffer, uint32_t length)
{
    c->active_ms = r->context.now_ms;
    r->context.counters[RMQ_READ_BYTES_IN] += length;
    uint32_t at = 0;
    if (!c->stall) {
        rmq_turn_begin(&r->turn);
        at = parse(r, c, &(struct rmq_frame_ref){.buffer = buffer, .block = RMQ_NONE}, NULL, 0, length);
        rmq_turn_end(&r->turn);
    }
    c->took_full = length == r->arena.buffer_bytes;
    if (c->state != RMQ_CONNECTION_OPEN || (!c->stall && !c->took_full))
        return;
    if (at < length && rmq_span_push(&r->arena, c, buffer, at, length) < 0)
        rmq_closings_close(r, c, RMQ_READ_CLOSED_MEMORY);
    if (c->state == RMQ_CONNECTION_OPEN && c->receiving && !c->stopping && (c->took_full || c->stall & ~RMQ_STALL_TURN) &&
        rmq_engine_receive_stop(r->context.engine, rmq_connection_tag(&r->connections, c)) == 0)
        c->stopping = 1;
}

void rmq_receive_event(struct rmq_reader *r, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(&r->connections, (uint32_t)(event->tag >> 32));
    int result = event->result;
    if (event->buffer != RMQ_NO_BUFFER)
        rmq_buffer_received(&r->arena, event->buffer);
    if (!event->more)
        c->receiving = 0;
    if (c->state == RMQ_CONNECTION_OPEN) {
        if (result > 0)
            received(r, c, event->buffer, (uint32_t)result);
        else if (result == 0 || (result != -ENOBUFS && result != -ECANCELED && result != -EINTR && result != -EAGAIN))
            rmq_closings_close(r, c, RMQ_READ_CLOSED_PEER);
    }
    if (event->buffer != RMQ_NO_BUFFER)
        rmq_buffer_drop(&r->arena, event->buffer);
    if (c->state == RMQ_CONNECTION_OPEN && !c->receiving && !c->stall) {
        if (result == -ENOBUFS) {
            rmq_buffers_short(&r->arena);
            rmq_connection_starve(&r->connections, c);
        } else {
            rmq_connection_receive_again(&r->connections, c);
        }
    }
}

/* --- stalls ---------------------------------------------------------------------------------------------- */

/* 1 when the connection's received bytes hold some of the last buffers: a stall for write or control then ends. */
static int must_refuse(const struct rmq_reader *r, const struct rmq_connection *c)
{
    return c->buffers_held && rmq_buffers_last(&r->arena) && !r->sends.takes_none;
}

static int may_resume(const struct rmq_reader *r, const struct rmq_connection *c, int blocks_came_free)
{
    int must = must_refuse(r, c);
    if (!must && c->stall & RMQ_STALL_RING && (r->pendings.counts[RMQ_PENDING_APPEND] >= r->pendings.appends_max || r->pendings.counts[RMQ_PENDING_APPEND] + r->pendings.counts[RMQ_PENDING_COLD] >= r->pendings.capacity))
        return 0;
    if (!must && c->stall & RMQ_STALL_COLD && !rmq_cold_has_room(&r->cold, c))
        return 0;
    if (c->stall & RMQ_STALL_OUTPUT && c->output && c->output->bytes > rmq_output_soft_limit(&r->outputs) / 2)
        return 0;
    return !(c->stall & RMQ_STALL_ROOM) || (blocks_came_free && c->room_bytes < r->no_room_bytes);
}

static void resume(struct rmq_reader *r, struct rmq_connection *c)
{
    int for_room = c->stall & RMQ_STALL_ROOM;
    int64_t since_ms = c->stall_ms;
    r->pendings.refuses = must_refuse(r, c);
    c->stall = 0;
    c->waited = for_room != 0;
    if (!for_room) { /* the time for its frame stood still */
        c->partial_ms += r->context.now_ms - since_ms;
        c->active_ms = r->context.now_ms;
    }
    rmq_turn_begin(&r->turn);
    if (c->frame_bytes && c->filled == c->frame_bytes)
        run_block(r, c);
    while (c->state == RMQ_CONNECTION_OPEN && !c->stall && c->span_count) {
        struct rmq_span *span = &c->spans[c->span_head];
        uint32_t end = span->at + span->length;
        uint32_t at = parse(r, c, &span->ref, span->copy, span->at, end);
        if (c->state != RMQ_CONNECTION_OPEN)
            break; /* its spans are forgotten */
        span = &c->spans[c->span_head];
        span->at = at;
        span->length = end - at;
        if (at == end)
            rmq_span_pop(&r->arena, c);
    }
    r->pendings.refuses = 0;
    rmq_turn_end(&r->turn);
    if (for_room && c->stall & RMQ_STALL_ROOM)
        c->stall_ms = since_ms; /* it waits on */
    if (!c->stall)
        rmq_connection_receive_again(&r->connections, c);
}

static void resume_some(struct rmq_reader *r, int blocks_came_free, uint64_t room_most)
{
    uint32_t count = r->stalled_count;
    r->stalled_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, r->stalled[i]);
        int is_left = room_most != UINT64_MAX && (!(c->stall & RMQ_STALL_ROOM) || c->room_bytes > room_most);
        if (c->state != RMQ_CONNECTION_OPEN || !c->stall) {
            c->in_stalled = 0;
        } else if (is_left || !may_resume(r, c, blocks_came_free)) {
            r->stalled[r->stalled_count++] = rmq_connection_index(&r->connections, c);
        } else {
            c->in_stalled = 0;
            resume(r, c); /* may put it back */
        }
    }
}

/* Small frames get a block before large ones that wait longer. Each try searches all blocks. So after a failed search no other
 * one of that size or above is made in this round. */
void rmq_receive_resume(struct rmq_reader *r)
{
    int blocks_came_free = r->arena.blocks_came_free;
    r->arena.blocks_came_free = 0; /* blocks that the resumed connections give back are for the next round */
    r->no_room_bytes = UINT32_MAX;
    if (blocks_came_free && r->room_least)
        resume_some(r, 1, 2 * (uint64_t)r->room_least);
    resume_some(r, blocks_came_free, UINT64_MAX);
}
