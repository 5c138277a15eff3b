/* IndexFile: hash index from "topic#key" to commit log offsets, bytes as in RocketMQ 5.3 (IndexFile, IndexHeader).
 *
 *   header (40, big-endian)   0 begin time   8 end time   16 begin offset   24 end offset
 *                            32 slots used (i32)   36 next entry number (i32, starts at 1)
 *   slots   40 + slot * 4                      newest entry number of the chain, 0 = empty
 *   entries 40 + slots * 4 + number * 20       key hash i32, offset i64, seconds since begin i32, previous number i32
 *
 * One writer, any number of readers of the same mapping. A put stores in the order: end time and offset, entry, slot,
 * then slots-used and next-number together in one 8-byte store, which is the commit. So a writer that is killed between
 * two stores leaves at most one entry that a slot names but the header does not count. rmq_index_attach takes it back.
 * The record's end offset is there already, so that a replay is recognised:
 *
 *   record < end offset    all its keys are in, skip it
 *   record == end offset   the newest entries with this offset are its first keys, in order: skip that many
 *
 * Replaying any range of the log in order therefore neither loses nor doubles a key, and ends in the same bytes.
 */
#ifndef RMQ_INDEX_H
#define RMQ_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "codec/record.h"

/* cdef-begin */
#define RMQ_INDEX_HEADER_BYTES 40
#define RMQ_INDEX_SLOT_BYTES 4
#define RMQ_INDEX_ENTRY_BYTES 20

struct rmq_index {
    uint8_t *base;                  /* NULL = not attached */
    uint32_t slots;
    uint32_t entries_max;           /* full when the next number reaches this */
};

struct rmq_index_header {
    int64_t begin_time_ms;
    int64_t end_time_ms;
    int64_t begin_offset;
    int64_t end_offset;
    int32_t slots_used;
    int32_t next_number;            /* a stored value <= 0 is read as 1 */
};

int64_t rmq_index_file_size(uint32_t slots, uint32_t entries_max);

/* Checks the size and, for the writer, takes back an entry that a killed writer left uncommitted. 0 or -EINVAL. */
int rmq_index_attach(struct rmq_index *file, void *base, size_t bytes, uint32_t slots, uint32_t entries_max,
                     int writable);
void rmq_index_header_get(const struct rmq_index *file, struct rmq_index_header *out);

/* A new file takes over the end values of its full predecessor as its begin and end values (those > 0). Do it again
 * after attaching a file that is still empty (next number 1): a writer killed in here leaves half of it. */
void rmq_index_prefill(struct rmq_index *file, const struct rmq_index *full_predecessor);
int rmq_index_is_full(const struct rmq_index *file);

/* abs(Java hash of "topic#key"), with MIN_VALUE as 0. */
int32_t rmq_index_key_hash(const uint8_t *topic, size_t topic_length, const uint8_t *key, size_t key_length);

/* Puts one entry. 1 = put, 0 = skipped because the record lies before the file's end offset, -ENOSPC = full. */
int rmq_index_put(struct rmq_index *file, int32_t key_hash, int64_t commit_log_offset, int64_t store_time_ms);

/* Puts the unique key and each token of KEYS of one record, beginning with key number `*done`, and counts `*done` up.
 * Returns the number of entries put; -ENOSPC when the file is full: go on in the next file with the same `*done`.
 * Rollback records have no keys. */
int rmq_index_put_record(struct rmq_index *file, const uint8_t *topic, size_t topic_length,
                         const struct rmq_dispatch_keys *keys, int32_t sys_flag, int64_t commit_log_offset,
                         int64_t store_time_ms, uint32_t *done);

/* Number of keys of the record at `commit_log_offset` in the two newest files: the `*done` of a replay. `previous` may be NULL.
 * UINT32_MAX if the record is before the end offset (skip it whole). */
uint32_t rmq_index_replayed(const struct rmq_index *newest, const struct rmq_index *previous,
                            int64_t commit_log_offset);

/* Recovery only: removes the newest entries whose record begins at or behind `commit_log_offset` (a log that was cut). Returns
 * their number. The end time stays, as an upper bound. */
int64_t rmq_index_truncate(struct rmq_index *file, int64_t commit_log_offset);

/* Walks the chain of one hash, newest first: offsets with a time in [begin_ms, end_ms]. Returns the count. */
int64_t rmq_index_query(const struct rmq_index *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                        int64_t *offsets, size_t offsets_max);
/* The same, but looks at no more than *steps entries, and counts *steps down: clients choose how long a chain is. */
int64_t rmq_index_query_bounded(const struct rmq_index *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                                uint32_t *steps, int64_t *offsets, size_t offsets_max);

/* Entry `number` for verify: 0, or -EINVAL outside 1..next-1. */
int rmq_index_entry(const struct rmq_index *file, int32_t number, int32_t *key_hash, int64_t *commit_log_offset,
                    int32_t *seconds, int32_t *previous);

/* Walks all chains: returns the number of committed entries that their chain does not reach or that break it. */
int64_t rmq_index_check(const struct rmq_index *file);
/* cdef-end */

_Static_assert(sizeof(struct rmq_index) == 16, "rmq_index");
_Static_assert(sizeof(struct rmq_index_header) == 40, "rmq_index_header");

#endif
