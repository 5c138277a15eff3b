/* Recovery scan: walks mapped log files record by record and collects the log's facts about each queue.
 *
 * The scan holds the last record back until a valid record follows or the caller keeps it. The reason is the rule for a torn
 * properties string, which applies only to the very last record of the log. The scan skips a record with an impossible value
 * (record_values.h), which belongs to no queue.
 *
 * A record whose body alone is damaged stays and counts for its queue, if it cannot be torn: it was whole once. Its unit may
 * exist, and acknowledged records may follow.
 *
 * Of records that have units the scan makes a digest for each queue. The caller compares it with that of the units: a unit
 * with a flipped bit names another place, and its message would be lost.
 */
#ifndef RMQ_LOG_RECOVERY_H
#define RMQ_LOG_RECOVERY_H

#include <stddef.h>
#include <stdint.h>

#include "codec/record_values.h"

/* cdef-begin */
struct rmq_queue_row {
    const uint8_t *topic;           /* owned by the table */
    uint32_t topic_length;
    int32_t queue_id;
    int64_t queue_max;              /* in: offset after the last unit of the ConsumeQueue */
    int64_t queue_end;              /* in: end in the log of that unit's record, or where the topic begins; -1 = neither */
    /* Out, about the records behind queue_end, -1 = none. A topic that was deleted and made again begins at 0 again:
     * where offsets fall back to 0 and go on from there, only the newer life counts. */
    int64_t log_first;              /* queue offset of the first one */
    int64_t log_next;               /* offset after the last one */
    int64_t missing_from;           /* commit log offset of the first one */
    int32_t is_batch;               /* in: BatchConsumeQueue, counts INNER_NUM messages */
    uint32_t row_number;            /* in order of creation */
    int64_t again_from;             /* own: commit log offset of a record at 0 that may begin another life, -1 = none */
    int64_t again_next;             /* own: queue offset behind it */
    int64_t topic_from;             /* in: records in front of this commit log offset are of an earlier topic of the name */
    int32_t without_tags;           /* in: tags codes of its units depend on settings, and are not compared */
    int32_t is_uneven;              /* out: the digest leaves records out, because their queue offsets do not follow each other */
    /* Out, about records that have units, below queue_max: the digest of the units that they ask for (rmq_cq_digest),
     * which are those from seen_first to seen_next. seen_first = -1: no such record. */
    int64_t seen_first;
    int64_t seen_next;
    uint64_t seen_digest;
};

/* Queue id of a row that stands for all queues of its topic. Rows of the topic that are made later begin with its queue_end. */
enum { RMQ_ANY_QUEUE = -2147483647 - 1 };

#define RMQ_BAD_BODIES_NAMED 5

/* Rows by topic and queue id. */
struct rmq_queue_table {
    struct rmq_queue_row **rows;    /* in order of creation */
    uint32_t *buckets;              /* row number + 1, open addressing, 0 = free */
    size_t count;
    size_t buckets_size;            /* power of two, at least twice the rows */
    struct rmq_queue_row *recent;   /* records of one queue often follow each other */
    uint64_t secret[2];             /* see name_hash.h */
};

struct rmq_log_recovery {
    struct rmq_queue_table *table;
    int64_t records;
    int64_t last_offset;            /* commit log offset of the newest valid record, -1 = none */
    int64_t last_store_time_ms;
    int64_t last_size;
    int32_t last_properties_state;  /* RMQ_PROPERTIES_* of that record */
    int32_t reason;                 /* the reason for the end of the last rmq_log_recovery_scan call */
    int64_t held_queue_offset;
    int64_t held_count;             /* 0 = nothing held back */
    struct rmq_queue_row *held_row;
    int64_t gap_max;                /* in: offsets that a queue may leave out in front of a record, 0 = any number */
    int64_t impossible;             /* records that no queue counts */
    int64_t impossible_offset;      /* commit log offset of the first one */
    int32_t impossible_field;       /* its RMQ_VALUE_* */
    int32_t reserved;
    int64_t whole_until;            /* in: records in front of this commit log offset were whole once */
    int64_t whole_before_ms;        /* in: and so were records with a lower store time */
    int64_t bad_bodies;             /* of them, those whose body has another CRC now */
    int64_t bad_body_offsets[RMQ_BAD_BODIES_NAMED]; /* commit log offsets of the first ones */
};

/* `secret`: 16 bytes that no client knows. NULL without memory. */
struct rmq_queue_table *rmq_queue_table_new(const uint64_t *secret);
void rmq_queue_table_free(struct rmq_queue_table *table);
int64_t rmq_queue_table_size(const struct rmq_queue_table *table);
/* Finds or makes a row; NULL without memory. Valid as long as the table. */
struct rmq_queue_row *rmq_queue_table_row(struct rmq_queue_table *table, const uint8_t *topic, size_t topic_length,
                                          int32_t queue_id);
/* Row number `index` in order of creation, NULL behind the end. */
struct rmq_queue_row *rmq_queue_table_at(const struct rmq_queue_table *table, int64_t index);

void rmq_log_recovery_init(struct rmq_log_recovery *state, struct rmq_queue_table *table);

/* Scans [from, end) of a file; returns the place in the file where it stopped, or -ENOMEM. `state->reason` is
 * RMQ_SCAN_END, RMQ_RECORD_BLANK (go on in the next file) or why the bytes there are no record. */
int64_t rmq_log_recovery_scan(struct rmq_log_recovery *state, const uint8_t *file, uint64_t from, uint64_t end,
                              int64_t file_start, int check_crc);

/* Counts the record held back (keep != 0) or forgets it. */
void rmq_log_recovery_finish(struct rmq_log_recovery *state, int keep);
/* cdef-end */

_Static_assert(sizeof(struct rmq_queue_row) == 120, "rmq_queue_row");
_Static_assert(sizeof(struct rmq_log_recovery) == 168, "rmq_log_recovery");

#endif
