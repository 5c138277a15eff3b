/* A disk for tests, preloaded by test_preloaded_disk.py. Each sync adds a line "call inode" to the file that RECORDED_SYNCS
 * names; while the file that FULL_DISK names exists, pwrite and pwritev find no room. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int recorded(const char *call, int fd)
{
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

int fsync(int fd) { return recorded("fsync", fd); }
int fdatasync(int fd) { return recorded("fdatasync", fd); }
int syncfs(int fd) { return recorded("syncfs", fd); }
