#include "queue/queue_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plane/settings_word.h"

#define UNIT RMQ_CQ_UNIT_BYTES

int rmq_queue_reader_init(struct rmq_queue_reader *q, struct rmq_plane *plane, uint32_t log_files_max, uint32_t queue_files_max)
{
    memset(q, 0, sizeof *q);
    q->plane = plane;
    q->settings = &rmq_plane_header_of(plane)->settings;
    int rc = rmq_file_cache_open(&q->log_files, log_files_max);
    return rc < 0 ? rc : rmq_file_cache_open(&q->queue_files, queue_files_max);
}

void rmq_queue_reader_fini(struct rmq_queue_reader *q)
{
    rmq_file_cache_close(&q->log_files);
    rmq_file_cache_close(&q->queue_files);
}

struct rmq_file_map *rmq_queue_reader_map_log(struct rmq_queue_reader *q, uint64_t number)
{
    char path[RMQ_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%020llu", q->settings->commit_log_path,
             (unsigned long long)(number * q->settings->segment_bytes));
    return rmq_file_cache_map(&q->log_files, number, path, q->settings->segment_bytes);
}

static struct rmq_file_map *queue_file_at(struct rmq_queue_reader *q, uint32_t slot, uint64_t number)
{
    uint64_t key = (uint64_t)slot << 32 | (number & 0xffffffff);
    struct rmq_file_map *map = rmq_file_cache_find(&q->queue_files, key);
    if (map)
        return map;
    const struct rmq_queue *queue = rmq_queue_at(q->plane, slot);
    const struct rmq_topic *topic = rmq_topic_at(q->plane, queue->topic_id);
    char path[RMQ_PATH_MAX + RMQ_NAME_MAX + 64];
    snprintf(path, sizeof path, "%s/consumequeue/%.*s/%u/%020llu", q->settings->store_path, (int)topic->name_length, topic->name,
             queue->queue_id, (unsigned long long)(number * q->settings->queue_file_bytes));
    return rmq_file_cache_map(&q->queue_files, key, path, q->settings->queue_file_bytes);
}

const uint8_t *rmq_queue_reader_units_at(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, int64_t max, uint64_t *count)
{
    uint64_t per_file = q->settings->queue_file_bytes / UNIT, first = (uint64_t)offset % per_file;
    struct rmq_file_map *map = queue_file_at(q, slot, (uint64_t)offset / per_file);
    if (!map)
        return NULL;
    *count = (uint64_t)(max - offset) < per_file - first ? (uint64_t)(max - offset) : per_file - first;
    if (!rmq_file_map_reaches(map, (first + *count) * UNIT)) {
        uint64_t there = map->file_bytes / UNIT;
        *count = there > first ? there - first : 0;
    }
    return map->base + first * UNIT;
}

static int is_live(struct rmq_plane *plane, const struct rmq_queue *queue)
{
    return rmq_topic_is_live(rmq_load(&rmq_topic_at(plane, queue->topic_id)->config));
}

/* Deleted files stay on disk as long as a process maps them. */
void rmq_queue_reader_tick(struct rmq_queue_reader *q)
{
    uint64_t log_min = rmq_load(&q->plane->watermarks->min_offset), segment_bytes = q->settings->segment_bytes;
    uint64_t per_file = q->settings->queue_file_bytes / UNIT;
    for (uint32_t name = q->log_files.oldest; name;) {
        struct rmq_file_map *map = &q->log_files.maps[name - 1];
        name = map->newer;
        if ((map->key + 1) * segment_bytes <= log_min)
            rmq_file_cache_forget(&q->log_files, map);
    }
    for (uint32_t name = q->queue_files.oldest; name;) {
        struct rmq_file_map *map = &q->queue_files.maps[name - 1];
        name = map->newer;
        const struct rmq_queue *queue = rmq_queue_at(q->plane, (uint32_t)(map->key >> 32));
        if (((map->key & 0xffffffff) + 1) * per_file <= rmq_load(&queue->min_offset) || !is_live(q->plane, queue))
            rmq_file_cache_forget(&q->queue_files, map);
    }
}

struct rmq_queue_reader *rmq_queue_reader_open(struct rmq_plane *plane, uint32_t log_files_max, uint32_t queue_files_max)
{
    struct rmq_queue_reader *q = malloc(sizeof *q);
    if (q && rmq_queue_reader_init(q, plane, log_files_max, queue_files_max) < 0) {
        rmq_queue_reader_close(q);
        return NULL;
    }
    return q;
}

void rmq_queue_reader_close(struct rmq_queue_reader *q)
{
    if (q)
        rmq_queue_reader_fini(q);
    free(q);
}

static int mapping_error(void) { return errno == ENOENT || errno == ENOMEM ? -errno : -EAGAIN; }

struct batch {
    const struct rmq_subscription_copy *filter;
    uint64_t confirm, log_min, log_end;
    struct rmq_queue_unit *units;
    int count, room;
    int64_t next;
};

/* 0 = all were looked at, 1 = there is no room for more or it may not be seen yet, RECORD_DELETED, -EBADMSG = damaged. */
#define RECORD_DELETED 2
static int take_units(struct batch *batch, const uint8_t *at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++, at += UNIT) {
        struct rmq_cq_unit unit;
        if (batch->count == batch->room)
            return 1;
        if (!rmq_cq_decode(at, &unit))
            return -EBADMSG; /* below the published maximum every unit is whole */
        int is_filler = rmq_cq_is_filler(&unit);
        uint64_t end = is_filler ? 0 : (uint64_t)unit.commit_log_offset + (uint32_t)unit.size;
        if (end > batch->confirm)
            return end > batch->log_end ? -EBADMSG : 1; /* a waiter would wait for ever */
        if (!is_filler && (uint64_t)unit.commit_log_offset < batch->log_min)
            return RECORD_DELETED; /* dispatch raises the queue's minimum a moment later */
        int64_t queue_offset = batch->next++;
        if (batch->filter && (is_filler || !rmq_tags_match(batch->filter, unit.tags_code)))
            continue;
        batch->units[batch->count++] = (struct rmq_queue_unit){
            .queue_offset = queue_offset,
            .commit_log_offset = unit.commit_log_offset,
            .tags_code = unit.tags_code,
            .size = unit.size,
            .is_filler = (uint32_t)is_filler,
        };
    }
    return 0;
}

/* Moves behind the units whose records are deleted. Those of a queue are in the order of the log. */
static void pass_deleted(struct batch *batch, const uint8_t *at, uint64_t count)
{
    struct rmq_cq_unit unit;
    for (uint64_t i = 0; i < count && rmq_cq_decode(at, &unit) && !rmq_cq_is_filler(&unit); i++, at += UNIT) {
        if ((uint64_t)unit.commit_log_offset >= batch->log_min)
            return;
        batch->next++;
    }
}

static int units_between(struct rmq_queue_reader *q, uint32_t slot, int64_t from, int64_t max, struct batch *batch)
{
    int64_t per_file = (int64_t)(q->settings->queue_file_bytes / UNIT), end = max;
    if (end - from > RMQ_QUEUE_SCAN_MAX)
        end = from + RMQ_QUEUE_SCAN_MAX;
    int rc = 0;
    while (rc == 0 && batch->next < end) {
        uint64_t count = 0;
        const uint8_t *at = rmq_queue_reader_units_at(q, slot, batch->next, end, &count);
        rc = !at ? mapping_error() : count ? take_units(batch, at, count) : -EBADMSG;
        if (rc == RECORD_DELETED && batch->next == from) {
            pass_deleted(batch, at, count);
            return -ENOENT;
        }
    }
    if (rc >= 0 || batch->next > from)
        return batch->count;
    if (rc == -ENOENT) {
        int64_t next_file = (from / per_file + 1) * per_file;
        batch->next = next_file < max ? next_file : max;
    }
    return rc;
}

int rmq_queue_reader_units(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, const struct rmq_subscription_copy *filter,
                           struct rmq_queue_unit *units, int room, int64_t *next_offset)
{
    *next_offset = offset;
    if (room <= 0 || slot >= rmq_load(&rmq_plane_header_of(q->plane)->tables.queue_count) ||
        (filter && filter->kind != RMQ_SUBSCRIPTION_ALL && filter->kind != RMQ_SUBSCRIPTION_TAGS))
        return -EINVAL;
    const struct rmq_queue *queue = rmq_queue_at(q->plane, slot);
    if (rmq_topic_flags(rmq_load(&rmq_topic_at(q->plane, queue->topic_id)->config)) & RMQ_TOPIC_BATCH_QUEUE)
        return -EINVAL;
    int64_t max = (int64_t)rmq_load(&queue->max_offset), min = (int64_t)rmq_load(&queue->min_offset);
    struct batch batch = {
        .filter = filter,
        .confirm = rmq_confirm_offset(q->plane->watermarks),
        .log_min = rmq_load(&q->plane->watermarks->min_offset),
        .log_end = rmq_load(&q->plane->watermarks->append_offset),
        .units = units,
        .room = room,
        .next = offset < min ? min : offset,
    };
    int rc = offset < min ? -ENOENT : units_between(q, slot, offset, max, &batch);
    /* Last: a deleted topic may have been made again meanwhile, and its files have the same names. */
    if (!is_live(q->plane, queue))
        return -ENOENT;
    *next_offset = batch.next;
    return rc;
}

int rmq_queue_reader_unit(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, struct rmq_queue_unit *unit, int64_t *next_offset)
{
    int count = rmq_queue_reader_units(q, slot, offset, NULL, unit, 1, next_offset);
    return count < 0 ? count : count ? 0 : -ENODATA;
}

int rmq_queue_reader_record(struct rmq_queue_reader *q, uint64_t position, uint32_t size, struct rmq_held_record *record)
{
    uint64_t confirm = rmq_confirm_offset(q->plane->watermarks), segment_bytes = q->settings->segment_bytes;
    *record = (struct rmq_held_record){0};
    if (!size || size > segment_bytes || position % segment_bytes > segment_bytes - size)
        return -EBADMSG;
    if (position > confirm || size > confirm - position)
        return -ENODATA;
    record->at = rmq_queue_reader_log_at(q, position, size, rmq_load(&q->plane->watermarks->min_offset), &record->map);
    if (!record->at)
        return mapping_error();
    rmq_file_map_hold(record->map);
    return 0;
}

void rmq_queue_reader_release(struct rmq_held_record *record)
{
    if (record->map)
        rmq_file_map_drop(record->map);
    *record = (struct rmq_held_record){0};
}

int rmq_queue_reader_records(struct rmq_queue_reader *q, const struct rmq_queue_unit *units, int count,
                             struct rmq_held_record *records)
{
    struct rmq_file_map *map = NULL; /* of the neighbours before, held by the first of them */
    for (int i = 0; i < count; i++) {
        if (rmq_queue_reader_record(q, (uint64_t)units[i].commit_log_offset, (uint32_t)units[i].size, &records[i]) < 0)
            return i;
        if (records[i].map == map) {
            records[i].map = NULL;
            rmq_file_map_drop(map);
        } else {
            map = records[i].map;
        }
    }
    return count;
}

void rmq_queue_reader_release_all(struct rmq_held_record *records, int count)
{
    for (int i = 0; i < count; i++)
        rmq_queue_reader_release(&records[i]);
}

int rmq_queue_reader_in_memory(const struct rmq_queue_reader *q, uint64_t position)
{
    return rmq_is_in_memory(q->settings, rmq_load(&q->plane->watermarks->append_offset), position);
}
