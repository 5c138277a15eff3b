/* plain_ends.h: takes ends of transactions (37) out of an inbox.
 *
 * An end is plain if its request is (codec/plain_requests.h) and it is a commit or a rollback. Python decodes all others: it adds
 * them to the same table (transaction_ends.h), or answers them.
 */
#ifndef RMQ_PLAIN_ENDS_H
#define RMQ_PLAIN_ENDS_H

#include "codec/plain_requests.h"

/* cdef-begin */
#define RMQ_CODE_END_TRANSACTION 37
#define RMQ_END_UNKNOWN 0
#define RMQ_END_COMMIT 8
#define RMQ_END_ROLLBACK 12
#define RMQ_END_GROUP_BYTES_MAX 255

/* The record of a request 37. */
struct rmq_end_fields {
    struct rmq_plain_head head;
    int64_t queue_offset;       /* tranStateTableOffset */
    int64_t position;           /* commitLogOffset */
    int32_t commit_or_rollback; /* RMQ_END_* */
    uint32_t from_check;        /* fromTransactionCheck */
    struct rmq_plain_text group; /* producerGroup */
};

struct rmq_plain_end {
    struct rmq_inbox_record record;
    struct rmq_plain_asked asked;
    struct rmq_end_fields fields;
    int64_t first;              /* of a SENT or LEFT end: half-queue offset of the first half of its transaction */
    uint32_t why;               /* RMQ_END_* of transaction_ends.h: why Python gets it */
    uint8_t text[RMQ_END_GROUP_BYTES_MAX + 1];
};

extern const struct rmq_plain_table rmq_end_table;

/* Reads an ask. 1 = it is a plain end; 0 = it is not, and `out` is undefined. */
int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out);
/* Takes the first ask of the inbox. 1 = it is a plain end; 0 = it is none, its asker has given it up, or there is none. */
int rmq_plain_end_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_plain_end *out);
/* cdef-end */

#endif
