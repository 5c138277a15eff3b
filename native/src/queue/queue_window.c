#include "queue/queue_window.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sigbus_guard.h"
#include "plane/plane.h"
#include "plane/ring.h"
#include "queue/consume_queue.h"

enum {
    WINDOW_BYTES = 256 << 10, /* small: neighbours share a page of the page table */
    BLOCK_BYTES = 4096,
    LARGE_BLOCK_BYTES = 16 << 10,  /* behind as much in the file */
    SHORT_BYTES = BLOCK_BYTES / 4, /* longer runs would use a block up too soon */
    SHORT_RUNS_FIRST = 4,          /* before a queue is worth a mapping: two system calls and a fault */
};

_Static_assert(RMQ_CQ_UNIT_BYTES == 20, "unit");

/* --- calls of write --------------------------------------------------------------------------------------- */

/* The units, and `ahead` zeros behind them of which fewer may get there. Bytes written, or -errno. */
static int64_t write_ahead(int fd, uint64_t at, const uint8_t *units, uint64_t length, uint64_t ahead)
{
    static uint8_t zeros[LARGE_BLOCK_BYTES];
    uint64_t done = 0;
    while (done < length) {
        const struct iovec parts[2] = {{.iov_base = (void *)(uintptr_t)(units + done), .iov_len = length - done},
                                       {.iov_base = zeros, .iov_len = ahead}};
        ssize_t n = ahead ? pwritev(fd, parts, 2, (off_t)(at + done))
                          : pwrite(fd, units + done, length - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && ahead && (errno == ENOSPC || errno == EDQUOT)) {
            ahead = 0; /* the units themselves may have room yet */
            continue;
        }
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (uint64_t)n;
    }
    return (int64_t)done;
}

static uint64_t block_end(uint64_t at, uint64_t file_bytes)
{
    uint64_t block = at < LARGE_BLOCK_BYTES ? BLOCK_BYTES : LARGE_BLOCK_BYTES;
    uint64_t end = (at + block - 1) / block * block;
    return end < file_bytes ? end : file_bytes;
}

static int write_units(struct rmq_queue_window *w, int fd, uint64_t file_bytes, uint64_t at, const uint8_t *units,
                       uint64_t length, int at_end)
{
    uint64_t end = at + length;
    int ahead = at_end && !w->plain && length <= SHORT_BYTES && w->short_runs >= SHORT_RUNS_FIRST && end >= w->ready_to;
    int64_t done = write_ahead(fd, at, units, length, ahead ? block_end(end, file_bytes) - end : 0);
    if (done < 0)
        return (int)done;
    if (ahead) {
        w->ready_from = at;
        w->ready_to = at + (uint64_t)done;
    }
    return 1;
}

/* --- stores ----------------------------------------------------------------------------------------------- */

struct stores {
    uint8_t *to;
    const uint8_t *units;
    uint64_t length;
};

/* A unit is one when it has its size, which therefore comes last. */
static void store_units(void *argument)
{
    const struct stores *s = argument;
    for (uint64_t at = 0; at < s->length; at += RMQ_CQ_UNIT_BYTES) {
        uint32_t size;
        memcpy(s->to + at, s->units + at, 8);
        memcpy(s->to + at + 12, s->units + at + 12, 8);
        memcpy(&size, s->units + at + 8, sizeof size);
        RMQ_CRASH("dispatch-unit-without-size");
        rmq_store((uint32_t *)(void *)(s->to + at + 8), size);
    }
}

static int in_window(const struct rmq_queue_window *w, uint64_t at, uint64_t end)
{
    return w->base && at >= w->mapped_from && end <= w->mapped_from + WINDOW_BYTES;
}

/* 1 when the window lies over [at, end) now. */
static int move_window(struct rmq_queue_window *w, int fd, uint64_t at, uint64_t end)
{
    uint64_t from = at - at % WINDOW_BYTES;
    if (end > from + WINDOW_BYTES)
        return 0;
    if (w->base)
        munmap(w->base, WINDOW_BYTES);
    void *base = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
    w->base = base == MAP_FAILED ? NULL : base;
    w->mapped_from = from;
    w->plain = !w->base;
    return !w->plain;
}

int rmq_queue_window_put(struct rmq_queue_window *w, int fd, uint64_t file_bytes, uint64_t at, const uint8_t *units,
                         uint64_t length, int at_end)
{
    uint64_t end = at + length;
    w->short_runs += length <= SHORT_BYTES && w->short_runs < SHORT_RUNS_FIRST;
    if (at < w->ready_from || end > w->ready_to || w->plain)
        return write_units(w, fd, file_bytes, at, units, length, at_end);
    if (!in_window(w, at, end) && !move_window(w, fd, at, end))
        return write_units(w, fd, file_bytes, at, units, length, 0);
    struct stores stores = {.to = w->base + (at - w->mapped_from), .units = units, .length = length};
    if (!rmq_sigbus_guard_run(store_units, &stores))
        return 0;
    w->plain = 1; /* write returns the reason, or finds another block */
    return write_units(w, fd, file_bytes, at, units, length, 0);
}

void rmq_queue_window_close(struct rmq_queue_window *w)
{
    if (w->base)
        munmap(w->base, WINDOW_BYTES);
    w->base = NULL;
}
