/* pop_records.h: the body of an answer to POP: records of the log as they are, and those of retry topics written anew, as stock
 * writes them (MessageDecoder.encode): with the topic that the client has asked for, and the receipt as the property POP_CK.
 * Twin: ringmq/pop/retry_answers.py.
 */
#ifndef RMQ_POP_RECORDS_H
#define RMQ_POP_RECORDS_H

#include "codec/record.h"
#include "plane/asks_layout.h"

/* cdef-begin */
#define RMQ_POP_INLINE_BODY_MAX 1024     /* a larger body of a retry stays in the log, and is a piece of its own */
#define RMQ_POP_PIECES_MAX 128

/* Pieces of a frame, and the bytes of those that are INLINE. */
struct rmq_pop_body {
    struct rmq_record_piece pieces[RMQ_POP_PIECES_MAX];
    uint8_t *inline_bytes;
    uint32_t piece_count;
    uint32_t inline_length, inline_room;
    uint64_t segment_bytes;              /* of a log file */
    uint64_t bytes;                      /* of all pieces */
};

/* Adds a record of the log. 0 or -ENOSPC. */
int rmq_pop_body_add(struct rmq_pop_body *body, uint64_t position, uint32_t size);
/* Adds a record with another topic and a receipt, which a record that has one keeps. `position`: of `record` in the log. 0, -ENOSPC,
 * or -EBADMSG: it is no record, or has no room for a receipt. Nothing is added then. */
int rmq_pop_body_add_retry(struct rmq_pop_body *body, uint64_t position, const uint8_t *record, uint32_t size,
                           const uint8_t *topic, uint32_t topic_length, const uint8_t *receipt, uint32_t receipt_length);
/* cdef-end */
#endif
