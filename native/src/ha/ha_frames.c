#include "ha/ha_frames.h"

#include "base/bytes.h"

int rmq_ha_frames_cut(const struct rmq_ha_cut *cut, struct rmq_ha_frame *frames, int room)
{
    uint64_t at = cut->from, file_end = at - at % cut->segment_bytes + cut->segment_bytes;
    uint64_t end = cut->to < file_end ? cut->to : file_end;
    int64_t budget = cut->budget_bytes;
    int count = 0;
    while (count < room && at < end && budget > 0) {
        uint64_t length = end - at < cut->transfer_bytes ? end - at : cut->transfer_bytes;
        frames[count++] = (struct rmq_ha_frame){.offset = at, .length = (uint32_t)length};
        at += length;
        budget -= (int64_t)length + RMQ_HA_HEADER_BYTES;
    }
    return count;
}

void rmq_ha_frame_header(const struct rmq_ha_frame *frame, uint8_t out[RMQ_HA_HEADER_BYTES])
{
    rmq_put64(out, frame->offset);
    rmq_put32(out + 8, frame->length);
}
