/* pop_requests.h: requests of consumers that take single messages, as records: POP (200050), ACK (200051), CHANGE_INVISIBLE
 * (200053), NOTIFICATION (200054). A batch of acknowledgements (200151) is a JSON body (pop_batch_acks.h). Twin of the receipts:
 * ringmq/pop/receipts.py.
 */
#ifndef RMQ_POP_REQUESTS_H
#define RMQ_POP_REQUESTS_H

#include "codec/plain_requests.h"

/* cdef-begin */
#define RMQ_CODE_POP 200050
#define RMQ_CODE_POP_ACK 200051
#define RMQ_CODE_POP_CHANGE 200053
#define RMQ_CODE_POP_NOTIFICATION 200054
#define RMQ_CODE_POP_BATCH_ACK 200151

#define RMQ_POP_NAME_BYTES_MAX 255       /* of groups and topics */
#define RMQ_POP_EXPRESSION_TYPE_BYTES_MAX 32
#define RMQ_POP_EXPRESSION_BYTES_MAX 8192
#define RMQ_POP_RECEIPT_BYTES_MAX 1024
#define RMQ_POP_TEXT_BYTES_MAX 8862      /* of one request: two names, an expression and its type, an attempt */
#define RMQ_POP_MESSAGES_MAX 32          /* of one answer */
/* Of a batch of acknowledgements. */
#define RMQ_POP_BATCH_BYTES_MAX 524288   /* of its body */
#define RMQ_POP_BATCH_GROUPS_MAX 1024
#define RMQ_POP_BITS_BYTES_MAX 16384     /* of a bit map, which has a bit for each offset of a pop */
#define RMQ_POP_ORDERLY 999              /* revive queue in the receipts of orderly pops */

/* A POP. A NOTIFICATION has of it the names, the times and `order`. */
struct rmq_pop_fields {
    struct rmq_plain_head head;
    int64_t invisible_ms;
    int64_t poll_ms;
    int64_t born_ms;                     /* the client's clock; 0: unknown */
    struct rmq_plain_text group, topic, expression_type, expression, attempt;
    int32_t queue_id;                    /* negative: all */
    int32_t messages_max;
    int32_t init_mode;
    uint32_t order;
};
#define RMQ_POP_INIT_MIN 0               /* init_mode; any other: from the newest message on */

/* ACK and CHANGE. An ACK has no invisible_ms. */
struct rmq_pop_ack_fields {
    struct rmq_plain_head head;
    int64_t offset;                      /* of the queue */
    int64_t invisible_ms;
    struct rmq_plain_text group, topic, receipt;
    int32_t queue_id;
};

/* The fields of a receipt (POP_CK, extraInfo) on which an answer depends. */
struct rmq_pop_receipt {
    int64_t start_offset, pop_time_ms, invisible_ms;
    int64_t revive_queue;
    struct rmq_plain_text broker;        /* its place in the text */
};
/* 1, or 0: the text has no such fields, as Java reads them. */
int rmq_pop_receipt_read(const uint8_t *text, uint32_t length, struct rmq_pop_receipt *out);

extern const struct rmq_plain_table rmq_pop_table;
extern const struct rmq_plain_table rmq_pop_ack_table;
extern const struct rmq_plain_table rmq_pop_change_table;
extern const struct rmq_plain_table rmq_pop_notification_table;
/* cdef-end */


#endif
