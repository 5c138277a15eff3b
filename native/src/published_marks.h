/* published_marks.h: which pieces of committed staged writes the log already holds.
 *
 * A published record carries its mark, (number of the commit + 1) << 16 | chunk, where a transaction's records carry the place of
 * their half message (prepared transaction offset). No client can set it: read workers store 0.
 */
#ifndef RMQ_PUBLISHED_MARKS_H
#define RMQ_PUBLISHED_MARKS_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
/* Marks of the records in [from, end) of one mapped log file whose first byte has commit log offset `file_start`; neighbours
 * with the same mark count once. Returns their number; `*at`, `*reason` as rmq_log_scan has them (record.h). */
int64_t rmq_published_marks(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start, uint64_t *marks,
                            size_t marks_max, uint64_t *at, int *reason);
/* cdef-end */

#endif
