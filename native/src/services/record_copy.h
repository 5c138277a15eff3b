/* record_copy.h: requests that publish stored records again: delayed messages, half messages, timers, retries.
 *
 * A service reads a record of the CommitLog, says by data what its copy changes, and submits the request through its port;
 * `write` encodes it as any other. The copy lies in the service's own arena, so the record's page may go away.
 *
 * How pairs are edited:
 *  - A name has at most one edit. Names are compared byte by byte. Edits look at stored pairs, not at each other's results.
 *  - REMOVE leaves out every pair of the name. RENAME gives every pair of the name another one, in its place. SET leaves out and
 *    appends. DEFAULT appends unless a pair has the name. ADD leaves out, adds `number` to the last value, and appends; a value
 *    that is no number, or none at all, counts as 0.
 *  - Appended pairs stand behind the stored ones, in the order of the edits.
 *  - Pairs that no edit names keep their bytes and their order. Of equal names the last value counts, as in the record.
 *  - Pieces without name, 01 or value are left out: MessageDecoder.string2messageProperties passes over them, and recovery takes
 *    them for the mark of a torn record. A missing last 02 is added.
 *
 * `write` adds settings.additions to what clients send and not to copies (RMQ_APPEND_FLAG_COPY), as stock does. The store host
 * is always that of `write`.
 *
 * An inner batch is refused: it counts for INNER_NUM queue offsets, and `write` gives a request one.
 *
 * `ringmq.store.record_copy` is the same rule in Python.
 */
#ifndef RMQ_RECORD_COPY_H
#define RMQ_RECORD_COPY_H

#include "codec/record.h"
#include "plane/layout.h"
#include "queue/queue_reader.h"

/* cdef-begin */
#define RMQ_EDIT_REMOVE 1
#define RMQ_EDIT_RENAME 2  /* the value is the new name */
#define RMQ_EDIT_SET 3
#define RMQ_EDIT_DEFAULT 4
#define RMQ_EDIT_ADD 5     /* needs no value */

/* The source of the value of SET and DEFAULT. */
#define RMQ_FROM_TEXT 0
#define RMQ_FROM_NUMBER 1
#define RMQ_FROM_TOPIC 2        /* these four from the stored record */
#define RMQ_FROM_QUEUE_ID 3
#define RMQ_FROM_QUEUE_OFFSET 4
#define RMQ_FROM_MESSAGE_ID 5   /* upper-case hex of store host, port and physical offset */

#define RMQ_EDITS_MAX 32         /* of one copy */

struct rmq_pair_edit {
    uint16_t kind;               /* RMQ_EDIT_* */
    uint16_t value_from;         /* RMQ_FROM_* */
    uint16_t name_length;        /* at least 1; no 00, 01, 02 in a name */
    uint16_t value_length;       /* of TEXT, at least 1; no 00, 02 in a value */
    uint32_t name_at;            /* in the texts of the batch */
    uint32_t value_at;
    int64_t number;
};

#define RMQ_COPY_CHECK_CRC 1
#define RMQ_COPY_SET_FLAG 2
#define RMQ_COPY_SET_RECONSUME_TIMES 4
#define RMQ_COPY_ADD_RECONSUME_TIMES 8
#define RMQ_COPY_SET_BORN_TIME 16
#define RMQ_COPY_SET_BORN_HOST 32 /* host and port, IPv4 unless BORN_V6 */
#define RMQ_COPY_BORN_V6 64
#define RMQ_COPY_NO_WAIT 128      /* answered at append under every policy */

/* Reasons why a copy was not made. The causes up to PROPERTIES are in the record: another try has the same result. */
#define RMQ_COPY_MADE 0
#define RMQ_COPY_DAMAGED 1        /* detail: RMQ_RECORD_* */
#define RMQ_COPY_PLACE 2           /* detail: the physical offset that the record names instead of `position` */
#define RMQ_COPY_INNER_BATCH 3    /* the record holds one, or the copy would be marked as one */
#define RMQ_COPY_BODY 4           /* detail: its bytes, over body_bytes_max */
#define RMQ_COPY_NUL 5            /* detail: where among the properties; recovery takes a NUL for the mark of a torn record */
#define RMQ_COPY_TOPIC 6          /* the record's topic cannot be a value: empty, or with 00 or 02 */
#define RMQ_COPY_PROPERTIES 7     /* detail: their bytes, over properties_bytes_max */
#define RMQ_COPY_EDIT 8           /* detail: number of the first edit that is malformed; RMQ_EDITS_MAX: their range is */
/* A copy whose queue_slot is RMQ_NONE has no target. Its maker sets cause and detail (copy_targets.h). */
#define RMQ_COPY_NO_PAIR 9        /* the record does not name its target; detail: RMQ_COPY_REAL_* */
#define RMQ_COPY_NO_TOPIC 10
#define RMQ_COPY_NO_QUEUE 11      /* detail: the queue id */
#define RMQ_COPY_REAL_TOPIC 1
#define RMQ_COPY_REAL_QID 2

/* One copy to be made. 112 bytes. */
struct rmq_record_copy {
    const uint8_t *record;
    uint64_t record_bytes;       /* that may be read from there on: its file's or its answer's */
    int64_t position;            /* log offset that the record must have, -1: any */
    uint32_t topic_id;           /* target of the copy */
    uint32_t queue_slot;
    uint32_t queue_id;
    uint32_t flags;              /* RMQ_COPY_CHECK_CRC .. */
    uint32_t edits_from;         /* edits [edits_from, + edits_count) of the batch */
    uint32_t edits_count;
    uint32_t sys_flag_clear;     /* then set: the transaction type, for one */
    uint32_t sys_flag_set;
    int32_t flag;                /* SET_FLAG */
    int32_t reconsume_times;     /* SET_ or ADD_RECONSUME_TIMES */
    uint32_t born_port;          /* SET_BORN_HOST */
    uint32_t cause;              /* out: RMQ_COPY_MADE ..; in: of a copy without a target */
    int64_t born_time_ms;        /* SET_BORN_TIME */
    int64_t prepared_transaction_offset; /* never the record's: of a commit its half's place, else a mark (ports_layout.h) or 0 */
    uint8_t born_host[16];
    int64_t detail;              /* out */
};

struct rmq_copy_batch {
    const struct rmq_pair_edit *edits;
    const uint8_t *texts;        /* names and values of the edits */
    uint8_t *arena;
    uint64_t arena_at;           /* the copies' bytes go to [arena_at, arena_end); moved behind the copies made */
    uint64_t arena_end;
    uint64_t needed;             /* out: bytes of the first copy that found no room, 0 if all did */
    uint32_t edits_count;
    uint32_t texts_bytes;
    uint32_t body_bytes_max;
    uint32_t properties_bytes_max;
};

/* Makes copies[0..count): requests[i] belongs to copies[i]; of a refused one its kind is 0. The submitter adds the token and, in
 * rmq_port_submit, the generation. Returns how many were made or refused: below `count` the next one needs batch->needed bytes. */
uint32_t rmq_record_copies(struct rmq_record_copy *copies, uint32_t count, struct rmq_copy_batch *batch,
                           struct rmq_request *requests);
/* Closes the gaps of requests that were not made (kind 0). The token and the mark of each other one are `mark` + the queue offset
 * of its unit: requests[i] belongs to units[i]. How many they are. */
uint32_t rmq_record_copies_mark(struct rmq_request *requests, const struct rmq_queue_unit *units, uint32_t count, uint64_t mark);
/* Lets copies[i] read records[i], which rmq_queue_reader_records holds for units[i]. */
void rmq_record_copies_read(struct rmq_record_copy *copies, const struct rmq_queue_unit *units,
                            const struct rmq_held_record *records, uint32_t count);
/* cdef-end */

_Static_assert(sizeof(struct rmq_pair_edit) == 24, "rmq_pair_edit");
_Static_assert(sizeof(struct rmq_record_copy) == 112, "rmq_record_copy");
_Static_assert(RMQ_EDITS_MAX == 32, "struct found has a bit an edit");

#endif
