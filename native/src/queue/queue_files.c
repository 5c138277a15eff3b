#include "queue/queue_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/sigbus_guard.h"
#include "log/segment.h"
#include "plane/ring.h"
#include "plane/settings_word.h"
#include "queue/consume_queue.h"

enum {
    NAME_DIGITS = 20,
    FILL_UNITS = 1024,
};

/* --- names ------------------------------------------------------------------------------------------------ */

static int folder_of(const struct rmq_queue_files *f, uint32_t slot, char *to)
{
    const struct rmq_queue *queue = rmq_queue_at(f->plane, slot);
    const struct rmq_topic *topic = rmq_topic_at(f->plane, queue->topic_id);
    uint32_t length = topic->name_length;
    if (!length || length > RMQ_NAME_MAX || topic->name[0] == '.' || memchr(topic->name, '/', length) ||
        memchr(topic->name, 0, length))
        return -EINVAL;
    int n = snprintf(to, PATH_MAX, "%s/%.*s/%" PRIu32, f->root, (int)length, topic->name, queue->queue_id);
    return n < 0 || n >= PATH_MAX - NAME_DIGITS - 2 ? -ENAMETOOLONG : n;
}

static void append_name(char *folder, int length, uint64_t start)
{
    snprintf(folder + length, NAME_DIGITS + 2, "/%020" PRIu64, start);
}

/* --- open files, the ones used last --------------------------------------------------------------------- */

static void unlink_file(struct rmq_queue_files *f, uint32_t number)
{
    struct rmq_queue_file *file = &f->files[number - 1];
    if (file->newer)
        f->files[file->newer - 1].older = file->older;
    else
        f->newest = file->older;
    if (file->older)
        f->files[file->older - 1].newer = file->newer;
    else
        f->oldest = file->newer;
}

static void link_newest(struct rmq_queue_files *f, uint32_t number)
{
    struct rmq_queue_file *file = &f->files[number - 1];
    file->newer = 0;
    file->older = f->newest;
    if (f->newest)
        f->files[f->newest - 1].newer = number;
    else
        f->oldest = number;
    f->newest = number;
}

/* Takes the file out of the table; its number is free afterwards. */
static void release_file(struct rmq_queue_files *f, uint32_t number)
{
    struct rmq_queue_file *file = &f->files[number - 1];
    unlink_file(f, number);
    f->by_slot[file->slot] = 0;
    rmq_queue_window_close(&file->window);
    if (file->dirty)
        rmq_background_sync_add(f->sync, file->fd); /* takes it over, also when it cannot note it */
    else
        close(file->fd);
    file->fd = -1;
}

static int folders_dirty(struct rmq_queue_files *f, const char *folder, int made)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (int level = 0; level < (made ? 3 : 1); level++) { /* queue, topic, consumequeue */
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        int rc = rmq_background_sync_add(f->sync, fd);
        if (rc < 0)
            return rc;
        char *slash = strrchr(path, '/');
        if (!slash || slash == path)
            break;
        *slash = 0;
    }
    return 0;
}

/* Opens or makes the file; the descriptor or -errno. */
static int open_path(struct rmq_queue_files *f, uint32_t slot, uint64_t start)
{
    char path[PATH_MAX];
    struct stat status;
    int made = 0, length = folder_of(f, slot, path);
    if (length < 0)
        return length;
    append_name(path, length, start);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT) {
        path[length] = 0;
        int rc = rmq_folder_make(path);
        if (rc < 0)
            return rc;
        made = 1;
        append_name(path, length, start);
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    }
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &status) < 0 ? -errno : 0;
    if (!rc && !status.st_size) {
        RMQ_CRASH("dispatch-queue-file-empty");
        rc = ftruncate(fd, (off_t)f->file_bytes) < 0 ? -errno : 0;
        path[length] = 0;
        if (!rc)
            rc = folders_dirty(f, path, made);
    } else if (!rc && (uint64_t)status.st_size != f->file_bytes) {
        rc = -EINVAL;
    }
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* The queue's file that begins at `start`, opened if need be; its number + 1, or -errno. */
static int64_t take_file(struct rmq_queue_files *f, uint32_t slot, uint64_t start)
{
    uint32_t number = f->by_slot[slot];
    if (number && f->files[number - 1].start == start) {
        if (f->newest != number) {
            unlink_file(f, number);
            link_newest(f, number);
        }
        return number;
    }
    int fd = open_path(f, slot, start);
    if (fd < 0)
        return fd;
    if (number) {
        release_file(f, number);
    } else if (f->open_count < f->open_max) {
        number = ++f->open_count;
    } else {
        number = f->oldest;
        release_file(f, number);
    }
    f->files[number - 1] = (struct rmq_queue_file){.fd = fd, .slot = slot, .start = start};
    f->by_slot[slot] = number;
    link_newest(f, number);
    return number;
}

void rmq_queue_files_drop(struct rmq_queue_files *f, uint32_t slot)
{
    uint32_t number = f->by_slot[slot], last = f->open_count;
    if (!number)
        return;
    release_file(f, number);
    if (number != last) { /* keep the numbers dense: the last one moves into the gap */
        unlink_file(f, last);
        f->files[number - 1] = f->files[last - 1];
        f->by_slot[f->files[number - 1].slot] = number;
        link_newest(f, number);
    }
    f->open_count--;
}

/* --- writing ---------------------------------------------------------------------------------------------- */

uint64_t rmq_queue_files_file_start(const struct rmq_queue_files *f, uint64_t at)
{
    uint64_t units = f->file_bytes / RMQ_CQ_UNIT_BYTES;
    return at - at % units;
}

int rmq_queue_files_write(struct rmq_queue_files *f, uint32_t slot, uint64_t first, const uint8_t *units,
                          uint64_t count, uint64_t max_offset)
{
    uint64_t at = first * RMQ_CQ_UNIT_BYTES, left = count * RMQ_CQ_UNIT_BYTES;
    while (left) {
        uint64_t start = at - at % f->file_bytes, room = start + f->file_bytes - at;
        uint64_t length = left < room ? left : room;
        int64_t number = take_file(f, slot, start);
        if (number < 0)
            return (int)number;
        struct rmq_queue_file *file = &f->files[number - 1];
        file->dirty = 1;
        int rc = rmq_queue_window_put(&file->window, file->fd, f->file_bytes, at - start, units, length,
                                      first + count >= max_offset);
        if (rc < 0)
            return rc;
        RMQ_CRASH("dispatch-units");
        f->writes += (uint64_t)rc;
        units += length;
        at += length;
        left -= length;
    }
    return 0;
}

int rmq_queue_files_read(struct rmq_queue_files *f, uint32_t slot, uint64_t at, struct rmq_cq_unit *unit)
{
    uint8_t bytes[RMQ_CQ_UNIT_BYTES];
    uint64_t place = at * RMQ_CQ_UNIT_BYTES, start = place - place % f->file_bytes;
    int64_t number = take_file(f, slot, start);
    if (number < 0)
        return (int)number;
    ssize_t n = pread(f->files[number - 1].fd, bytes, sizeof bytes, (off_t)(place - start));
    if (n != (ssize_t)sizeof bytes)
        return n < 0 ? -errno : -EINVAL;
    rmq_cq_decode(bytes, unit);
    return unit->size > 0 && unit->commit_log_offset >= 0 && !(unit->size == RMQ_CQ_FILL_SIZE && !unit->commit_log_offset);
}

int rmq_queue_files_fill(struct rmq_queue_files *f, uint32_t slot, uint64_t first, uint64_t end)
{
    uint8_t buffer[FILL_UNITS * RMQ_CQ_UNIT_BYTES];
    const struct rmq_cq_unit filler = {.commit_log_offset = 0, .size = RMQ_CQ_FILL_SIZE, .tags_code = 0};
    for (int i = 0; i < FILL_UNITS; i++)
        rmq_cq_encode(buffer + i * RMQ_CQ_UNIT_BYTES, &filler, 1);
    while (first < end) {
        uint64_t count = end - first < FILL_UNITS ? end - first : FILL_UNITS;
        int rc = rmq_queue_files_write(f, slot, first, buffer, count, end);
        if (rc < 0)
            return rc;
        first += count;
    }
    return 0;
}

int rmq_queue_files_collect(struct rmq_queue_files *f)
{
    for (uint32_t i = 0; i < f->open_count; i++) {
        if (!f->files[i].dirty)
            continue;
        if (!rmq_background_sync_all(f->sync)) {
            int fd = fcntl(f->files[i].fd, F_DUPFD_CLOEXEC, 0);
            if (fd < 0)
                return -errno;
            int rc = rmq_background_sync_add(f->sync, fd);
            if (rc < 0)
                return rc;
        }
        f->files[i].dirty = 0;
    }
    return 0;
}

/* --- cleaning --------------------------------------------------------------------------------------------- */

static int open_old(char *path, int length, uint64_t start)
{
    append_name(path, length, start);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int read_units(int fd, uint64_t number, uint64_t count, uint8_t *units)
{
    ssize_t n = pread(fd, units, count * RMQ_CQ_UNIT_BYTES, (off_t)(number * RMQ_CQ_UNIT_BYTES));
    return n == (ssize_t)(count * RMQ_CQ_UNIT_BYTES) ? 0 : n < 0 ? -errno : -EINVAL;
}

/* The first unit of the file in [*number, end) that is no filler; *number = end when there is none. 0 or -errno. */
static int behind_fillers(int fd, uint64_t *number, uint64_t end, struct rmq_cq_unit *unit)
{
    uint8_t units[FILL_UNITS * RMQ_CQ_UNIT_BYTES];
    while (*number < end) {
        uint64_t count = end - *number < FILL_UNITS ? end - *number : FILL_UNITS;
        int rc = read_units(fd, *number, count, units);
        if (rc < 0)
            return rc;
        uint64_t fillers = (uint64_t)rmq_cq_fillers(units, count);
        *number += fillers;
        if (fillers < count) {
            rmq_cq_decode(units + fillers * RMQ_CQ_UNIT_BYTES, unit);
            return 0;
        }
    }
    return 0;
}

/* Start of the oldest file, UINT64_MAX when there is none, or -errno in *error. */
static uint64_t oldest_file(const char *folder, int *error)
{
    uint64_t oldest = UINT64_MAX;
    DIR *directory = opendir(folder);
    *error = directory || errno == ENOENT ? 0 : -errno;
    if (!directory)
        return oldest;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char *end;
        if (strlen(entry->d_name) != NAME_DIGITS || strspn(entry->d_name, "0123456789") != NAME_DIGITS)
            continue;
        uint64_t start = strtoull(entry->d_name, &end, 10);
        oldest = start < oldest ? start : oldest;
    }
    closedir(directory);
    return oldest;
}

/* First unit of the file in [low, high) whose record begins at or behind `min`, `high` when there is none; or -errno. */
static int64_t first_unit_at(int fd, uint64_t low, uint64_t high, uint64_t min)
{
    uint64_t found = high;
    while (low < high) {
        struct rmq_cq_unit unit;
        uint64_t middle = low + (high - low) / 2, number = middle;
        int rc = behind_fillers(fd, &number, high, &unit);
        if (rc < 0)
            return rc;
        if (number < high && (uint64_t)unit.commit_log_offset < min) {
            low = number + 1;
        } else {
            found = number < high ? number : found;
            high = middle;
        }
    }
    return (int64_t)found;
}

/* The same for the file that begins at byte `start` of the queue. */
static int64_t first_unit_of_file(char *path, int length, uint64_t start, uint64_t low, uint64_t high, uint64_t min)
{
    int fd = open_old(path, length, start);
    if (fd < 0)
        return fd;
    int64_t found = first_unit_at(fd, low, high, min);
    close(fd);
    return found;
}

int rmq_queue_files_clean(struct rmq_queue_files *f, uint32_t slot, uint64_t min)
{
    struct rmq_queue *queue = rmq_queue_at(f->plane, slot);
    uint64_t max = queue->max_offset, units = f->file_bytes / RMQ_CQ_UNIT_BYTES;
    char path[PATH_MAX];
    int rc, deleted = 0, length = folder_of(f, slot, path);
    if (!rmq_topic_is_live(rmq_load(&rmq_topic_at(f->plane, queue->topic_id)->config))) {
        rmq_queue_files_drop(f, slot);
        return 0;
    }
    if (length < 0 || !max)
        return length < 0 ? length : 0;
    uint64_t start = oldest_file(path, &rc), low = queue->min_offset;
    if (rc < 0 || start == UINT64_MAX)
        return rc;
    for (; start + f->file_bytes < max * RMQ_CQ_UNIT_BYTES; start += f->file_bytes) { /* never the newest */
        int64_t found = first_unit_of_file(path, length, start, 0, units, min);
        if (found < 0)
            return (int)found;
        if ((uint64_t)found < units)
            break;
        rc = rmq_deferred_close_unlink(f->deferred_close, path);
        if (rc < 0)
            return rc;
        deleted++;
    }
    low = low > start / RMQ_CQ_UNIT_BYTES ? low : start / RMQ_CQ_UNIT_BYTES;
    while (low < max) {
        uint64_t first = rmq_queue_files_file_start(f, low), end = max - first < units ? max - first : units;
        int64_t found = first_unit_of_file(path, length, first * RMQ_CQ_UNIT_BYTES, low - first, end, min);
        if (found < 0)
            return (int)found;
        low = first + (uint64_t)found;
        if ((uint64_t)found < end)
            break;
    }
    if (low > queue->min_offset)
        rmq_store(&queue->min_offset, low < max ? low : max);
    return deleted;
}

/* --- life ------------------------------------------------------------------------------------------------- */

int rmq_queue_files_open(struct rmq_queue_files *f, struct rmq_plane *plane, struct rmq_background_sync *sync,
                         struct rmq_deferred_close *deferred_close, uint32_t open_max)
{
    const struct rmq_settings *settings = &rmq_header(plane)->settings;
    memset(f, 0, sizeof *f);
    if (!settings->queue_file_bytes || settings->queue_file_bytes % RMQ_CQ_UNIT_BYTES || !open_max)
        return -EINVAL;
    int n = snprintf(f->root, sizeof f->root, "%s/consumequeue", settings->store_path);
    if (n < 0 || (size_t)n >= sizeof f->root)
        return -ENAMETOOLONG;
    int rc = rmq_sigbus_guard_open();
    if (rc < 0)
        return rc;
    f->plane = plane;
    f->sync = sync;
    f->deferred_close = deferred_close;
    f->file_bytes = settings->queue_file_bytes;
    f->open_max = open_max;
    f->files = calloc(open_max, sizeof *f->files);
    f->by_slot = calloc(rmq_header(plane)->tables.queue_capacity, sizeof *f->by_slot);
    if (f->files && f->by_slot)
        return 0;
    rmq_queue_files_close(f);
    return -ENOMEM;
}

void rmq_queue_files_close(struct rmq_queue_files *f)
{
    for (uint32_t i = 0; f->files && i < f->open_count; i++) {
        rmq_queue_window_close(&f->files[i].window);
        close(f->files[i].fd);
    }
    free(f->files);
    free(f->by_slot);
    memset(f, 0, sizeof *f);
}
