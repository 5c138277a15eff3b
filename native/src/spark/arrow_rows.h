/* Messages as Arrow columns, written straight into the buffers of a batch that the caller owns.
 *
 * The caller allocates the buffers and says their sizes; a row that does not fit is not begun (RMQ_SCAN_FULL). Offsets
 * of variable-length columns are Arrow's: offsets[0] = 0, offsets[count] = bytes used. Bytes of the log are hostile.
 */
#ifndef RMQ_ARROW_ROWS_H
#define RMQ_ARROW_ROWS_H

#include "codec/record.h"
#include "spark/name_table.h"

/* cdef-begin */
/* A binary or utf8 column. A NULL `offsets` means that the column is not wanted, a NULL `validity` that it has no nulls.
 * Bits of `validity` are set for values that are there; the caller clears them when a batch begins. */
struct rmq_text_column {
    int32_t *offsets;
    uint8_t *bytes;
    uint8_t *validity;
    uint64_t size;                  /* of `bytes` */
    uint64_t nulls;
};

/* A list of (name, value) per row. */
struct rmq_pair_column {
    int32_t *offsets;               /* NULL: not wanted */
    uint8_t *validity;
    uint64_t pairs_max;
    uint64_t nulls;
    struct rmq_text_column name;
    struct rmq_text_column value;
};

/* One batch being filled; NULL columns are not wanted. Times in microseconds, as Spark has them. */
struct rmq_arrow_rows {
    uint64_t count;
    uint64_t rows_max;
    int32_t *partition;
    int64_t *offset;
    int64_t *timestamp_us;
    int64_t *born_timestamp_us;
    int32_t *sys_flag;
    int64_t *commit_log_offset;
    struct rmq_text_column key;
    struct rmq_text_column value;
    struct rmq_text_column topic;
    struct rmq_text_column tags;
    struct rmq_text_column msg_id;
    struct rmq_pair_column headers;     /* null where a row has none */
    struct rmq_pair_column properties;
    struct rmq_name_table system_names; /* properties that are no headers */
};

/* The parts of one row: a record's head, and body and properties of the record or of one message in it. */
struct rmq_row_source {
    const uint8_t *record;
    const struct rmq_record_view *view;
    const uint8_t *body;
    const uint8_t *properties;
    int64_t queue_offset;
    uint32_t body_length;
    uint32_t properties_length;
    int32_t is_clean;               /* properties are UTF-8 and no name occurs twice */
    int32_t reserved;
};

/* Results of rmq_row_put besides RMQ_RECORD_OK and RMQ_SCAN_FULL. */
#define RMQ_ROW_FALLBACK 4              /* its properties are no UTF-8, or too many to compare: to be cleaned first */

int rmq_row_put(struct rmq_arrow_rows *rows, const struct rmq_row_source *source);
/* cdef-end */

_Static_assert(sizeof(struct rmq_text_column) == 40, "rmq_text_column");
_Static_assert(sizeof(struct rmq_row_source) == 56, "rmq_row_source");

#endif
