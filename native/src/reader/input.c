#include "reader/input.h"

#include <stdlib.h>

#include "reader/eviction_rules.h"

void rmq_input_forget(struct rmq_arena *a, struct rmq_input *input)
{
    rmq_spans_forget(a, &input->spans);
    free(input->early);
    input->early = NULL;
    rmq_frame_ref_release(a, &input->block);
    input->frame_bytes = input->filled = input->head_length = 0;
    input->stall = 0;
}

int rmq_input_lateness(const struct rmq_input *input, uint32_t timeout_ms, uint32_t time_ms, int64_t now_ms)
{
    if ((!input->head_length && !input->frame_bytes) || input->stall & ~RMQ_STALL_ROOM)
        return RMQ_FRAME_ON_TIME;
    uint32_t there = input->frame_bytes ? input->filled : input->head_length;
    return rmq_frame_lateness(timeout_ms, time_ms, there, (uint64_t)(now_ms - input->begun_ms));
}

static uint32_t weight(const struct rmq_input *input, int64_t now_ms)
{
    uint32_t wanted = input->frame_bytes ? input->frame_bytes : input->room_bytes;
    return rmq_waiting_weight(wanted, input->taken_ms != 0, (uint64_t)(now_ms - input->taken_ms));
}

uint64_t rmq_input_buffer_rank(const struct rmq_input *input, int64_t unread_ms, int64_t waits_since_ms, int64_t now_ms)
{
    if (!(input->stall & (RMQ_STALL_OUTPUT | RMQ_STALL_ROOM)))
        return 0;
    int reads_not = input->stall & RMQ_STALL_OUTPUT && unread_ms >= 0;
    uint64_t idle_ms = (uint64_t)(reads_not ? unread_ms : now_ms - waits_since_ms);
    return rmq_buffer_victim_rank(rmq_spans_buffers(&input->spans), reads_not ? 0 : weight(input, now_ms), idle_ms);
}

uint64_t rmq_input_block_rank(const struct rmq_input *input, const struct rmq_arena *a, uint32_t wanted, int64_t waits_since_ms,
                              int64_t now_ms)
{
    if (!input->frame_bytes || input->stall & ~RMQ_STALL_ROOM)
        return 0;
    int crumb;
    if (input->stall) { /* a frame that waits, too: when nothing comes free by itself, and large ones for small ones */
        int is_stuck = now_ms - a->block_freed_ms > RMQ_FRAME_FLOOR_MS;
        if (!is_stuck && !(rmq_block_is_large(input->frame_bytes) && !rmq_block_is_large(wanted)))
            return 0;
        uint64_t waited_ms = (uint64_t)(now_ms - waits_since_ms);
        return rmq_waiting_victim_rank(weight(input, now_ms), waited_ms, rmq_block_run(a, &input->block, wanted, &crumb));
    }
    uint32_t behind = rmq_frame_behind(input->frame_bytes, input->filled, (uint64_t)(now_ms - input->begun_ms));
    if (!behind)
        return 0;
    uint32_t run = rmq_block_run(a, &input->block, wanted, &crumb);
    return rmq_block_victim_rank(behind, run, crumb);
}
