/* Values that no broker gives a record. The frame around them may be valid: lengths add up, the body has its CRC, but no
 * checksum covers the header. Such a record stays in the log and goes to slaves byte for byte; nothing indexes it.
 *
 * `ringmq.store.record_values` is the same rule in Python.
 */
#ifndef RMQ_RECORD_VALUES_H
#define RMQ_RECORD_VALUES_H

#include "codec/record.h"

/* cdef-begin */
#define RMQ_QUEUE_ID_MAX 65534                              /* a topic has at most 65535 queues */
#define RMQ_QUEUE_OFFSET_MAX 0x00FFFFFFFFFFFFFF /* its unit has a place in a file of 64-bit offsets */

/* Results of rmq_record_value: 0, or the first field that is impossible, in this order. */
#define RMQ_VALUES_POSSIBLE 0
#define RMQ_VALUE_PHYSICAL_OFFSET 1
#define RMQ_VALUE_QUEUE_ID 2
#define RMQ_VALUE_QUEUE_OFFSET 3    /* of a record that gets a unit: prepared and rolled-back ones have none */
#define RMQ_VALUE_TOPIC 4
/* Beyond one record: dispatch alone sees that the queue has another record there, or none for longer than a file of units. */
#define RMQ_VALUE_QUEUE_PLACE 5

/* 1 when the bytes can name a topic and its folder: 1 to 255 bytes of UTF-8 without "/" and NUL, no "." first; or 0. */
int rmq_is_topic_name(const uint8_t *name, size_t length);

/* The same rule without the topic. `position`: where in the commit log the record stands. */
int rmq_record_numbers(const struct rmq_record_view *view, int64_t position);

/* A parsed record's first impossible field, RMQ_VALUES_POSSIBLE without one. */
int rmq_record_value(const uint8_t *record, const struct rmq_record_view *view, int64_t position);
/* cdef-end */

#endif
