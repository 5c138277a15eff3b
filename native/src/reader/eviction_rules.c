/* The rules of eviction_rules.h. */
#include "reader/eviction_rules.h"

#define FIRST_BYTES 16384u /* of a frame, while there is plenty */
#define FIRST_FACTOR 16u
#define WHOLE 1000u        /* a share, in thousandths */
#define TOLERATED 20u      /* of these: nearly all of the frame has come */
#define WEIGHT_OF_MS 16384u /* bytes */
#define UNPROVEN (1u << 30)
#define IDLE_BITS 24

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint32_t rmq_frame_first_bytes(uint32_t total, uint32_t there, int many)
{
    uint64_t first = there ? there : 1;
    if (many)
        first = first * FIRST_FACTOR > FIRST_BYTES ? first * FIRST_FACTOR : FIRST_BYTES;
    return (uint32_t)least(first, total);
}

uint32_t rmq_frame_time_ms(uint32_t timeout_ms, uint32_t free, uint32_t all)
{
    uint64_t share = all ? least(WHOLE, 2ull * WHOLE * free / all) : WHOLE;
    uint64_t time_ms = timeout_ms * (share * share * share / (WHOLE * WHOLE)) / WHOLE;
    return (uint32_t)least(timeout_ms, time_ms > RMQ_FRAME_FLOOR_MS ? time_ms : RMQ_FRAME_FLOOR_MS);
}

int rmq_frame_lateness(uint32_t timeout_ms, uint32_t time_ms, uint32_t there, uint64_t taken_ms)
{
    if (taken_ms > timeout_ms)
        return RMQ_FRAME_LATE;
    return taken_ms > (uint64_t)time_ms + there / RMQ_FRAME_PACE ? RMQ_FRAME_SHORT : RMQ_FRAME_ON_TIME;
}

uint32_t rmq_frame_behind(uint32_t total, uint32_t there, uint64_t taken_ms)
{
    if (taken_ms <= RMQ_FRAME_GRACE_MS)
        return 0;
    uint64_t due = least(total, least(taken_ms, UINT32_MAX) * RMQ_FRAME_PACE);
    uint32_t missing = there < due ? (uint32_t)((due - there) * WHOLE / due) : 0;
    return missing > TOLERATED ? missing : 0;
}

uint64_t rmq_block_victim_rank(uint32_t behind, uint32_t run, int crumb)
{
    if (!behind || !run || (crumb && behind < WHOLE - WHOLE / 10))
        return 0;
    return (uint64_t)(crumb ? 1 : 2 + behind / (WHOLE / 10)) << 48 | (uint64_t)run << 16 | behind;
}

uint64_t rmq_waiting_victim_rank(uint32_t weight, uint64_t waited_ms, uint32_t run)
{
    return run && waited_ms > RMQ_FRAME_FLOOR_MS ? weight : 0;
}

uint32_t rmq_waiting_weight(uint32_t wanted, int has_sent, uint64_t since_ms)
{
    uint32_t weight = (uint32_t)least(wanted + least(since_ms, UINT16_MAX) * WEIGHT_OF_MS, UNPROVEN - 1);
    return has_sent ? weight : UNPROVEN + wanted;
}

uint64_t rmq_buffer_victim_rank(uint32_t buffers, uint32_t weight, uint64_t idle_ms)
{
    if (!buffers)
        return 0;
    uint64_t kind = weight ? 1 : idle_ms > RMQ_FRAME_GRACE_MS ? 3 : 2;
    return kind << 60 | (uint64_t)(weight ? weight : buffers) << IDLE_BITS | least(idle_ms, (1u << IDLE_BITS) - 1);
}

uint64_t rmq_answer_victim_rank(uint64_t memory, uint64_t idle_ms)
{
    return (idle_ms > RMQ_FRAME_GRACE_MS ? 1ull << 62 : 0) | least(memory, (1ull << 62) - 1);
}
