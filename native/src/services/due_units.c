#include "services/due_units.h"

#include "base/bytes.h"
#include "codec/record.h"

#define SYS_FLAG_AT 36
#define STORE_TIME_AT 56
#define STORE_TIME_AT_V6 68

/* 0, so due, of a record that is too short for a store time: its copy is refused as damaged. */
static int64_t store_time(const struct rmq_queue_unit *unit, const uint8_t *record)
{
    if (unit->size < RMQ_RECORD_FIXED_BYTES)
        return 0;
    int v6 = rmq_get32(record + SYS_FLAG_AT) & RMQ_SYS_BORN_HOST_V6;
    return (int64_t)rmq_get64(record + (v6 ? STORE_TIME_AT_V6 : STORE_TIME_AT));
}

static int64_t due_ms(const struct rmq_queue_unit *unit, const uint8_t *record, int64_t now_ms, int64_t delay_ms)
{
    if (unit->tags_code <= now_ms || unit->tags_code - now_ms <= delay_ms)
        return unit->tags_code;
    int64_t shortened = (int64_t)((uint64_t)store_time(unit, record) + (uint64_t)delay_ms);
    return shortened < unit->tags_code ? shortened : unit->tags_code;
}

uint32_t rmq_due_units(const struct rmq_queue_unit *units, const struct rmq_held_record *records, uint32_t count, int64_t now_ms,
                       int64_t delay_ms, int64_t *next_due_ms)
{
    *next_due_ms = -1;
    for (uint32_t i = 0; i < count; i++) {
        int64_t due = due_ms(&units[i], records[i].at, now_ms, delay_ms);
        if (due > now_ms) {
            *next_due_ms = due;
            return i;
        }
    }
    return count;
}
