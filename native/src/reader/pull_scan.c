/* The units that a queue reader gives -> ranges of mapped log pages: limits and statuses of RocketMQ's
 * DefaultMessageStore.getMessage. */
#include <errno.h>

#include "codec/record_prefetch.h"
#include "log/loaded_pages.h"
#include "reader/pulls.h"
#include "reader/request_codes.h"

#define SCAN_BYTES_MIN 16000 /* maxFilterMessageSize */
#define UNIT RMQ_CQ_UNIT_BYTES
#define PREFETCHED_TAIL_BYTES 256
#define UNITS_AHEAD 8        /* records whose cache lines are prefetched */
#define BULK_SHARE 4         /* times the bytes of another answer: a bulk answer costs its reader no more than a small one */

static void add_range(struct rmq_pull_result *out, struct rmq_file_map *map, const uint8_t *at, uint32_t length)
{
    out->bytes += length;
    out->messages++;
    if (out->range_count) {
        uint32_t last = out->range_count - 1;
        if (out->ranges[last].map == map && out->ranges[last].at + out->ranges[last].length == at) {
            out->ranges[last].length += length;
            return;
        }
    }
    out->ranges[out->range_count].map = map;
    out->ranges[out->range_count].at = at;
    out->ranges[out->range_count++].length = length;
    rmq_file_map_hold(map); /* the next range may need a place in the cache */
}

void rmq_pull_release(struct rmq_pull_result *out)
{
    for (uint32_t i = 0; i < out->range_count; i++)
        rmq_file_map_drop(out->ranges[i].map);
    out->range_count = 0;
}

struct scan {
    uint64_t confirm, log_min, log_end;
    int64_t scan_bytes_max;
    int64_t skip_below; /* units of a removed segment are passed over */
    struct rmq_loaded loaded;
    struct rmq_file_map *map;  /* of the last record */
    uint64_t map_position;     /* position of its file in the log */
};

static int batch_is_full(const struct rmq_pulls *pulls, const struct rmq_pull *p, const struct rmq_pull_result *out,
                         const struct scan *scan, const struct rmq_cq_unit *unit)
{
    const struct rmq_settings *s = pulls->context->settings;
    if (!out->messages)
        return 0;
    if ((int64_t)out->messages + 1 > p->count_max || out->range_count == RMQ_PULL_RANGES)
        return 1;
    uint64_t bytes = (uint64_t)out->bytes + (uint32_t)unit->size;
    if (p->is_bulk)
        return bytes > (uint64_t)s->pull_memory_bytes_max * BULK_SHARE;
    return rmq_records_exceed(s, scan->log_end, (uint64_t)unit->commit_log_offset, out->messages + 1, bytes);
}

static void settle(struct rmq_pull_result *out, int code, const char *status, int64_t next)
{
    out->code = code;
    out->status = status;
    out->next_offset = next;
}

static void pass_over(struct rmq_pull_result *out)
{
    if (!out->messages) {
        out->code = RMQ_ANSWER_RETRY;
        out->status = "NO_MATCHED_MESSAGE";
    }
}

enum taken { TAKEN, PASSED_OVER, GONE, NOT_MAPPED, ON_DISK };

/* Prefetches the record of a unit, if it is in the same file as the last one: the filter waits for memory most of the time. */
static void prefetch(const struct scan *scan, const uint8_t *unit_at)
{
    struct rmq_cq_unit unit;
    if (!scan->map || !rmq_cq_decode(unit_at, &unit))
        return;
    uint64_t at = (uint64_t)unit.commit_log_offset - scan->map_position; /* huge in front of the file */
    if (unit.size > 0 && at < scan->map->file_bytes && (uint32_t)unit.size <= scan->map->file_bytes - at)
        rmq_prefetch_record(scan->map->base + at, unit.size, PREFETCHED_TAIL_BYTES);
}

/* One unit whose tags match. */
static enum taken take_record(struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *out, struct scan *scan,
                              const struct rmq_cq_unit *unit)
{
    uint64_t position = (uint64_t)unit->commit_log_offset, segment_bytes = pulls->context->settings->segment_bytes;
    struct rmq_file_map *map;
    const uint8_t *at = rmq_queue_reader_log_at(pulls->queues, position, (uint32_t)unit->size, scan->log_min, &map);
    if (!at && errno != ENOENT)
        return NOT_MAPPED; /* its messages are there: they must not be stepped over */
    if (!at) {
        if (!out->messages) {
            out->code = RMQ_ANSWER_RETRY;
            out->status = "MESSAGE_WAS_REMOVING";
        }
        scan->skip_below = (int64_t)((position / segment_bytes + 1) * segment_bytes);
        return GONE;
    }
    if (p->filter.kind == RMQ_SUBSCRIPTION_FILTER) {
        scan->map = map;
        scan->map_position = position - position % segment_bytes;
        if (!rmq_is_in_memory(pulls->context->settings, scan->log_end, position) &&
            !rmq_record_is_loaded(&scan->loaded, map, at, (uint32_t)unit->size))
            return ON_DISK;
        if (!rmq_filter_wants(&pulls->filters, p, at, (uint32_t)unit->size, &out->work)) {
            out->filtered++;
            return PASSED_OVER;
        }
    }
    out->code = RMQ_ANSWER_SUCCESS;
    out->status = "FOUND";
    scan->skip_below = INT64_MIN;
    add_range(out, map, at, (uint32_t)unit->size);
    return TAKEN;
}

/* The scan ends at unit number i, which the next pull begins with. */
static void end_before(const struct rmq_pull *p, struct rmq_pull_result *out, uint64_t i, enum taken cause)
{
    out->next_offset = p->offset + (int64_t)i;
    out->waits_for_disk = cause == ON_DISK;
    if (!out->messages && cause == NOT_MAPPED)
        settle(out, RMQ_ANSWER_BUSY, "[OVERLOAD]a commit log file cannot be mapped now, try again later", out->next_offset);
}

static void scan_units(struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *out, const uint8_t *at,
                       uint64_t count, struct scan *scan)
{
    for (uint64_t i = 0; i < count; i++, at += UNIT) {
        struct rmq_cq_unit unit;
        if (!rmq_cq_decode(at, &unit))
            return; /* below the published maximum every unit is whole: a broken one must not be stepped over */
        if ((int64_t)i * UNIT >= scan->scan_bytes_max || out->work > RMQ_FILTER_WORK_MAX)
            return;
        if (rmq_cq_is_filler(&unit)) {
            out->next_offset = p->offset + (int64_t)i + 1;
            continue;
        }
        if ((uint64_t)unit.commit_log_offset + (uint32_t)unit.size > scan->confirm || batch_is_full(pulls, p, out, scan, &unit))
            return;
        out->last_position = unit.commit_log_offset;
        out->next_offset = p->offset + (int64_t)i + 1;
        if (unit.commit_log_offset < scan->skip_below)
            continue;
        if (scan->map && i + UNITS_AHEAD < count)
            prefetch(scan, at + UNITS_AHEAD * UNIT);
        if (!rmq_tags_match(&p->filter, unit.tags_code)) {
            pass_over(out);
            continue;
        }
        enum taken taken = take_record(pulls, p, out, scan, &unit);
        if (taken == PASSED_OVER)
            pass_over(out);
        if (taken == NOT_MAPPED || taken == ON_DISK) {
            end_before(p, out, i, taken);
            return;
        }
    }
}

static void scan_queue(struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *out)
{
    const struct rmq_watermarks *w = pulls->context->plane->watermarks;
    uint64_t count = 0, per_file = pulls->context->settings->queue_file_bytes / UNIT;
    const uint8_t *at = rmq_queue_reader_units_at(pulls->queues, p->queue_slot, p->offset, out->max_offset, &count);
    if (!at && errno != ENOENT) {
        settle(out, RMQ_ANSWER_BUSY, "[OVERLOAD]a consume queue file cannot be mapped now, try again later", p->offset);
        return;
    }
    if (!at || !count) {
        settle(out, RMQ_ANSWER_NOT_FOUND, "OFFSET_FOUND_NULL", p->offset + (int64_t)(per_file - (uint64_t)p->offset % per_file));
        return;
    }
    struct scan scan = {
        .confirm = rmq_confirm_offset(w),
        .log_min = rmq_load(&w->min_offset),
        .log_end = rmq_load(&w->append_offset),
        .scan_bytes_max = (int64_t)p->count_max * UNIT > SCAN_BYTES_MIN ? (int64_t)p->count_max * UNIT : SCAN_BYTES_MIN,
        .skip_below = INT64_MIN,
    };
    settle(out, RMQ_ANSWER_RETRY, "NO_MATCHED_MESSAGE", p->offset);
    scan_units(pulls, p, out, at, count, &scan);
}

void rmq_pull_scan(struct rmq_pulls *pulls, const struct rmq_pull *p, struct rmq_pull_result *out)
{
    const struct rmq_queue *q = rmq_queue_at(pulls->context->plane, p->queue_slot);
    int64_t max = (int64_t)rmq_load(&q->max_offset), min = (int64_t)rmq_load(&q->min_offset), offset = p->offset;
    out->bytes = out->messages = out->range_count = out->filtered = 0;
    out->work = 0;
    out->waits_for_disk = 0;
    out->last_position = -1;
    out->max_offset = max;
    out->min_offset = min;
    if (max == 0)
        settle(out, offset ? RMQ_ANSWER_MOVED : RMQ_ANSWER_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0);
    else if (offset < min)
        settle(out, RMQ_ANSWER_MOVED, "OFFSET_TOO_SMALL", min);
    else if (offset == max)
        settle(out, RMQ_ANSWER_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset);
    else if (offset > max)
        settle(out, RMQ_ANSWER_MOVED, "OFFSET_OVERFLOW_BADLY", max);
    else
        scan_queue(pulls, p, out);
}

/* 1 when the record of a unit is wanted, or cannot be looked at here: then the scan decides. */
static int may_be_wanted(struct rmq_pulls *pulls, const struct rmq_pull *p, const struct rmq_cq_unit *unit, uint64_t *work)
{
    const struct rmq_watermarks *w = pulls->context->plane->watermarks;
    uint64_t position = (uint64_t)unit->commit_log_offset;
    struct rmq_file_map *map;
    if (p->filter.kind != RMQ_SUBSCRIPTION_FILTER || *work > RMQ_FILTER_WORK_MAX ||
        !rmq_is_in_memory(pulls->context->settings, rmq_load(&w->append_offset), position))
        return 1;
    const uint8_t *at = rmq_queue_reader_log_at(pulls->queues, position, (uint32_t)unit->size, rmq_load(&w->min_offset), &map);
    return !at || rmq_filter_wants(&pulls->filters, p, at, (uint32_t)unit->size, work);
}

int rmq_pull_peek(struct rmq_pulls *pulls, const struct rmq_pull *p, int64_t *from)
{
    const struct rmq_queue *q = rmq_queue_at(pulls->context->plane, p->queue_slot);
    int64_t max = (int64_t)rmq_load(&q->max_offset);
    uint64_t work = 0;
    if (*from > max || *from < (int64_t)rmq_load(&q->min_offset))
        return 1; /* the answer is "moved" */
    while (*from < max) {
        uint64_t count = 0;
        const uint8_t *at = rmq_queue_reader_units_at(pulls->queues, p->queue_slot, *from, max, &count);
        if (!at || !count)
            return 1;
        for (uint64_t i = 0; i < count; i++, at += UNIT, ++*from) {
            struct rmq_cq_unit unit;
            if (!rmq_cq_decode(at, &unit))
                return 0;
            if (!rmq_cq_is_filler(&unit) && rmq_tags_match(&p->filter, unit.tags_code) && may_be_wanted(pulls, p, &unit, &work))
                return 1;
        }
    }
    return 0;
}
