/* Log rows as plain numbers for batch checks: the values that dispatch derives from each record of a mapped range. */
#ifndef RMQ_LOG_TABLE_H
#define RMQ_LOG_TABLE_H

#include "codec/record_values.h"
#include "recovery/log_recovery.h"

/* cdef-begin */
struct rmq_log_row {
    int64_t position;               /* commit log offset */
    int64_t queue_offset;
    int64_t tags_code;
    int64_t store_time_ms;
    int32_t size;
    int32_t queue_row;              /* row of the queue table, in order of creation */
    int32_t sys_flag;
    int32_t properties_state;       /* RMQ_PROPERTIES_* */
    int32_t message_count;
    int32_t key_count;              /* entries the index should have for it */
    int32_t impossible;             /* RMQ_VALUE_*: neither queue nor index has it, queue_row is -1 then; else 0 */
    int32_t reserved;
};

/* Like rmq_log_scan, with CRC check: fills rows and, one after another, the index hashes of all their keys. Stops with
 * RMQ_SCAN_FULL when either table is full. The queue table only gives numbers to queues; -ENOMEM without memory. */
int64_t rmq_log_table(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start,
                      struct rmq_queue_table *queues, const struct rmq_delay_levels *levels, struct rmq_log_row *rows,
                      size_t rows_max, int32_t *hashes, size_t hashes_max, size_t *hashes_count, uint64_t *at,
                      int *reason);
/* cdef-end */

_Static_assert(sizeof(struct rmq_log_row) == 64, "rmq_log_row");

#endif
