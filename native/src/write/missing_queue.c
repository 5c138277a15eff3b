#include "write/missing_queue.h"

#include <string.h>

#include "codec/record.h"
#include "codec/record_values.h"
#include "codec/topic_names.h"
#include "log/segment.h"

_Static_assert(sizeof((struct rmq_missing_queue *)0)->topic > RMQ_NAME_MAX, "rmq_missing_queue");

/* 1 if the record's queue has no entry, but can have one. */
static int is_missing(struct rmq_plane *plane, const uint8_t *record, const struct rmq_record_view *view, uint64_t at)
{
    const char *topic = (const char *)record + view->topic_at;
    if (rmq_record_numbers(view, (int64_t)at))
        return 0;
    uint32_t id = rmq_topic_find(plane, topic, view->topic_length);
    if (id != RMQ_NONE && rmq_queue_find(plane, id, (uint32_t)view->queue_id) != RMQ_NONE)
        return 0;
    return view->topic_length <= RMQ_NAME_MAX && rmq_is_topic_name((const uint8_t *)topic, view->topic_length);
}

static void name(struct rmq_missing_queue *at, const uint8_t *record, const struct rmq_record_view *view)
{
    at->queue_id = (uint32_t)view->queue_id;
    at->is_batch = !!(view->sys_flag & RMQ_SYS_INNER_BATCH);
    at->topic_length = view->topic_length;
    memcpy(at->topic, record + view->topic_at, view->topic_length);
}

/* Searches one file of the log for records that begin below `until`. The file has records up to `stop`. */
static int find_in(struct rmq_plane *plane, struct rmq_missing_queue *at, const struct rmq_segment *segment, uint64_t until,
                   uint64_t stop)
{
    const uint8_t *file = (const uint8_t *)segment->base;
    uint64_t start = segment->offset;
    while (at->offset < until && at->offset < stop) {
        struct rmq_record_view view;
        const uint8_t *record = file + (at->offset - start);
        int rc = rmq_record_parse(record, stop - at->offset, 0, &view);
        if (rc == RMQ_RECORD_OK) {
            if (is_missing(plane, record, &view, at->offset)) {
                name(at, record, &view);
                return 1;
            }
            at->offset += view.total_size;
            continue;
        }
        int64_t next = -1;
        if (rc != RMQ_RECORD_BLANK)
            next = rmq_log_next_record(file, at->offset - start, stop - start, (int64_t)start);
        at->offset = next < 0 ? stop : start + (uint64_t)next;
    }
    return 0;
}

int rmq_missing_queue_find(struct rmq_plane *plane, struct rmq_missing_queue *at, uint64_t end, uint64_t bytes_max)
{
    const struct rmq_settings *settings = &rmq_header(plane)->settings;
    uint64_t until = end - at->offset > bytes_max ? at->offset + bytes_max : end;
    while (at->offset < until) {
        struct rmq_segment segment;
        uint64_t start = at->offset - at->offset % settings->segment_bytes, limit = start + settings->segment_bytes;
        uint64_t stop = end < limit ? end : limit;
        int rc = rmq_segment_map(&segment, settings->commit_log_path, start, settings->segment_bytes, 0);
        if (rc < 0)
            return rc;
        rc = find_in(plane, at, &segment, until, stop);
        rmq_segment_unmap(&segment);
        if (rc)
            return rc;
    }
    return 0;
}
