#include "ceiling.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int ceiling_log_open(struct ceiling_log *log, const char *path, size_t size)
{
    *log = (struct ceiling_log){.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), .size = size};
    if (log->fd < 0)
        return -errno;
    int rc = posix_fallocate(log->fd, 0, (off_t)size);
    if (rc != 0) {
        close(log->fd);
        return -rc;
    }
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, log->fd, 0);
    if (base == MAP_FAILED) {
        rc = -errno;
        close(log->fd);
        return rc;
    }
    log->base = base;
    return 0;
}

void ceiling_log_close(struct ceiling_log *log)
{
    munmap(log->base, log->size);
    close(log->fd);
}

void ceiling_log_append(struct ceiling_log *log, const uint8_t *data, size_t len)
{
    if (log->at + len > log->size)
        log->at = 0;
    memcpy(log->base + log->at, data, len);
    log->at += len;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double ceiling_fdatasync_rate(struct ceiling_log *log, size_t write_bytes, double seconds)
{
    double begin = seconds_now(), now;
    uint64_t syncs = 0;
    do {
        if (log->at + write_bytes > log->size)
            log->at = 0;
        memset(log->base + log->at, (int)(syncs & 0xff) + 1, write_bytes);
        log->at += write_bytes;
        if (fdatasync(log->fd) < 0)
            return -errno;
        syncs++;
        now = seconds_now();
    } while (now - begin < seconds);
    return (double)syncs / (now - begin);
}
