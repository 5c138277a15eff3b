/* ha_frames.h: the log cut into RocketMQ's HA frames: i64 offset, i32 length, body (`DefaultHAConnection`). No IO.
 *
 * What stays true: a frame lies in one file of the log, and `done` is at most its header and body.
 */
#ifndef RMQ_HA_FRAMES_H
#define RMQ_HA_FRAMES_H

#include <stdint.h>

#define RMQ_HA_HEADER_BYTES 12

/* Length 0: a heartbeat, which names the next offset. */
struct rmq_ha_frame {
    uint64_t offset;
    uint32_t length;
    uint32_t done;   /* bytes that the socket has taken, header included */
};

struct rmq_ha_cut {
    uint64_t from, to;       /* part of the log to be sent */
    int64_t budget_bytes;    /* the last frame may go beyond it */
    uint64_t segment_bytes;  /* no frame crosses a file's end, nor do several together */
    uint32_t transfer_bytes; /* longest body */
};

/* Fills up to `room` frames; their number. */
int rmq_ha_frames_cut(const struct rmq_ha_cut *cut, struct rmq_ha_frame *frames, int room);

void rmq_ha_frame_header(const struct rmq_ha_frame *frame, uint8_t out[RMQ_HA_HEADER_BYTES]);

static inline uint32_t rmq_ha_frame_left(const struct rmq_ha_frame *frame)
{
    return RMQ_HA_HEADER_BYTES + frame->length - frame->done;
}

/* First byte of the log that the socket has not taken. */
static inline uint64_t rmq_ha_frame_sent(const struct rmq_ha_frame *frame)
{
    return frame->done > RMQ_HA_HEADER_BYTES ? frame->offset + frame->done - RMQ_HA_HEADER_BYTES : frame->offset;
}
#endif
