/* queue_ranges.c: records of a queue as ranges of the log. queue_reader.h has the rules. */
#include "queue/queue_reader.h"

#define LOOK_UNITS 64

/* 1 if the record follows the range in its file of the log. */
static int follows(const struct rmq_settings *s, const struct rmq_record_piece *range, uint64_t position)
{
    return range->position + range->size == position && range->position / s->segment_bytes == position / s->segment_bytes;
}

static int take_ranges(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, int64_t count, struct rmq_answer_size *taken,
                       struct rmq_record_piece *ranges, int room, int64_t *next_offset)
{
    static const struct rmq_subscription_copy all = {.kind = RMQ_SUBSCRIPTION_ALL};
    struct rmq_queue_unit some[LOOK_UNITS];
    uint64_t log_end = rmq_load(&q->plane->watermarks->append_offset);
    int found = 0;
    *next_offset = offset;
    while (*next_offset - offset < count) {
        int64_t at = *next_offset, left = count - (at - offset), behind;
        int units = rmq_queue_reader_units(q, slot, at, &all, some, left < LOOK_UNITS ? (int)left : LOOK_UNITS, &behind);
        if (units < 0 || behind == at) {
            *next_offset = units < 0 && at > offset ? at : behind;
            return units < 0 && at == offset ? units : found;
        }
        for (int i = 0; i < units; i++) {
            uint64_t position = (uint64_t)some[i].commit_log_offset;
            uint32_t size = (uint32_t)some[i].size;
            struct rmq_record_piece *last = found ? &ranges[found - 1] : NULL;
            int is_new = !last || !follows(q->settings, last, position);
            uint64_t begin = is_new ? position : last->position; /* the reader looks at the begin of a range alone */
            *next_offset = some[i].queue_offset;
            if (*next_offset - offset >= count || (is_new && found == room) ||
                rmq_records_exceed(q->settings, log_end, begin, taken->messages + 1, (uint64_t)taken->bytes + size))
                return found;
            if (is_new) {
                last = &ranges[found++];
                *last = (struct rmq_record_piece){.position = position};
            }
            last->size += size;
            last->messages++;
            taken->messages++;
            taken->bytes += size;
            *next_offset = some[i].queue_offset + 1;
        }
        *next_offset = behind;
    }
    return found;
}

int rmq_queue_reader_ranges(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, int64_t count, struct rmq_answer_size *taken,
                            struct rmq_record_piece *ranges, int room, int64_t *next_offset)
{
    if (room <= 0)
        return -EINVAL;
    int found = take_ranges(q, slot, offset, count, taken, ranges, room, next_offset);
    if (found >= 0 && *next_offset - offset > count)
        *next_offset = offset + count; /* fillers alone lie between */
    return found;
}
