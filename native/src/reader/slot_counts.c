#include "reader/slot_counts.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bytes.h"

#define SLOTS (2 * 7 * 86400)
#define SLOT_BYTES 32
#define COUNT_AT 24
#define REOPEN_MS 1000

void rmq_slot_counts_open(struct rmq_slot_counts *counts) { *counts = (struct rmq_slot_counts){-1, INT64_MIN / 2}; }

void rmq_slot_counts_close(struct rmq_slot_counts *counts)
{
    if (counts->fd >= 0)
        close(counts->fd);
    counts->fd = -1;
}

static void open_again(struct rmq_slot_counts *counts, const char *store_path, int64_t now_ms)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/timerwheel", store_path);
    rmq_slot_counts_close(counts);
    if (length > 0 && (size_t)length < sizeof path)
        counts->fd = open(path, O_RDONLY | O_CLOEXEC);
    counts->opened_ms = now_ms;
}

int64_t rmq_slot_count(struct rmq_slot_counts *counts, const char *store_path, int64_t slot_ms, int64_t precision_ms, int64_t now_ms)
{
    uint8_t slot[SLOT_BYTES];
    int64_t time = slot_ms / precision_ms;
    if (now_ms - counts->opened_ms >= REOPEN_MS || now_ms < counts->opened_ms)
        open_again(counts, store_path, now_ms);
    if (counts->fd < 0 || pread(counts->fd, slot, sizeof slot, time % SLOTS * SLOT_BYTES) != sizeof slot ||
        (int64_t)rmq_get64(slot) != time)
        return 0;
    return (int32_t)rmq_get32(slot + COUNT_AT);
}
