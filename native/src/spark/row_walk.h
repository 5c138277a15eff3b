/* row_walk.h: selects the messages that become rows. It walks over a range of the log, over the units of a ConsumeQueue, or
 * over the body of a pull answer. A message becomes a row if its queue is selected, its queue offset and store time are in
 * range, and no transaction holds it back. Walks stop where the caller has to act, and continue from there.
 */
#ifndef RMQ_ROW_WALK_H
#define RMQ_ROW_WALK_H

#include "spark/arrow_rows.h"

/* cdef-begin */
/* Offsets [begin, end) of a queue. Records before `log_begin` belong to an earlier topic of the same name. */
struct rmq_wanted_queue {
    int64_t begin;
    int64_t end;
    int64_t log_begin;
};

struct rmq_wanted_rows {
    struct rmq_name_table queues;           /* by topic and queue id */
    const struct rmq_wanted_queue *spans;   /* in the order of `queues.names` */
    int64_t begin_ms;                       /* store times [begin_ms, end_ms) */
    int64_t end_ms;
    int32_t check_crc;                      /* of the bodies of wanted rows */
    int32_t reserved;
};

/* Stop reasons of their own; the others are RMQ_SCAN_*, RMQ_RECORD_* and RMQ_ROW_FALLBACK (also: a compressed body, an inner
 * batch), with which `view` is filled for the record at `at`. */
#define RMQ_WALK_OUTSIDE 5      /* the unit's record is not in the bytes given */
#define RMQ_WALK_BAD_PLACE -6   /* a valid record of the log that names another physical offset than its own */
#define RMQ_WALK_NO_UNIT -7     /* no unit is written there, or a filler */
#define RMQ_WALK_FOREIGN_QUEUE -8    /* the unit's record has another size, place, queue or queue offset */

struct rmq_walk_stop {
    uint64_t at;                /* a place in the bytes, or a number of units: the first that is not dealt with */
    int32_t reason;
    int32_t reserved;
    struct rmq_record_view view;
};

#define RMQ_WALK_ANYWHERE -1    /* as `data_start`: records lie where they say, as in the body of a pull answer */

/* Records of data[from, end); data[0] has commit-log offset `data_start`. */
void rmq_rows_from_log(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, const uint8_t *data,
                       uint64_t from, uint64_t end, int64_t data_start, struct rmq_walk_stop *stop);

/* The records of units[from, count), 20 bytes each, of the wanted queue number `queue`; units[0] has queue offset
 * `unit_offset`. data[0, data_bytes) begins at commit-log offset `data_start`; NULL: no record is looked at, for columns
 * that the units answer (topic, partition, offset, commit_log_offset). */
void rmq_rows_from_units(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, uint32_t queue,
                         const uint8_t *units, uint64_t from, uint64_t count, int64_t unit_offset, const uint8_t *data,
                         uint64_t data_bytes, int64_t data_start, struct rmq_walk_stop *stop);
/* cdef-end */

_Static_assert(sizeof(struct rmq_walk_stop) == 16 + sizeof(struct rmq_record_view), "rmq_walk_stop");

#endif
