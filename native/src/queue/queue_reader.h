/* queue_reader.h: reads a queue: its units from an offset on, the record at a log offset, filters, and the part that is in
 * memory. It knows the plane and two kinds of files, and no sockets.
 *
 * A queue reader belongs to one thread of one process. It maps files on demand and keeps the last used ones, up to two limits
 * given at its opening. At a tick, which its owner calls about once a second, it unmaps files that retention has deleted. Until
 * then the blocks of these files are not free.
 *
 * Services use the functions of the cdef block, one call a batch. These know the bounds of the queue and of the log. They
 * return nothing at or above rmq_confirm_offset and nothing below the log's first byte. Pulls use the functions for C behind
 * the block. Those leave the bounds to the caller, because a pull answers with them.
 *
 * Other code reads the same files in its own way. Dispatch (queue_files.h) writes units and reads unpublished ones. The Spark
 * bridge and `ringmq store` read stores without a plane. Control (broker/store_view.py) reads by topic name, key or time, needs
 * records of unknown size, and reads BatchConsumeQueues. ha (ha_log.h) streams the log beyond the confirm offset.
 */
#ifndef RMQ_QUEUE_READER_H
#define RMQ_QUEUE_READER_H

#include <errno.h>

#include "log/file_map.h"
#include "plane/plane.h"
#include "plane/ring.h"
#include "queue/consume_queue.h"

/* cdef-begin */
struct rmq_queue_reader;
struct rmq_file_map;
struct rmq_filter_program;

#define RMQ_QUEUE_SCAN_MAX 65536 /* units that one call reads */
#define RMQ_QUEUE_FILTER_WORK_MAX 2097152 /* bytes, about, that a condition looks at in one call: some 2 ms */

struct rmq_queue_unit {
    int64_t queue_offset;
    int64_t commit_log_offset;
    int64_t tags_code;
    int32_t size;
    uint32_t is_filler; /* 1 = it stands for no message: dispatch bridges a gap of queue offsets with fillers */
};

/* Bytes of the log that stay mapped, though retention deletes their file, until they are released. */
struct rmq_held_record {
    const uint8_t *at;
    struct rmq_file_map *map;
};

/* NULL = no memory. A record that is held takes one of `log_files_max` places. */
struct rmq_queue_reader *rmq_queue_reader_open(struct rmq_plane *plane, uint32_t log_files_max, uint32_t queue_files_max);
/* Held records are gone after it. */
void rmq_queue_reader_close(struct rmq_queue_reader *q);
void rmq_queue_reader_tick(struct rmq_queue_reader *q);

/* The units of a queue from `offset` on, over file borders, at most `room`; those that `filter` (kind ALL or TAGS) does
 * not want and fillers are left out. filter NULL: every unit. *next_offset = behind the last unit that was looked at;
 * equal to `offset`: nothing more is there now. Returns the number of units, or
 *   -ENOENT   deleted, the unit or its record: go on at *next_offset; equal to `offset`: the topic is deleted
 *   -EAGAIN, -ENOMEM   a file cannot be mapped now (errno says why): ask again later
 *   -EBADMSG  the unit at `offset` is damaged; it is not stepped over
 *   -EINVAL   no such queue, a BatchConsumeQueue, another kind of filter, no room */
int rmq_queue_reader_units(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, const struct rmq_subscription_copy *filter,
                           struct rmq_queue_unit *units, int room, int64_t *next_offset);
/* The same for the units whose records a verified program wants (kind FILTER). A call ends early when the condition has looked at
 * enough. It reads no record from the disk: it ends in front of such a unit, and for the unit at `offset` it returns
 *   -EBUSY    its record is on disk. The kernel has been told to read it: ask again later
 * A unit whose record is deleted does not match. */
int rmq_queue_reader_matching(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, const struct rmq_filter_program *program,
                              struct rmq_queue_unit *units, int room, int64_t *next_offset);
/* The unit at `offset`, a filler too. 0, an error as above, or
 *   -ENODATA  nothing is there now */
int rmq_queue_reader_unit(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, struct rmq_queue_unit *unit, int64_t *next_offset);
/* The records of at most `count` units from `offset` on as ranges of the log, for an answer that names them (RMQ_VERDICT_RECORDS).
 * `taken` has the messages and bytes of the answer so far, and counts on. The call ends in front of the first record with which the
 * answer would exceed that of a pull, and when there are `room` ranges. Returns the number of ranges, or an error as above. */
struct rmq_answer_size {
    uint32_t messages;
    uint32_t bytes;
};
int rmq_queue_reader_ranges(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, int64_t count, struct rmq_answer_size *taken,
                            struct rmq_record_piece *ranges, int room, int64_t *next_offset);
/* Holds the `size` bytes of the log from `position` on, unchecked. 0, or
 *   -ENOENT   deleted
 *   -ENODATA  not below the confirm offset
 *   -EAGAIN, -ENOMEM   the file cannot be mapped now, or every slot is held
 *   -EBADMSG  no record can be there: the unit that names it is damaged */
int rmq_queue_reader_record(struct rmq_queue_reader *q, uint64_t position, uint32_t size, struct rmq_held_record *record);
void rmq_queue_reader_release(struct rmq_held_record *record);
/* The same for the records of units, one call a batch: neighbours in a file share one hold of its mapping, which the first of
 * them has. Returns how many are held; below `count`, the next one is refused, and alone it says why. */
int rmq_queue_reader_records(struct rmq_queue_reader *q, const struct rmq_queue_unit *units, int count,
                             struct rmq_held_record *records);
void rmq_queue_reader_release_all(struct rmq_held_record *records, int count);
/* 1 when the page at `position` is taken to be in memory, because the log has not grown by more than the memory window
 * since. Else a read of it may wait for the disk. */
int rmq_queue_reader_in_memory(const struct rmq_queue_reader *q, uint64_t position);
/* cdef-end */

struct rmq_queue_reader {
    struct rmq_plane *plane;
    const struct rmq_settings *settings;
    struct rmq_file_cache log_files, queue_files;
};

/* In memory of the owner. 0 or -ENOMEM; after an error only fini is allowed. */
int rmq_queue_reader_init(struct rmq_queue_reader *q, struct rmq_plane *plane, uint32_t log_files_max, uint32_t queue_files_max);
void rmq_queue_reader_fini(struct rmq_queue_reader *q);

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

/* The log offset of a byte of one of its mappings. */
static inline uint64_t rmq_queue_reader_position(const struct rmq_queue_reader *q, const struct rmq_file_map *map,
                                                 const uint8_t *at)
{
    return map->key * q->settings->segment_bytes + (uint64_t)(at - map->base);
}

static inline int rmq_is_in_memory(const struct rmq_settings *settings, uint64_t log_end, uint64_t position)
{
    return log_end - position <= settings->memory_window_bytes;
}

/* 1 when an answer may not have so many messages and bytes, if the record that was added last is at `position`: the bounds of a
 * pull (DefaultMessageStore.isTheBatchFull). The first message is taken, however large. */
static inline int rmq_records_exceed(const struct rmq_settings *s, uint64_t log_end, uint64_t position, uint32_t messages,
                                     uint64_t bytes)
{
    if (messages <= 1)
        return 0;
    if (rmq_is_in_memory(s, log_end, position))
        return bytes > s->pull_memory_bytes_max || messages > s->pull_memory_count_max;
    return bytes > s->pull_disk_bytes_max || messages > s->pull_disk_count_max;
}

/* 1 when a subscription wants a unit with this tags code; of kind FILTER its record decides. */
static inline int rmq_tags_match(const struct rmq_subscription_copy *filter, int64_t tags_code)
{
    if (filter->kind != RMQ_SUBSCRIPTION_TAGS)
        return 1;
    int32_t code = (int32_t)tags_code;
    for (uint32_t i = 0; i < filter->tag_count; i++)
        if (filter->tags[i] == code)
            return 1;
    return 0;
}

_Static_assert(sizeof(struct rmq_queue_unit) == 32, "rmq_queue_unit");
#endif
