#include "log/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int path_join(char *to, const char *directory, uint64_t offset)
{
    int n = snprintf(to, PATH_MAX, "%s/%020" PRIu64, directory, offset);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int rmq_file_system_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = syncfs(fd) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

int rmq_folder_make(const char *folder)
{
    char path[PATH_MAX];
    size_t length = strlen(folder);
    if (length >= sizeof path)
        return -ENAMETOOLONG;
    memcpy(path, folder, length + 1);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        char kept = *at;
        *at = 0;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return -errno;
        if (!kept)
            return 0;
        *at = kept;
    }
}

/* Folder of a path, "." when it names none. 0 or -ENAMETOOLONG. */
static int parent_of(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(folder, path, length);
    folder[length] = 0;
    if (!length)
        strcpy(folder, slash ? "/" : ".");
    return 0;
}

static int allocate(int fd, uint64_t bytes, int durable)
{
    int rc = -posix_fallocate(fd, 0, (off_t)bytes);
    return !rc && durable && fsync(fd) < 0 ? -errno : rc;
}

/* A file that has no name until it is whole, so that nothing is left of it when this process dies.
 * -EOPNOTSUPP where that cannot be had. */
static int create_nameless(const char *folder, const char *final, uint64_t bytes, int durable)
{
    char self[64];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL ? -EOPNOTSUPP : -errno;
    int rc = allocate(fd, bytes, durable);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!rc && linkat(AT_FDCWD, self, AT_FDCWD, final, AT_SYMLINK_FOLLOW) < 0)
        rc = errno == ENOENT || errno == EXDEV || errno == EPERM ? -EOPNOTSUPP : -errno;
    close(fd);
    return rc;
}

static int create_and_rename(const char *temporary, const char *final, uint64_t bytes, int durable)
{
    int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int rc = allocate(fd, bytes, durable);
    if (close(fd) < 0 && !rc)
        rc = -errno;
    if (!rc && rename(temporary, final) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(temporary);
    return rc;
}

int rmq_file_create(const char *temporary, const char *final, uint64_t bytes, int durable)
{
    char folder[PATH_MAX];
    int rc = parent_of(final, folder);
    if (rc < 0)
        return rc;
    rc = create_nameless(folder, final, bytes, durable);
    if (rc == -EOPNOTSUPP)
        rc = create_and_rename(temporary, final, bytes, durable);
    return rc;
}

int rmq_segment_exists(const char *directory, uint64_t offset, uint64_t bytes)
{
    char path[PATH_MAX];
    struct stat status;
    int rc = path_join(path, directory, offset);
    if (rc < 0)
        return rc;
    if (stat(path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    return (uint64_t)status.st_size == bytes ? 1 : -EINVAL;
}

int rmq_segment_create(const char *root, const char *directory, uint64_t offset, uint64_t bytes)
{
    char final[PATH_MAX], temporary[PATH_MAX];
    int rc = rmq_segment_exists(directory, offset, bytes);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = path_join(final, directory, offset);
    if (rc < 0)
        return rc;
    int n = snprintf(temporary, sizeof temporary, "%s/ringmq-new-%020" PRIu64, root, offset);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return -ENAMETOOLONG;
    rc = rmq_file_create(temporary, final, bytes, 1);
    if (rc != -EXDEV)
        return rc;
    /* the log lives on another file system: a stock broker skips folders inside its log folder */
    n = snprintf(temporary, sizeof temporary, "%s/.new", directory);
    if (n < 0 || (size_t)n + 24 >= sizeof temporary)
        return -ENAMETOOLONG;
    if (mkdir(temporary, 0755) < 0 && errno != EEXIST)
        return -errno;
    snprintf(temporary + n, sizeof temporary - (size_t)n, "/%020" PRIu64, offset);
    return rmq_file_create(temporary, final, bytes, 1);
}

int rmq_segment_map(struct rmq_segment *segment, const char *directory, uint64_t offset, uint64_t bytes, int writable)
{
    char path[PATH_MAX];
    struct stat status;
    memset(segment, 0, sizeof *segment);
    int rc = path_join(path, directory, offset);
    if (rc < 0)
        return rc;
    int fd = open(path, (writable ? O_RDWR | O_NOFOLLOW : O_RDONLY) | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) < 0)
        rc = -errno;
    else if ((uint64_t)status.st_size != bytes)
        rc = -EINVAL;
    else if (writable)
        rc = -posix_fallocate(fd, 0, (off_t)bytes);
    if (!rc) {
        char *base = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
            rc = -errno;
        } else {
            segment->base = base;
            segment->offset = offset;
            segment->bytes = bytes;
        }
    }
    close(fd);
    return rc;
}

void rmq_segment_unmap(struct rmq_segment *segment)
{
    if (segment->base)
        munmap(segment->base, segment->bytes);
    segment->base = NULL;
}
