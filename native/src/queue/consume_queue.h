/* ConsumeQueue units (20 bytes) and BatchConsumeQueue units (46 bytes), bytes as in RocketMQ 5.3, big-endian.
 *
 *   unit         0 offset i64   8 size i32   12 tags code i64
 *   batch unit   0 offset i64   8 size i32   12 tags code i64   20 store time i64   28 base offset i64
 *               36 batch size i16   38 compacted offset i32 (-1)   42 reserved i32 (0)
 *
 * A unit is valid while offset >= 0 and size > 0.
 */
#ifndef RMQ_CONSUME_QUEUE_H
#define RMQ_CONSUME_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_CQ_UNIT_BYTES 20
#define RMQ_CQ_BATCH_UNIT_BYTES 46
#define RMQ_CQ_FILL_SIZE 0x7FFFFFFF     /* size of the filler units before the first unit of a queue */

struct rmq_cq_unit {
    int64_t commit_log_offset;
    int64_t tags_code;
    int32_t size;
    int32_t reserved;
};

struct rmq_cq_batch_unit {
    int64_t commit_log_offset;
    int64_t tags_code;
    int64_t store_time_ms;
    int64_t base_offset;
    int32_t size;
    int32_t batch_size;
};

/* Encodes `count` units one after another into private memory (a pwrite buffer). */
void rmq_cq_encode(uint8_t *to, const struct rmq_cq_unit *units, size_t count);

/* Reads one unit; the size is loaded first with acquire order. 1 = valid, 0 = not (yet) written. */
int rmq_cq_decode(const uint8_t *at, struct rmq_cq_unit *out);

/* Number of leading valid units; `*end_offset` = end in the log of the last of them, -1 when none (fillers name no
 * record). */
int64_t rmq_cq_valid_units(const uint8_t *at, size_t count, int64_t *end_offset);

/* Like rmq_cq_valid_units, but ends at a unit that no dispatch has written there: its record begins before the end of
 * the unit's before it, or ends behind `log_end`. `*end_offset`: in the end of the unit before, -1 = none. */
int64_t rmq_cq_sound_units(const uint8_t *at, size_t count, int64_t log_end, int64_t *end_offset);

/* Number of leading units that are valid and begin below `commit_log_offset` (stock's truncation rule). */
int64_t rmq_cq_units_below(const uint8_t *at, size_t count, int64_t commit_log_offset);

/* Number of leading filler units. They stand for offsets without a record, so a search by place in the log steps over
 * them to the next unit. */
int64_t rmq_cq_fillers(const uint8_t *at, size_t count);

/* A digest of units, in order, on top of that of the units before them (0 without any). Tags codes count unless
 * `without_tags`. */
uint64_t rmq_cq_digest(uint64_t digest, const uint8_t *at, size_t count, int without_tags);

void rmq_cq_batch_encode(uint8_t *to, const struct rmq_cq_batch_unit *unit);
int rmq_cq_batch_decode(const uint8_t *at, struct rmq_cq_batch_unit *out);
/* cdef-end */

/* The digest with one more unit. It finds damage, and is no protection against a forger. */
static inline uint64_t rmq_cq_digest_unit(uint64_t digest, int64_t commit_log_offset, int32_t size, int64_t tags_code)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u; /* odd: a step loses no difference */
    digest = (digest ^ (uint64_t)commit_log_offset) * factor;
    digest = (digest ^ digest >> 32 ^ (uint32_t)size) * factor;
    digest = (digest ^ digest >> 32 ^ (uint64_t)tags_code) * factor;
    return digest ^ digest >> 32;
}

/* A filler stands for no message: dispatch bridges a gap of queue offsets with them. */
static inline int rmq_cq_is_filler(const struct rmq_cq_unit *unit)
{
    return unit->size == RMQ_CQ_FILL_SIZE && !unit->commit_log_offset;
}

_Static_assert(sizeof(struct rmq_cq_unit) == 24, "rmq_cq_unit");
_Static_assert(sizeof(struct rmq_cq_batch_unit) == 40, "rmq_cq_batch_unit");

#endif
