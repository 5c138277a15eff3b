/* published_marks.h: scans of the log for what its records name: a mark, or the half message of a commit.
 * ports_layout.h has the parts of a mark.
 */
#ifndef RMQ_PUBLISHED_MARKS_H
#define RMQ_PUBLISHED_MARKS_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
/* Marks of one range, of the records that begin in [from, limit) of one mapped log file. `end` bytes of it are log; its first
 * byte has commit-log offset `file_start`. Neighbours with the same mark are one entry, and `records` is their number. Bytes
 * that are no record are skipped, because marks behind them must be found all the same. Returns the number of entries. `*at` is
 * the next position, below `limit` if `out` was full. */
int64_t rmq_published_marks(uint32_t range, const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                            uint64_t *marks, uint32_t *records, size_t marks_max, uint64_t *at);
/* The committed messages of transactions among these records: their log offsets, and those of their half messages. A half at 0
 * may be none: copies of committed messages have the bits of a commit, and name no half. `at`: as above. */
int64_t rmq_committed_halves(const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                             uint64_t *halves, uint64_t *commits, size_t halves_max, uint64_t *at);
/* cdef-end */

struct rmq_record_view;

/* Bytes of the record at `at`, or of the blank that fills the file; 1 when there is none. Without a record the mark is 0. */
uint64_t rmq_published_step(const uint8_t *file, uint64_t at, uint64_t end, int64_t file_start, struct rmq_record_view *view);

#endif
