/* plain_ends.h: takes ends of transactions (37) out of an inbox, a batch a call. `ringmq.services.transactions.plain_ends` has the
 * twin, which decodes one request as every worker does.
 *
 * An end is plain if its header has all fields, and no text that needs a closer look. Others stay in the inbox for Python.
 */
#ifndef RMQ_PLAIN_ENDS_H
#define RMQ_PLAIN_ENDS_H

#include "codec/frame_header.h"
#include "plane/asks.h"

/* cdef-begin */
#define RMQ_CODE_END_TRANSACTION 37
#define RMQ_END_COMMIT 8
#define RMQ_END_ROLLBACK 12
#define RMQ_END_GROUP_BYTES_MAX 255

struct rmq_plain_end {
    struct rmq_inbox_record record;
    int64_t queue_offset;       /* tranStateTableOffset */
    int64_t position;           /* commitLogOffset */
    int32_t opaque;
    int32_t flag;
    uint32_t serialise;         /* RMQ_SERIALISE_* */
    int32_t commit_or_rollback; /* RMQ_END_COMMIT or RMQ_END_ROLLBACK */
    uint32_t from_check;        /* fromTransactionCheck; 0 if it is missing */
    uint32_t group_length;
    uint8_t group[RMQ_END_GROUP_BYTES_MAX + 1]; /* producerGroup, printable ASCII */
};

/* Reads a record with its payload. 1 = it is a plain end; 0 = it is not, and `out` is undefined. */
int rmq_plain_end_read(const struct rmq_inbox_record *record, struct rmq_plain_end *out);
/* Takes plain ends, at most `room`, up to the first record that is no plain end, or that its asker has given up. Returns their
 * number. */
uint32_t rmq_plain_ends_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_plain_end *out, uint32_t room);
/* cdef-end */

#endif
