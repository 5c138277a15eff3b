/* Consume queue units -> ranges of mapped log pages. Rules and limits of RocketMQ's DefaultMessageStore.getMessage. */
#include <stdio.h>
#include <stdlib.h>

#include "consume_queue.h"
#include "reader_state.h"

#define SEGMENTS_MAPPED 256u
#define QUEUES_MAPPED 2048u
#define SCAN_BYTES_MIN 16000 /* maxFilterMessageSize */
#define UNIT RMQ_CQ_UNIT_BYTES
#define BULK_SHARE 4 /* a bulk answer may have the bytes of so many others: it costs its reader as much as a small one */

int rmq_pulls_open(struct rmq_reader *r)
{
    r->pull_result = malloc(sizeof *r->pull_result);
    if (!r->pull_result || rmq_file_cache_open(&r->segments, SEGMENTS_MAPPED) < 0 ||
        rmq_file_cache_open(&r->queues, QUEUES_MAPPED) < 0)
        return -ENOMEM;
    return 0;
}

void rmq_pulls_close(struct rmq_reader *r)
{
    free(r->pull_result);
    if (r->segments.maps)
        rmq_file_cache_close(&r->segments);
    if (r->queues.maps)
        rmq_file_cache_close(&r->queues);
}

static struct rmq_file_map *segment_at(struct rmq_reader *r, uint64_t position)
{
    uint64_t number = position / r->settings->segment_bytes;
    struct rmq_file_map *map = rmq_file_cache_find(&r->segments, number);
    if (map)
        return map;
    char path[RMQ_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%020llu", r->settings->commit_log_path,
             (unsigned long long)(number * r->settings->segment_bytes));
    return rmq_file_cache_map(&r->segments, number, path, r->settings->segment_bytes);
}

static struct rmq_file_map *queue_file_at(struct rmq_reader *r, const struct rmq_pull *p, uint64_t number)
{
    uint64_t key = (uint64_t)p->queue_slot << 32 | (number & 0xffffffff);
    struct rmq_file_map *map = rmq_file_cache_find(&r->queues, key);
    if (map)
        return map;
    const struct rmq_topic *topic = rmq_topic_at(r->plane, p->topic_id);
    char path[RMQ_PATH_MAX + RMQ_NAME_MAX + 64];
    snprintf(path, sizeof path, "%s/consumequeue/%.*s/%d/%020llu", r->settings->store_path, (int)topic->name_length, topic->name,
             p->queue_id, (unsigned long long)(number * r->settings->queue_file_bytes));
    return rmq_file_cache_map(&r->queues, key, path, r->settings->queue_file_bytes);
}

/* Units of one queue file from `offset` on, below `max`: where they lie and how many there are; NULL = no file. */
static const uint8_t *units_at(struct rmq_reader *r, const struct rmq_pull *p, int64_t offset, int64_t max, uint64_t *count)
{
    uint64_t per_file = r->settings->queue_file_bytes / UNIT, first = (uint64_t)offset % per_file;
    struct rmq_file_map *map = queue_file_at(r, p, (uint64_t)offset / per_file);
    if (!map)
        return NULL;
    *count = (uint64_t)(max - offset) < per_file - first ? (uint64_t)(max - offset) : per_file - first;
    if (!rmq_file_map_reaches(map, (first + *count) * UNIT)) {
        uint64_t there = map->file_bytes / UNIT;
        *count = there > first ? there - first : 0;
    }
    return map->base + first * UNIT;
}

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
};

static int batch_is_full(const struct rmq_reader *r, const struct rmq_pull *p, const struct rmq_pull_result *out,
                         const struct scan *scan, const struct rmq_cq_unit *unit)
{
    const struct rmq_settings *s = r->settings;
    if (!out->messages)
        return 0;
    if ((int64_t)out->messages + 1 > p->count_max || out->range_count == RMQ_PULL_RANGES)
        return 1;
    uint64_t bytes = (uint64_t)out->bytes + (uint32_t)unit->size;
    if (p->is_bulk)
        return bytes > (uint64_t)s->pull_memory_bytes_max * BULK_SHARE;
    if (scan->log_end - (uint64_t)unit->commit_log_offset <= s->memory_window_bytes)
        return bytes > s->pull_memory_bytes_max || out->messages + 1 > s->pull_memory_count_max;
    return bytes > s->pull_disk_bytes_max || out->messages + 1 > s->pull_disk_count_max;
}

static void settle(struct rmq_pull_result *out, int code, const char *status, int64_t next)
{
    out->code = code;
    out->status = status;
    out->next_offset = next;
}

/* One unit that matched. 0 = its record is gone, -1 = its file cannot be mapped now. */
static int take_record(struct rmq_reader *r, struct rmq_pull_result *out, struct scan *scan, const struct rmq_cq_unit *unit)
{
    uint64_t position = (uint64_t)unit->commit_log_offset, segment_bytes = r->settings->segment_bytes;
    uint64_t at = position % segment_bytes;
    struct rmq_file_map *map = position < scan->log_min ? NULL : segment_at(r, position);
    if (!map && position >= scan->log_min && errno != ENOENT)
        return -1; /* its messages are there: they must not be stepped over */
    if (!map || !rmq_file_map_reaches(map, at + (uint32_t)unit->size)) {
        if (!out->messages) {
            out->code = RMQ_ANSWER_RETRY;
            out->status = "MESSAGE_WAS_REMOVING";
        }
        scan->skip_below = (int64_t)(position - at + segment_bytes);
        return 0;
    }
    out->code = RMQ_ANSWER_SUCCESS;
    out->status = "FOUND";
    scan->skip_below = INT64_MIN;
    add_range(out, map, map->base + at, (uint32_t)unit->size);
    return 1;
}

/* Stands for no message: dispatch bridges a gap of queue offsets with them. */
static int is_filler(const struct rmq_cq_unit *unit) { return unit->size == RMQ_CQ_FILL_SIZE && !unit->commit_log_offset; }

static void scan_units(struct rmq_reader *r, const struct rmq_pull *p, struct rmq_pull_result *out, const uint8_t *at, uint64_t count,
                       struct scan *scan)
{
    for (uint64_t i = 0; i < count; i++, at += UNIT) {
        struct rmq_cq_unit unit;
        if (!rmq_cq_decode(at, &unit))
            return; /* below the published maximum every unit is whole: a broken one must not be stepped over */
        if ((int64_t)i * UNIT >= scan->scan_bytes_max)
            return;
        if (is_filler(&unit)) {
            out->next_offset = p->offset + (int64_t)i + 1;
            continue;
        }
        if ((uint64_t)unit.commit_log_offset + (uint32_t)unit.size > scan->confirm || batch_is_full(r, p, out, scan, &unit))
            return;
        out->last_position = unit.commit_log_offset;
        out->next_offset = p->offset + (int64_t)i + 1;
        if (unit.commit_log_offset < scan->skip_below)
            continue;
        if (!rmq_pull_matches(p, unit.tags_code)) {
            if (!out->messages) {
                out->code = RMQ_ANSWER_RETRY;
                out->status = "NO_MATCHED_MESSAGE";
            }
            continue;
        }
        if (take_record(r, out, scan, &unit) < 0) {
            out->next_offset = p->offset + (int64_t)i;
            if (!out->messages)
                settle(out, RMQ_ANSWER_BUSY, "[OVERLOAD]a commit log file cannot be mapped now, try again later", out->next_offset);
            return;
        }
    }
}

static void scan_queue(struct rmq_reader *r, const struct rmq_pull *p, struct rmq_pull_result *out)
{
    const struct rmq_watermarks *w = r->plane->watermarks;
    uint64_t count = 0, per_file = r->settings->queue_file_bytes / UNIT;
    const uint8_t *at = units_at(r, p, p->offset, out->max_offset, &count);
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
    scan_units(r, p, out, at, count, &scan);
}

void rmq_pull_scan(struct rmq_reader *r, const struct rmq_pull *p, struct rmq_pull_result *out)
{
    const struct rmq_queue *q = rmq_queue_at(r->plane, p->queue_slot);
    int64_t max = (int64_t)rmq_load(&q->max_offset), min = (int64_t)rmq_load(&q->min_offset), offset = p->offset;
    out->bytes = out->messages = out->range_count = 0;
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
        scan_queue(r, p, out);
}

int rmq_pull_peek(struct rmq_reader *r, const struct rmq_pull *p, int64_t *from)
{
    const struct rmq_queue *q = rmq_queue_at(r->plane, p->queue_slot);
    int64_t max = (int64_t)rmq_load(&q->max_offset);
    if (*from > max || *from < (int64_t)rmq_load(&q->min_offset))
        return 1; /* the answer is "moved" */
    while (*from < max) {
        uint64_t count = 0;
        const uint8_t *at = units_at(r, p, *from, max, &count);
        if (!at || !count)
            return 1;
        for (uint64_t i = 0; i < count; i++, at += UNIT, ++*from) {
            struct rmq_cq_unit unit;
            if (!rmq_cq_decode(at, &unit))
                return 0;
            if (!is_filler(&unit) && rmq_pull_matches(p, unit.tags_code))
                return 1;
        }
    }
    return 0;
}

/* Deleted files stay on disk as long as somebody maps them. */
void rmq_pulls_tick(struct rmq_reader *r)
{
    uint64_t log_min = rmq_load(&r->plane->watermarks->min_offset), segment_bytes = r->settings->segment_bytes;
    uint64_t per_file = r->settings->queue_file_bytes / UNIT;
    for (uint32_t name = r->segments.oldest; name;) {
        struct rmq_file_map *map = &r->segments.maps[name - 1];
        name = map->newer;
        if ((map->key + 1) * segment_bytes <= log_min)
            rmq_file_cache_forget(&r->segments, map);
    }
    for (uint32_t name = r->queues.oldest; name;) {
        struct rmq_file_map *map = &r->queues.maps[name - 1];
        name = map->newer;
        const struct rmq_queue *q = rmq_queue_at(r->plane, (uint32_t)(map->key >> 32));
        uint64_t config = rmq_load(&rmq_topic_at(r->plane, q->topic_id)->config);
        if (((map->key & 0xffffffff) + 1) * per_file <= rmq_load(&q->min_offset) || !(config >> 40 & RMQ_TOPIC_LIVE))
            rmq_file_cache_forget(&r->queues, map);
    }
}
