/* batch_body.h: the body of a batch (request 320). Write reads it to store its elements. The worker `services` reads staged
 * bodies to check them before it promises to publish them.
 *
 * One element: size, magic, crc (all three ignored, as stock does), flag, body length, body, properties length, properties.
 */
#ifndef RMQ_BATCH_BODY_H
#define RMQ_BATCH_BODY_H

#include "base/bytes.h"
#include "codec/record.h"
#include "plane/layout.h"

/* cdef-begin */
#define RMQ_BATCH_ELEMENT_BYTES 22 /* of an element without body and properties */
#define RMQ_RECORD_OVERHEAD_MAX 65536 /* stock: a record may exceed maxMessageSize by 64 KiB */

/* The size of a batch's elements as records of the log. */
struct rmq_batch_size {
    uint64_t bytes;
    uint32_t messages;
    uint32_t reserved;
};

/* 0, or the RMQ_CAUSE_BATCH_* or RMQ_CAUSE_MESSAGE_SIZE for which write refuses the batch; out->messages elements are valid.
 * `in` holds the common values of the records: topic, sys_flag, properties[0] and [2]. The rest of it is overwritten. */
uint32_t rmq_batch_measure(uint8_t *body, uint32_t length, uint64_t record_bytes_max, struct rmq_record_in *in,
                           struct rmq_batch_size *out);
/* Of a valid batch: the bytes of its first `count` elements. */
uint32_t rmq_batch_bytes_of(const uint8_t *body, uint32_t length, uint32_t count);
/* cdef-end */

/* The bytes of the element at `at`, or 0 when its lengths lead out of the `left` bytes. */
static inline uint32_t rmq_batch_element_bytes(const uint8_t *at, uint32_t left)
{
    if (left < RMQ_BATCH_ELEMENT_BYTES)
        return 0;
    uint32_t body_length = rmq_get32(at + 16);
    if (body_length > left - RMQ_BATCH_ELEMENT_BYTES)
        return 0;
    uint32_t properties_length = rmq_get16(at + 20 + body_length);
    if (properties_length > RMQ_PROPERTIES_BYTES_MAX || properties_length > left - RMQ_BATCH_ELEMENT_BYTES - body_length)
        return 0;
    return RMQ_BATCH_ELEMENT_BYTES + body_length + properties_length;
}

/* Takes the element at `at` into `in`; its bytes, or 0 as above. */
static inline uint32_t rmq_batch_element_take(uint8_t *at, uint32_t left, struct rmq_record_in *in)
{
    uint32_t bytes = rmq_batch_element_bytes(at, left);
    if (!bytes)
        return 0;
    in->flag = (int32_t)rmq_get32(at + 12);
    in->body = at + 20;
    in->body_length = rmq_get32(at + 16);
    in->properties[1] = at + RMQ_BATCH_ELEMENT_BYTES + in->body_length;
    in->properties_length[1] = bytes - RMQ_BATCH_ELEMENT_BYTES - in->body_length;
    return bytes;
}

#endif
