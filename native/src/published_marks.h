/* published_marks.h: the mark of a published record. On disk, it names the source record of a service.
 *
 * The mark is in the field that holds the offset of the half message in a transaction's records (prepared transaction offset).
 * Clients cannot set it: read workers store 0. A mark is a number of three parts, so that no service takes another's records
 * for its own:
 *
 *   bits 56 to 62   the range: the role of the service, which the log keeps. A role number is never given to another service.
 *   bits 48 to 55   the lane: the number of the service's source
 *   bits 0 to 47    the queue offset, in that source, of the record that was published again
 *
 * Range 0 is that of staged writes: (number of the commit + 1) << 16 | chunk.
 */
#ifndef RMQ_PUBLISHED_MARKS_H
#define RMQ_PUBLISHED_MARKS_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_MARK_RANGE_SHIFT 56
#define RMQ_MARK_LANE_SHIFT 48
#define RMQ_MARK_LANES_MAX 256
#define RMQ_MARK_RANGE_STAGED 0

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
