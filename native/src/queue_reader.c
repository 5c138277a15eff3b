#include "queue_reader.h"

#include <stdio.h>
#include <string.h>

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
    return (rmq_load(&rmq_topic_at(plane, queue->topic_id)->config) >> 40 & RMQ_TOPIC_LIVE) != 0;
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
