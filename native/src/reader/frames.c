#include "reader/frames.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "reader/eviction_rules.h"

#define ABSURD_BYTES (256u << 20) /* a length beyond is no frame's, but text or another protocol */

int rmq_frames_open(struct rmq_frames *frames, struct rmq_sends *sends, struct rmq_pulls *pulls, struct rmq_closings *closings)
{
    struct rmq_connections *connections = closings->connections;
    *frames = (struct rmq_frames){
        .context = closings->context,
        .arena = closings->arena,
        .connections = connections,
        .outputs = closings->outputs,
        .pendings = sends->pendings,
        .cold = closings->cold,
        .sends = sends,
        .pulls = pulls,
        .closings = closings,
        .turn = pulls->turn,
        .junk = {.context = closings->context, .connections = connections},
        .stalled = calloc(connections->max, sizeof *frames->stalled),
    };
    return frames->stalled ? 0 : -ENOMEM;
}

void rmq_frames_close(struct rmq_frames *frames) { free(frames->stalled); }

static void stall(struct rmq_frames *frames, struct rmq_connection *c, uint8_t reason)
{
    struct rmq_input *input = &c->input;
    if (!input->stall)
        rmq_connection_note_wait(c, frames->context->now_ms);
    input->stall |= reason;
    frames->context->counters[RMQ_READ_STALLS] += reason != RMQ_STALL_TURN;
    if (!input->in_stalled) {
        input->in_stalled = 1;
        frames->stalled[frames->stalled_count++] = rmq_connection_index(frames->connections, c);
    }
}

static void wait_for_turn(struct rmq_frames *frames, struct rmq_connection *c)
{
    stall(frames, c, RMQ_STALL_TURN);
    frames->turn->waits = 1;
}

/* 1 = the connection may go on. */
static int run_frame(struct rmq_frames *frames, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                     struct rmq_frame_ref *ref)
{
    if (rmq_output_is_full(frames->outputs, c)) {
        stall(frames, c, RMQ_STALL_OUTPUT);
        return 0;
    }
    if (frames->turn->units <= 0) {
        wait_for_turn(frames, c);
        return 0;
    }
    frames->turn->units -= RMQ_TURN_FRAME;
    c->input.spoke = 1;
    enum rmq_outcome outcome = rmq_frame_process(frames, c, frame, length, ref, 0, RMQ_REDO_UNCHANGED);
    if (outcome == RMQ_OUTCOME_STALL) {
        stall(frames, c, rmq_cold_awaits(c) != RMQ_NONE ? RMQ_STALL_COLD : RMQ_STALL_RING);
        return 0;
    }
    c->input.taken_ms = frames->context->now_ms;
    rmq_send_waits_no_more(c); /* another role may have taken the send that waited: the next one's time begins again */
    if (c->state == RMQ_CONNECTION_OPEN)
        return 1;
    rmq_closings_settle(frames->closings);
    return 0;
}

int rmq_frames_run_block(struct rmq_frames *frames, struct rmq_connection *c)
{
    struct rmq_input *input = &c->input;
    struct rmq_frame_ref ref = input->block;
    uint32_t length = input->frame_bytes;
    uint8_t *frame = rmq_block_at(frames->arena, ref.block);
    input->block.block = RMQ_NONE;
    input->frame_bytes = input->filled = input->head_length = 0;
    int go_on = run_frame(frames, c, frame, length, &ref);
    if (input->stall && c->state == RMQ_CONNECTION_OPEN) {
        input->block = ref;
        input->frame_bytes = input->filled = length;
        input->head_length = 4;
        return 0;
    }
    rmq_frame_ref_release(frames->arena, &ref);
    return go_on;
}

static void wait_for_room(struct rmq_frames *frames, struct rmq_connection *c, uint32_t bytes)
{
    stall(frames, c, RMQ_STALL_ROOM);
    c->input.room_bytes = bytes;
    if (bytes < frames->no_room_bytes)
        frames->no_room_bytes = bytes;
}

/* A frame of `total` bytes begins; its first 4 are known, `there` bytes of it have come. 0 = stalled or closed. */
static int begin_block(struct rmq_frames *frames, struct rmq_connection *c, uint32_t total, uint32_t there)
{
    struct rmq_input *input = &c->input;
    if ((total + RMQ_BLOCK_BYTES - 1) / RMQ_BLOCK_BYTES > rmq_block_pages_max(frames->arena)) {
        rmq_closings_close(frames->closings, c, RMQ_READ_CLOSED_LARGE);
        return 0;
    }
    uint32_t first = rmq_frame_first_bytes(total, there, rmq_blocks_many(frames->arena));
    if (!rmq_block_take(frames->arena, first, &input->block)) {
        wait_for_room(frames, c, first);
        return 0;
    }
    input->frame_bytes = total;
    input->filled = 0;
    input->waited = 0;
    input->begun_ms = frames->context->now_ms;
    return 1;
}

/* Whole frame length from its length field, the first 4 of `there` bytes; 0 = impossible, the connection is closed. */
static uint32_t frame_total(struct rmq_frames *frames, struct rmq_connection *c, const uint8_t *at, uint32_t there)
{
    uint32_t length = rmq_get32(at);
    if (length < 4 || length > frames->context->settings->frame_bytes_max - 4) {
        int is_large = length >= 4 && length < ABSURD_BYTES;
        rmq_junk_close(&frames->junk, c, at, there, is_large ? RMQ_READ_CLOSED_LARGE : RMQ_READ_CLOSED_FRAME);
        rmq_closings_settle(frames->closings);
        return 0;
    }
    return length + 4;
}

/* Adds the bytes to `early`, which holds a frame's first bytes while they are few. 0 = closed. */
static int gather_early(struct rmq_frames *frames, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    struct rmq_input *input = &c->input;
    if (!input->early) {
        input->early = malloc(RMQ_FEW_BYTES);
        if (!input->early) {
            rmq_closings_close(frames->closings, c, RMQ_READ_CLOSED_MEMORY);
            return 0;
        }
        memcpy(input->early, input->head, input->head_length);
    }
    memcpy(input->early + input->head_length, bytes + *at, end - *at);
    input->head_length += end - *at;
    *at = end;
    return 1;
}

/* Begins a frame that comes in pieces: its length, then its first bytes in `early`, then a block.
 * 0 = stalled or closed; the call is repeated after a stall. */
static int gather(struct rmq_frames *frames, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    struct rmq_input *input = &c->input;
    if (!input->head_length)
        input->begun_ms = frames->context->now_ms;
    while (input->head_length < 4 && *at < end)
        input->head[input->head_length++] = bytes[(*at)++];
    if (input->head_length < 4)
        return 1;
    uint32_t total = frame_total(frames, c, input->head, 4);
    if (!total)
        return 0;
    if (input->head_length + (end - *at) < (total < RMQ_FEW_BYTES ? total : RMQ_FEW_BYTES))
        return gather_early(frames, c, bytes, at, end);
    if (!begin_block(frames, c, total, input->head_length + (end - *at)))
        return 0;
    memcpy(rmq_block_at(frames->arena, input->block.block), input->early ? input->early : input->head, input->head_length);
    input->filled = input->head_length;
    free(input->early);
    input->early = NULL;
    return 1;
}

/* The first part of its memory is full: the frame gets the rest. 0 = stalled. */
static int grow_block(struct rmq_frames *frames, struct rmq_connection *c)
{
    struct rmq_input *input = &c->input;
    if (!rmq_block_grow(frames->arena, &input->block, input->filled, input->frame_bytes)) {
        wait_for_room(frames, c, input->frame_bytes);
        return 0;
    }
    if (input->waited) /* for this: its time begins again */
        input->begun_ms = frames->context->now_ms;
    input->waited = 0;
    return 1;
}

static int fill_block(struct rmq_frames *frames, struct rmq_connection *c, const uint8_t *bytes, uint32_t *at, uint32_t end)
{
    struct rmq_input *input = &c->input;
    uint32_t room = input->block.block_pages * RMQ_BLOCK_BYTES;
    if (input->filled == room) {
        if (!grow_block(frames, c))
            return 0;
        room = input->block.block_pages * RMQ_BLOCK_BYTES;
    }
    if (room > input->frame_bytes)
        room = input->frame_bytes;
    uint32_t part = room - input->filled < end - *at ? room - input->filled : end - *at;
    memcpy(rmq_block_at(frames->arena, input->block.block) + input->filled, bytes + *at, part);
    input->filled += part;
    *at += part;
    return input->filled < input->frame_bytes || rmq_frames_run_block(frames, c);
}

uint32_t rmq_frames_parse(struct rmq_frames *frames, struct rmq_connection *c, const struct rmq_frame_ref *from, uint8_t *copy,
                          uint32_t at, uint32_t end)
{
    struct rmq_input *input = &c->input;
    int waited = from->buffer == RMQ_NONE;
    uint8_t *bytes = copy     ? copy
                     : waited ? rmq_block_at(frames->arena, from->block)
                              : rmq_buffer_at(frames->arena, from->buffer);
    while (at < end) {
        if (input->frame_bytes) {
            if (!fill_block(frames, c, bytes, &at, end))
                return at;
            continue;
        }
        if (input->head_length || end - at < 4) {
            if (!gather(frames, c, bytes, &at, end))
                return at;
            continue;
        }
        uint32_t total = frame_total(frames, c, bytes + at, end - at);
        if (!total)
            return at;
        if (total > end - at && end - at < RMQ_FEW_BYTES) {
            if (!gather(frames, c, bytes, &at, end))
                return at;
            continue;
        }
        if (total > end - at || waited) {
            if (!begin_block(frames, c, total, end - at))
                return at;
            continue;
        }
        struct rmq_frame_ref ref = *from;
        if (!run_frame(frames, c, bytes + at, total, &ref)) {
            if (!input->stall)
                at += total;
            return at;
        }
        at += total;
    }
    return at;
}

static void received(struct rmq_frames *frames, struct rmq_connection *c, uint32_t buffer, uint32_t length)
{
    struct rmq_input *input = &c->input;
    rmq_connection_note_active(c, frames->context->now_ms);
    frames->context->counters[RMQ_READ_BYTES_IN] += length;
    uint32_t at = 0;
    if (!input->stall) {
        rmq_turn_begin(frames->turn);
        at = rmq_frames_parse(frames, c, &(struct rmq_frame_ref){.buffer = buffer, .block = RMQ_NONE}, NULL, 0, length);
        rmq_turn_end(frames->turn);
    }
    rmq_connection_note_full(c, length == frames->arena->buffer_bytes);
    if (c->state != RMQ_CONNECTION_OPEN || (!input->stall && !c->took_full))
        return;
    if (at < length && rmq_span_push(frames->arena, &input->spans, buffer, at, length) < 0)
        rmq_closings_close(frames->closings, c, RMQ_READ_CLOSED_MEMORY);
    if (c->state == RMQ_CONNECTION_OPEN && (c->took_full || input->stall & ~RMQ_STALL_TURN))
        rmq_connection_receive_stop(frames->connections, c);
}

void rmq_receive_event(struct rmq_frames *frames, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(frames->connections, (uint32_t)(event->tag >> 32));
    int result = event->result;
    if (event->buffer != RMQ_NO_BUFFER)
        rmq_buffer_received(frames->arena, event->buffer);
    if (!event->more)
        rmq_connection_receive_ended(c);
    if (c->state == RMQ_CONNECTION_OPEN) {
        if (result > 0)
            received(frames, c, event->buffer, (uint32_t)result);
        else if (result == 0 || (result != -ENOBUFS && result != -ECANCELED && result != -EINTR && result != -EAGAIN))
            rmq_closings_close(frames->closings, c, RMQ_READ_CLOSED_PEER);
    }
    if (event->buffer != RMQ_NO_BUFFER)
        rmq_buffer_drop(frames->arena, event->buffer);
    if (c->state == RMQ_CONNECTION_OPEN && !c->receiving && !c->input.stall) {
        if (result == -ENOBUFS) {
            rmq_buffers_short(frames->arena);
            rmq_connection_starve(frames->connections, c);
        } else {
            rmq_connection_receive_again(frames->connections, c);
        }
    }
}
