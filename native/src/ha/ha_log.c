#include "ha/ha_log.h"

#include <errno.h>

static int holds(const struct rmq_segment *file, uint64_t offset)
{
    return file->base && offset >= file->offset && offset - file->offset < file->bytes;
}

void rmq_ha_log_keep(struct rmq_ha_log *log, const uint64_t *in_use, uint32_t count)
{
    for (int i = 0; i < RMQ_HA_LOG_FILES; i++) {
        struct rmq_segment *file = &log->files[i];
        uint32_t user = 0;
        while (user < count && !holds(file, in_use[user]))
            user++;
        if (user == count)
            rmq_segment_unmap(file);
    }
}

const char *rmq_ha_log_at(struct rmq_ha_log *log, uint64_t offset, const uint64_t *in_use, uint32_t count, int *error)
{
    struct rmq_segment *vacant = NULL;
    for (int i = 0; i < RMQ_HA_LOG_FILES; i++) {
        if (holds(&log->files[i], offset))
            return log->files[i].base + (offset - log->files[i].offset);
        if (!log->files[i].base)
            vacant = &log->files[i];
    }
    if (!vacant) {
        rmq_ha_log_keep(log, in_use, count);
        for (int i = 0; i < RMQ_HA_LOG_FILES; i++)
            if (!log->files[i].base)
                vacant = &log->files[i];
    }
    uint64_t bytes = log->settings->segment_bytes, start = offset - offset % bytes;
    *error = vacant ? rmq_segment_map(vacant, log->settings->commit_log_path, start, bytes, 0) : -EBUSY;
    return *error < 0 ? NULL : vacant->base + (offset - start);
}
