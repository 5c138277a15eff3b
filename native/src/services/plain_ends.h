/* plain_ends.h: takes ends of transactions (37) out of an inbox, a batch a call. `ringmq.services.transactions.plain_ends` has the
 * twin, which takes one request.
 *
 * An end is plain if its request is (codec/plain_requests.h) and it is a commit or a rollback. Others stay in the inbox for Python.
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
    uint8_t text[RMQ_END_GROUP_BYTES_MAX + 1];
};

extern const struct rmq_plain_table rmq_end_table;

/* Reads an ask. 1 = it is a plain end; 0 = it is not, and `out` is undefined. */
int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out);
/* Takes plain ends, at most `room`, up to the first record that is no plain end, or that its asker has given up. Returns their
 * number. */
uint32_t rmq_plain_ends_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_plain_end *out, uint32_t room);
/* cdef-end */

#endif
