#include "index/index_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "log/segment.h"
#include "plane/ring.h"

enum {
    NAME_DIGITS = RMQ_INDEX_NAME_BYTES - 1,
    END_OFFSET_AT = 24,
};

static void path_of(const struct rmq_index_files *f, const char *name, char *to)
{
    snprintf(to, PATH_MAX, "%s/%s", f->directory, name);
}

static int is_index_name(const struct dirent *entry)
{
    return strlen(entry->d_name) == NAME_DIGITS && strspn(entry->d_name, "0123456789") == NAME_DIGITS;
}

/* Names in ascending order (the caller frees them one by one), their number or -errno. */
static int list_names(const char *directory, struct dirent ***names)
{
    int n = scandir(directory, names, is_index_name, alphasort);
    return n < 0 ? -errno : n;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* --- one file ----------------------------------------------------------------------------------------------- */

/* Unmaps the file. For a deleted file this is the last holder, which frees its blocks. */
static void detach(struct rmq_index_files *f, struct rmq_index_file *file)
{
    if (file->index.base) {
        struct stat status;
        int is_deleted = fstat(file->fd, &status) == 0 && status.st_nlink == 0;
        munmap(file->index.base, f->bytes);
        if (is_deleted)
            rmq_deferred_close_add(f->deferred_close, file->fd);
        else
            close(file->fd);
    }
    memset(file, 0, sizeof *file);
    file->fd = -1;
}

/* Maps the file; its holes are allocated first, for a stock broker leaves some. */
static int attach(struct rmq_index_files *f, struct rmq_index_file *file, const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    path_of(f, name, path);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &status) < 0 ? -errno : (uint64_t)status.st_size != f->bytes ? -EINVAL : 0;
    if (!rc)
        rc = -posix_fallocate(fd, 0, (off_t)f->bytes);
    char *base = rc ? MAP_FAILED : mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!rc && base == MAP_FAILED)
        rc = -errno;
    if (!rc)
        rc = rmq_index_attach(&file->index, base, f->bytes, f->settings->index_slot_count,
                              f->settings->index_entry_count, 1);
    if (rc < 0) {
        if (base != MAP_FAILED)
            munmap(base, f->bytes);
        close(fd);
        memset(file, 0, sizeof *file);
        return rc;
    }
    file->fd = fd;
    snprintf(file->name, sizeof file->name, "%s", name);
    return 0;
}

/* Local time as stock names its files; later than the newest name in any case. */
static void new_name(const struct rmq_index_files *f, char *to)
{
    int64_t now_ms = rmq_wall_ms();
    for (;; now_ms++) {
        time_t seconds = (time_t)(now_ms / 1000);
        struct tm local;
        char text[64];
        localtime_r(&seconds, &local);
        size_t n = strftime(text, sizeof text, "%Y%m%d%H%M%S", &local);
        snprintf(text + n, sizeof text - n, "%03d", (int)(now_ms % 1000));
        snprintf(to, RMQ_INDEX_NAME_BYTES, "%.17s", text);
        if (!f->current.index.base || strcmp(to, f->current.name) > 0)
            return;
        if (now_ms % 1000 == 0 && strncmp(to, f->current.name, 14) < 0)
            now_ms += 999; /* the clock went back: step by seconds */
    }
}

static int sync_later(struct rmq_index_files *f, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy < 0 ? -errno : rmq_background_sync_add(f->sync, copy);
}

/* Makes the next file; the full one becomes the previous one and goes to disk in the background. */
static int roll(struct rmq_index_files *f)
{
    char name[RMQ_INDEX_NAME_BYTES], final[PATH_MAX], temporary[PATH_MAX];
    struct rmq_index_header header;
    struct rmq_index_file next;
    new_name(f, name);
    path_of(f, name, final);
    snprintf(temporary, sizeof temporary, "%s/ringmq-new-index", f->settings->store_path);
    int rc = rmq_file_create(temporary, final, f->bytes, 0);
    if (!rc)
        rc = attach(f, &next, name);
    if (rc < 0)
        return rc;
    RMQ_CRASH("index-file-made");
    int folder = open(f->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        rmq_background_sync_add(f->sync, folder);
    if (f->current.index.base) {
        rmq_index_prefill(&next.index, &f->current.index);
        rmq_index_header_get(&f->current.index, &header);
        rc = sync_later(f, f->current.fd);
        f->full_time_ms = rc < 0 ? f->full_time_ms : header.end_time_ms;
        detach(f, &f->previous);
        f->previous = f->current;
    }
    f->current = next;
    f->count++;
    return 0;
}

/* --- the row -------------------------------------------------------------------------------------------------- */

static int attach_newest(struct rmq_index_files *f)
{
    struct dirent **names;
    int count = list_names(f->directory, &names), rc = count < 0 ? count : 0;
    if (count > 1)
        rc = attach(f, &f->previous, names[count - 2]->d_name);
    if (!rc && count > 0)
        rc = attach(f, &f->current, names[count - 1]->d_name);
    if (count >= 0) {
        f->count = (uint64_t)count;
        free_names(names, count);
    }
    if (rc < 0 || !f->current.index.base)
        return rc;
    struct rmq_index_header header;
    rmq_index_header_get(&f->current.index, &header);
    if (header.next_number <= 1 && f->previous.index.base)
        rmq_index_prefill(&f->current.index, &f->previous.index);
    rmq_index_files_replay(f);
    return 0;
}

int rmq_index_files_open(struct rmq_index_files *f, const struct rmq_settings *settings,
                         struct rmq_background_sync *sync, struct rmq_deferred_close *deferred_close)
{
    memset(f, 0, sizeof *f);
    f->current.fd = f->previous.fd = -1;
    f->settings = settings;
    f->sync = sync;
    f->deferred_close = deferred_close;
    f->replay_end = -1;
    if (!settings->message_index_enable)
        return 0;
    if (settings->index_slot_count < 1 || settings->index_entry_count < 2)
        return -EINVAL;
    f->bytes = (uint64_t)rmq_index_file_size(settings->index_slot_count, settings->index_entry_count);
    int n = snprintf(f->directory, sizeof f->directory, "%s/index", settings->store_path);
    if (n < 0 || (size_t)n >= sizeof f->directory)
        return -ENAMETOOLONG;
    int rc = rmq_folder_make(f->directory);
    if (!rc)
        rc = attach_newest(f);
    if (rc < 0)
        rmq_index_files_close(f);
    return rc;
}

void rmq_index_files_close(struct rmq_index_files *f)
{
    detach(f, &f->current);
    detach(f, &f->previous);
}

static int room(struct rmq_index_files *f)
{
    if (f->current.index.base && !rmq_index_is_full(&f->current.index))
        return 0;
    return roll(f);
}

int rmq_index_files_put(struct rmq_index_files *f, int32_t key_hash, int64_t commit_log_offset, int64_t store_time_ms)
{
    int rc = f->current.index.base ? rmq_index_put(&f->current.index, key_hash, commit_log_offset, store_time_ms) : -ENOSPC;
    if (rc == -ENOSPC) {
        rc = room(f);
        if (!rc)
            rc = rmq_index_put(&f->current.index, key_hash, commit_log_offset, store_time_ms);
    }
    f->dirty |= rc > 0;
    return rc;
}

void rmq_index_files_replay(struct rmq_index_files *f)
{
    struct rmq_index_header header;
    if (!f->current.index.base)
        return;
    rmq_index_header_get(&f->current.index, &header);
    f->replay_end = header.end_offset;
}

int rmq_index_files_put_record(struct rmq_index_files *f, const uint8_t *topic, size_t topic_length,
                               const struct rmq_dispatch_keys *keys, int32_t sys_flag, int64_t commit_log_offset,
                               int64_t store_time_ms)
{
    if (!keys->uniq_key && !keys->keys)
        return 0;
    int put = 0, rc = f->current.index.base ? 0 : room(f);
    if (rc < 0)
        return rc;
    uint32_t done = rmq_index_replayed(&f->current.index, &f->previous.index, commit_log_offset);
    if (done == UINT32_MAX)
        return 0;
    for (;;) {
        uint32_t before = done;
        rc = rmq_index_put_record(&f->current.index, topic, topic_length, keys, sys_flag, commit_log_offset,
                                  store_time_ms, &done);
        put += (int)(done - before);
        f->dirty |= done != before;
        if (rc != -ENOSPC)
            return rc < 0 ? rc : put;
        rc = roll(f);
        if (rc < 0)
            return rc;
    }
}

void rmq_index_files_prefetch(const struct rmq_index_files *f, int32_t key_hash)
{
    if (f->current.index.base)
        __builtin_prefetch(f->current.index.base + RMQ_INDEX_HEADER_BYTES +
                               (uint64_t)((uint32_t)key_hash % f->current.index.slots) * RMQ_INDEX_SLOT_BYTES,
                           1);
}

int rmq_index_files_collect(struct rmq_index_files *f)
{
    if (!f->dirty || !f->current.index.base)
        return 0;
    int rc = sync_later(f, f->current.fd);
    if (!rc)
        f->dirty = 0;
    return rc;
}

/* End offset of a file by its header, or -errno. */
static int64_t end_offset_of(const char *path)
{
    uint8_t bytes[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = pread(fd, bytes, sizeof bytes, END_OFFSET_AT);
    int64_t end = n == (ssize_t)sizeof bytes ? (int64_t)rmq_get64(bytes) : n < 0 ? -errno : -EINVAL;
    close(fd);
    return end;
}

int rmq_index_files_clean(struct rmq_index_files *f, uint64_t min_commit_log_offset)
{
    struct dirent **names;
    char path[PATH_MAX];
    if (!f->bytes)
        return 0;
    int deleted = 0, rc = 0, count = list_names(f->directory, &names);
    if (count < 0)
        return count;
    for (int i = 0; i + 1 < count; i++) {
        path_of(f, names[i]->d_name, path);
        int64_t end = end_offset_of(path);
        if (end < 0)
            rc = (int)end;
        if (end < 0 || (uint64_t)end >= min_commit_log_offset)
            break;
        rc = rmq_deferred_close_unlink(f->deferred_close, path);
        if (rc < 0)
            break;
        deleted++;
    }
    free_names(names, count);
    f->count -= (uint64_t)deleted;
    return rc < 0 ? rc : deleted;
}
