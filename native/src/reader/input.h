/* input.h: what a connection has sent and no part has taken yet: the frame in the making, and bytes that wait because the
 * connection is stalled. frames.c and stalls.c fill and empty it. Others ask.
 *
 * What stays true:
 * - A frame in the making has `frame_bytes` and a block for `filled` of them, or its first `head_length` bytes are in `head`
 *   and `early`.
 * - Bytes keep their order: the frame in the making, then the spans. Spans wait only as long as `stall` is set.
 * - in_stalled: the connection is named, once, in the list of stalled ones. A connection with `stall` is.
 */
#ifndef RMQ_INPUT_H
#define RMQ_INPUT_H

#include "reader/spans.h"

#define RMQ_STALL_RING 1   /* request ring full */
#define RMQ_STALL_ROOM 2   /* no block for a straddling frame */
#define RMQ_STALL_OUTPUT 4 /* its answers are not read fast enough */
#define RMQ_STALL_COLD 8   /* an answerer has enough of its frames */
#define RMQ_STALL_TURN 16  /* it has had its part of this turn */

struct rmq_input {
    uint8_t stall;         /* RMQ_STALL_*: parsing waits */
    uint8_t spoke : 1, in_stalled : 1, waited : 1;
    uint8_t head[4];
    uint32_t head_length;  /* of head and early */
    uint32_t frame_bytes;  /* 0: no block yet */
    uint32_t filled;
    uint32_t room_bytes;   /* of the frame that waits for a block, in RMQ_STALL_ROOM */
    struct rmq_frame_ref block;
    int64_t taken_ms;      /* a whole frame was taken last, 0 = none was */
    int64_t begun_ms;      /* the frame in the making, less the time that it stood still */
    uint8_t *early;        /* its first bytes, with the head, while they are few: they hold nothing of the arena */
    struct rmq_spans spans;
};

static inline void rmq_input_begin(struct rmq_input *input)
{
    input->stall = input->spoke = input->waited = 0; /* in_stalled outlives a connection, as the list does */
    input->head_length = input->frame_bytes = input->filled = 0;
    input->block = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
    input->taken_ms = 0;
    rmq_spans_begin(&input->spans);
}

void rmq_input_forget(struct rmq_arena *a, struct rmq_input *input);

/* One of RMQ_STALL_* of `reasons` holds it up. */
static inline int rmq_input_waits(const struct rmq_input *input, unsigned reasons) { return (input->stall & reasons) != 0; }

static inline int rmq_input_is_stalled(const struct rmq_input *input) { return input->stall != 0; }

/* A whole frame of it has been read. */
static inline int rmq_input_spoke(const struct rmq_input *input) { return input->spoke; }

/* The room that it waits for, in RMQ_STALL_ROOM. */
static inline uint32_t rmq_input_room_bytes(const struct rmq_input *input) { return input->room_bytes; }

/* The reader lacked memory and did not receive: this time does not count for the frame in the making. */
static inline void rmq_input_stood_still(struct rmq_input *input, int64_t ms) { input->begun_ms += ms; }

/* RMQ_FRAME_*: whether its frame in the making has had its time. `time_ms`: as memory allows now. */
int rmq_input_lateness(const struct rmq_input *input, uint32_t timeout_ms, uint32_t time_ms, int64_t now_ms);

/* Its rank when receive buffers run short, 0 = none. `unread_ms`: since its client has taken bytes, -1 = it has no answers. */
uint64_t rmq_input_buffer_rank(const struct rmq_input *input, int64_t unread_ms, int64_t waits_since_ms, int64_t now_ms);

/* Its rank when a frame of another connection waits for a block of `wanted` bytes, 0 = none. */
uint64_t rmq_input_block_rank(const struct rmq_input *input, const struct rmq_arena *a, uint32_t wanted, int64_t waits_since_ms,
                              int64_t now_ms);
#endif
