/* queue_filter.c: units of a queue whose records match a condition. queue_reader.h has the rules. */
#include "filter/filter_program.h"
#include "log/loaded_pages.h"
#include "queue/queue_reader.h"

#define LOOK_UNITS 64

struct look {
    const struct rmq_filter_program *program;
    const uint8_t *base; /* of the mapping in which `loaded` lies, and its file */
    uint64_t key;
    struct rmq_loaded loaded;
    uint64_t log_min, log_end, work;
};

/* 1 = it matches, 0 = not, or its record is deleted; -EBUSY = it is on disk; -EAGAIN, -ENOMEM. */
static int matches(struct rmq_queue_reader *q, struct look *look, const struct rmq_queue_unit *unit)
{
    uint64_t position = (uint64_t)unit->commit_log_offset;
    uint32_t size = (uint32_t)unit->size, length;
    struct rmq_file_map *map;
    const uint8_t *properties, *at = rmq_queue_reader_log_at(q, position, size, look->log_min, &map);
    if (!at)
        return errno == ENOENT ? 0 : errno == ENOMEM ? -ENOMEM : -EAGAIN;
    if (map->base != look->base || map->key != look->key)
        look->loaded = (struct rmq_loaded){0};
    look->base = map->base;
    look->key = map->key;
    if (!rmq_is_in_memory(q->settings, look->log_end, position) && !rmq_record_is_loaded(&look->loaded, map, at, size))
        return -EBUSY;
    if (!rmq_filter_properties(at, size, &properties, &length))
        length = 0; /* as a record without properties */
    return rmq_filter_evaluate(look->program, properties, length, &look->work) == RMQ_FILTER_TRUE;
}

int rmq_queue_reader_matching(struct rmq_queue_reader *q, uint32_t slot, int64_t offset, const struct rmq_filter_program *program,
                              struct rmq_queue_unit *units, int room, int64_t *next_offset)
{
    static const struct rmq_subscription_copy all = {.kind = RMQ_SUBSCRIPTION_ALL};
    struct rmq_queue_unit some[LOOK_UNITS];
    struct look look = {
        .program = program,
        .log_min = rmq_load(&q->plane->watermarks->min_offset),
        .log_end = rmq_load(&q->plane->watermarks->append_offset),
    };
    int found = 0;
    *next_offset = offset;
    if (room <= 0)
        return -EINVAL;
    while (*next_offset - offset < RMQ_QUEUE_SCAN_MAX) {
        int64_t at = *next_offset, behind;
        int count = rmq_queue_reader_units(q, slot, at, &all, some, LOOK_UNITS, &behind);
        if (count < 0 && at > offset)
            return found;
        if (count < 0 || behind == at) {
            *next_offset = behind;
            return count < 0 ? count : found;
        }
        for (int i = 0; i < count; i++) {
            int wants = matches(q, &look, &some[i]);
            if (wants < 0) {
                *next_offset = some[i].queue_offset;
                return *next_offset > offset ? found : wants;
            }
            if (wants)
                units[found++] = some[i];
            *next_offset = some[i].queue_offset + 1;
            if (found == room || look.work >= RMQ_QUEUE_FILTER_WORK_MAX)
                return found;
        }
        *next_offset = behind;
    }
    return found;
}
