/* A disk for tests, preloaded by test_preloaded_disk.py. Each sync adds a line "call inode" to the file that RECORDED_SYNCS
 * names; while the file that FULL_DISK names exists, pwrite and pwritev find no room. The file that FAULTY_FILES names holds
 * "sync " or "room " and a text: syncs end with EIO, or posix_fallocate with ENOSPC, for paths with this text. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_faulty(const char *what, int fd)
{
    const char *name = getenv("FAULTY_FILES");
    char text[64], link[64], path[4096];
    int from = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t count = from < 0 ? 0 : read(from, text, sizeof text - 1), length;
    if (from >= 0)
        close(from);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (count <= 5 || memcmp(text, what, 5) || (length = readlink(link, path, sizeof path - 1)) <= 0)
        return 0;
    text[count] = path[length] = 0;
    return strstr(path, text + 5) != NULL;
}

static int recorded(const char *call, int fd)
{
    if (is_faulty("sync ", fd)) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    const char *path = getenv("RECORDED_SYNCS");
    struct stat status;
    int result = real(fd), to = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (to >= 0 && !fstat(fd, &status))
        dprintf(to, "%s %llu\n", call, (unsigned long long)status.st_ino);
    if (to >= 0)
        close(to);
    return result;
}

static int is_full(void)
{
    const char *path = getenv("FULL_DISK");
    return path && !access(path, F_OK);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (is_full()) {
        errno = ENOSPC;
        return -1;
    }
    return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, bytes, count, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    if (is_full()) {
        errno = ENOSPC;
        return -1;
    }
    return ((ssize_t (*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, "pwritev"))(fd, parts, count, at);
}

int posix_fallocate64(int fd, off64_t from, off64_t count)
{
    if (is_faulty("room ", fd))
        return ENOSPC;
    return ((int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64"))(fd, from, count);
}

int posix_fallocate(int fd, off_t from, off_t count) { return posix_fallocate64(fd, from, count); }
int fsync(int fd) { return recorded("fsync", fd); }
int fdatasync(int fd) { return recorded("fdatasync", fd); }
int syncfs(int fd) { return recorded("syncfs", fd); }
