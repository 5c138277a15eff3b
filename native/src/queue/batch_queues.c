#include "queue/batch_queues.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log/segment.h"

enum {
    UNIT = RMQ_CQ_BATCH_UNIT_BYTES,
    NAME_DIGITS = 20,
    STOCK_FILE_BYTES = 300000 * UNIT,
};

static int folder_of(const struct rmq_batch_queues *b, uint32_t slot, char *to)
{
    const struct rmq_queue *queue = rmq_queue_at(b->plane, slot);
    const struct rmq_topic *topic = rmq_topic_at(b->plane, queue->topic_id);
    uint32_t length = topic->name_length;
    if (!length || length > RMQ_NAME_MAX || topic->name[0] == '.' || memchr(topic->name, '/', length))
        return -EINVAL;
    int n = snprintf(to, PATH_MAX, "%s/batchconsumequeue/%.*s/%" PRIu32, rmq_header(b->plane)->settings.store_path,
                     (int)length, topic->name, queue->queue_id);
    return n < 0 || n >= PATH_MAX - NAME_DIGITS - 2 ? -ENAMETOOLONG : n;
}

static int open_file(const struct rmq_batch_queues *b, const char *folder, uint64_t start, int make)
{
    char path[PATH_MAX];
    struct stat status;
    int n = snprintf(path, sizeof path, "%s/%020" PRIu64, folder, start);
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT : 0), 0644);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &status) < 0 ? -errno : 0;
    if (!rc && !status.st_size && make)
        rc = ftruncate(fd, (off_t)b->file_bytes) < 0 ? -errno : 0;
    else if (!rc && (uint64_t)status.st_size != b->file_bytes)
        rc = -EINVAL;
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* 1 = a unit, 0 = none there, or -errno. */
static int read_unit(int fd, uint64_t at, struct rmq_cq_batch_unit *unit)
{
    uint8_t bytes[UNIT];
    ssize_t n = pread(fd, bytes, sizeof bytes, (off_t)at);
    if (n != (ssize_t)sizeof bytes)
        return n < 0 ? -errno : -EINVAL;
    return rmq_cq_batch_decode(bytes, unit);
}

static int newest_files(const char *folder, uint64_t *newest, uint64_t *before)
{
    DIR *directory = opendir(folder);
    int count = 0;
    if (!directory)
        return errno == ENOENT ? 0 : -errno;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strlen(entry->d_name) != NAME_DIGITS || strspn(entry->d_name, "0123456789") != NAME_DIGITS)
            continue;
        uint64_t start = strtoull(entry->d_name, NULL, 10);
        if (!count || start > *newest) {
            *before = count ? *newest : start;
            *newest = start;
        } else if (count == 1 || start > *before) {
            *before = start;
        }
        count++;
    }
    closedir(directory);
    return count;
}

/* Units of one file by binary search; the last one's record in *last_offset. Number of units or -errno. */
static int64_t count_units(const struct rmq_batch_queues *b, const char *folder, uint64_t start, int64_t *last_offset)
{
    uint64_t low = 0, high = b->file_bytes / UNIT;
    struct rmq_cq_batch_unit unit;
    int rc = 0, fd = open_file(b, folder, start, 0);
    if (fd < 0)
        return fd;
    while (rc >= 0 && low < high) {
        uint64_t middle = low + (high - low) / 2;
        rc = read_unit(fd, middle * UNIT, &unit);
        if (rc > 0) {
            *last_offset = unit.commit_log_offset;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    close(fd);
    return rc < 0 ? rc : (int64_t)low;
}

static int find_end(const struct rmq_batch_queues *b, const char *folder, struct rmq_batch_queue *queue)
{
    uint64_t newest = 0, before = 0;
    int files = newest_files(folder, &newest, &before);
    queue->end = 0;
    queue->last_offset = -1;
    if (files <= 0)
        return files;
    int64_t units = count_units(b, folder, newest, &queue->last_offset);
    queue->end = newest + (uint64_t)(units > 0 ? units : 0) * UNIT;
    if (units == 0 && files > 1)
        units = count_units(b, folder, before, &queue->last_offset);
    queue->known = units >= 0;
    return units < 0 ? (int)units : 0;
}

int rmq_batch_queues_append(struct rmq_batch_queues *b, uint32_t slot, const struct rmq_cq_batch_unit *unit)
{
    uint8_t bytes[UNIT];
    char folder[PATH_MAX];
    if (!b->by_slot)
        b->by_slot = calloc(rmq_header(b->plane)->tables.queue_capacity, sizeof *b->by_slot);
    if (!b->by_slot)
        return -ENOMEM;
    struct rmq_batch_queue *queue = &b->by_slot[slot];
    int rc = folder_of(b, slot, folder);
    if (rc >= 0 && !queue->known)
        rc = find_end(b, folder, queue);
    if (rc < 0 || unit->commit_log_offset <= queue->last_offset)
        return rc < 0 ? rc : 0;
    uint64_t start = queue->end - queue->end % b->file_bytes;
    if (queue->end == start && (rc = rmq_folder_make(folder)) < 0)
        return rc;
    int fd = open_file(b, folder, start, 1);
    if (fd < 0)
        return fd;
    rmq_cq_batch_encode(bytes, unit);
    ssize_t n = pwrite(fd, bytes, sizeof bytes, (off_t)(queue->end - start));
    RMQ_CRASH("dispatch-batch-unit");
    if (n != (ssize_t)sizeof bytes) {
        rc = n < 0 ? -errno : -ENOSPC;
        close(fd);
        return rc;
    }
    queue->known = 1;
    queue->end += UNIT;
    queue->last_offset = unit->commit_log_offset;
    rc = rmq_background_sync_add(b->sync, fd);
    return rc < 0 ? rc : 1;
}

int rmq_batch_queues_open(struct rmq_batch_queues *b, struct rmq_plane *plane, struct rmq_background_sync *sync)
{
    uint64_t bytes = rmq_header(plane)->settings.batch_queue_file_bytes;
    *b = (struct rmq_batch_queues){.plane = plane, .sync = sync, .file_bytes = bytes ? bytes : STOCK_FILE_BYTES};
    return b->file_bytes % UNIT ? -EINVAL : 0;
}

void rmq_batch_queues_close(struct rmq_batch_queues *b)
{
    free(b->by_slot);
    b->by_slot = NULL;
}
