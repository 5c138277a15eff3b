/* series_text.h: lines of the Prometheus text format. The series of a family differ in their labels and values alone:
 * a line is the column's head, the row's labels, the column's tail, the value in decimal, a line end.
 */
#ifndef RMQ_SERIES_TEXT_H
#define RMQ_SERIES_TEXT_H

#include <stdint.h>

/* cdef-begin */
#define RMQ_SERIES_VALUE_MAX 21 /* bytes of a value with its line end */
struct rmq_series_column {
    const char *head;
    const char *tail;
    uint32_t head_bytes;
    uint32_t tail_bytes;
};
/* Writes a line per column for each row from `*row` on, while `room` is surely enough for the lines of a row. Moves `*row` to
 * the first row that was not written. Returns the number of bytes. Row i has the labels from ends[i - 1] up to ends[i], and
 * values[i * column_count + column]. */
uint64_t rmq_series_text(char *out, uint64_t room, const struct rmq_series_column *columns, uint32_t column_count,
                         const char *labels, const uint64_t *ends, const int64_t *values, uint64_t rows, uint64_t *row);
/* cdef-end */
#endif
