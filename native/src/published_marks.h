/* published_marks.h: the mark of a published record, which says on disk what a service has published it from.
 *
 * The mark lies where a transaction's records carry the place of their half message (prepared transaction offset). No client can
 * set it: read workers store 0. A mark is a number of three parts, so that no service takes another's records for its own:
 *
 *   bits 56 to 62   the range: the role of the service, which the log keeps. A role number is given to no other service later.
 *   bits 48 to 55   the lane: which of the service's sources
 *   bits 0 to 47    where in the source: the queue offset of the record that was published again
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

/* Marks, all of one range, of the records that begin in [from, limit) of one mapped log file, of which `end` bytes are log and whose first byte has
 * commit log offset `file_start`. Neighbours with the same mark are one entry, and `records` says how many they are. Bytes that
 * are no record of their place are passed over: what is published behind them must be found all the same. Returns the number
 * of entries; `*at` is where to go on, below `limit` when there was no room for more. */
int64_t rmq_published_marks(uint32_t range, const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                            uint64_t *marks, uint32_t *records, size_t marks_max, uint64_t *at);
/* cdef-end */

#endif
