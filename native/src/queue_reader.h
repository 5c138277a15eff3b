/* queue_reader.h: reads what a queue holds: its units from an offset on, the record at a place of the log, filters, and
 * what of it is in memory. It knows the plane and two kinds of files, and no sockets.
 *
 * A queue reader belongs to one thread of one process. It maps files on demand, keeps the ones used last up to the two
 * limits it was opened with, and undoes the mappings of files that retention has deleted at a tick, which its owner
 * calls about once a second. Until then the blocks of these files are not free.
 *
 * The functions here know the bounds of no queue: callers compare with the queue's entry and with rmq_confirm_offset.
 */
#ifndef RMQ_QUEUE_READER_H
#define RMQ_QUEUE_READER_H

#include <errno.h>

#include "consume_queue.h"
#include "file_map.h"
#include "plane.h"
#include "ring.h"

struct rmq_queue_reader {
    struct rmq_plane *plane;
    const struct rmq_settings *settings;
    struct rmq_file_cache log_files, queue_files;
};

/* In memory of the owner. 0 or -ENOMEM; after an error only fini is allowed. */
int rmq_queue_reader_init(struct rmq_queue_reader *q, struct rmq_plane *plane, uint32_t log_files_max, uint32_t queue_files_max);
void rmq_queue_reader_fini(struct rmq_queue_reader *q);
void rmq_queue_reader_tick(struct rmq_queue_reader *q);

/* Units of one queue file from `offset` on, below `max`: where they lie and how many there are (0 = the file is too short).
 * NULL with errno: ENOENT = no such file, else it cannot be mapped now. */
const uint8_t *rmq_queue_reader_units_at(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, int64_t max, uint64_t *count);

struct rmq_file_map *rmq_queue_reader_map_log(struct rmq_queue_reader *q, uint64_t number);

/* The `size` bytes of the log from `position` on, and the mapping that they lie in, which the caller holds if it keeps
 * them. NULL with errno: ENOENT = they are gone (below `log_min`) or were never there, else their file cannot be mapped
 * now and must not be stepped over. */
static inline const uint8_t *rmq_queue_reader_log_at(struct rmq_queue_reader *q, uint64_t position, uint32_t size, uint64_t log_min,
                                                     struct rmq_file_map **map)
{
    uint64_t segment_bytes = q->settings->segment_bytes, number = position / segment_bytes, at = position % segment_bytes;
    if (position < log_min) {
        errno = ENOENT;
        return NULL;
    }
    *map = rmq_file_cache_find(&q->log_files, number);
    if (!*map && !(*map = rmq_queue_reader_map_log(q, number)))
        return NULL;
    if (!rmq_file_map_reaches(*map, at + size)) {
        errno = ENOENT;
        return NULL;
    }
    return (*map)->base + at;
}

/* Where in the log a byte of one of its mappings lies. */
static inline uint64_t rmq_queue_reader_position(const struct rmq_queue_reader *q, const struct rmq_file_map *map,
                                                 const uint8_t *at)
{
    return map->key * q->settings->segment_bytes + (uint64_t)(at - map->base);
}

/* 1 when the page of this place is taken to be in memory, because the log has not grown by more than the memory window
 * since. Else a read of it may wait for the disk. */
static inline int rmq_is_in_memory(const struct rmq_settings *settings, uint64_t log_end, uint64_t position)
{
    return log_end - position <= settings->memory_window_bytes;
}

static inline int rmq_queue_reader_in_memory(const struct rmq_queue_reader *q, uint64_t position)
{
    return rmq_is_in_memory(q->settings, rmq_load(&q->plane->watermarks->append_offset), position);
}

/* 1 when a subscription of kind ALL or TAGS wants a unit with this tags code. */
static inline int rmq_tags_match(const struct rmq_subscription_copy *filter, int64_t tags_code)
{
    if (filter->kind == RMQ_SUBSCRIPTION_ALL)
        return 1;
    int32_t code = (int32_t)tags_code;
    for (uint32_t i = 0; i < filter->tag_count; i++)
        if (filter->tags[i] == code)
            return 1;
    return 0;
}
#endif
