/* Where three properties of each scanned record lie, for readers that build columns (Spark). */
#ifndef RMQ_COLUMNS_H
#define RMQ_COLUMNS_H

#include "record.h"

/* cdef-begin */
/* Places count from the first byte of the record; length 0 means absent (its place is 0 then). */
struct rmq_row_keys {
    uint32_t tags_at;
    uint32_t tags_length;
    uint32_t keys_at;
    uint32_t keys_length;
    uint32_t uniq_key_at;
    uint32_t uniq_key_length;
};

/* Fills `out[0..count)` for rows that rmq_log_scan has checked; `file` and `file_start` as given to it. */
void rmq_rows_keys(const uint8_t *file, int64_t file_start, const struct rmq_record_view *rows, size_t count,
                   struct rmq_row_keys *out);
/* cdef-end */

_Static_assert(sizeof(struct rmq_row_keys) == 24, "rmq_row_keys");

#endif
