/* published_marks.h: which pieces of committed staged writes the log already holds, and how much of each.
 *
 * A published record carries its mark, (number of the commit + 1) << 16 | chunk, where a transaction's records carry the place of
 * their half message (prepared transaction offset). No client can set it: read workers store 0.
 */
#ifndef RMQ_PUBLISHED_MARKS_H
#define RMQ_PUBLISHED_MARKS_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
/* Marks of the records that begin in [from, limit) of one mapped log file, of which `end` bytes are log and whose first byte has
 * commit log offset `file_start`. Neighbours with the same mark are one entry, and `records` says how many they are. Bytes that
 * are no record of their place are passed over: what is published behind them must be found all the same. Returns the number
 * of entries; `*at` is where to go on, below `limit` when there was no room for more. */
int64_t rmq_published_marks(const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                            uint64_t *marks, uint32_t *records, size_t marks_max, uint64_t *at);
/* cdef-end */

#endif
