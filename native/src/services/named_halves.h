/* named_halves.h: the half messages that ends of transactions name. `ringmq.services.transactions.ends_twin` has the twin.
 *
 * An end is sound if nothing about its half message needs a decision. Python decides about all other ends, and finds their errors.
 */
#ifndef RMQ_NAMED_HALVES_H
#define RMQ_NAMED_HALVES_H

#include "queue/queue_reader.h"

/* cdef-begin */
/* An end. The last fields are results. */
struct rmq_named_half {
    int64_t queue_offset;       /* tranStateTableOffset */
    int64_t position;           /* commitLogOffset */
    uint32_t group_at;          /* producerGroup in `texts` */
    uint32_t group_length;
    int64_t prepared_transaction_offset;
    uint32_t is_sound;
    uint32_t reserved;
};

/* Looks at the record of an end, `size` bytes. It is sound if all of this holds: the record is whole, it is in
 * RMQ_SYS_TRANS_HALF_TOPIC, it has the place and the queue offset of the end, PGROUP is the group of the end, and it has no
 * CHECK_IMMUNITY_TIME_IN_SECONDS. */
void rmq_named_half_judge(struct rmq_named_half *half, const uint8_t *texts, const uint8_t *record, uint32_t size);
/* The same for the record to which the unit of the queue in this slot leads; an end is sound only if it is at the end's place. A
 * sound one has its record held, `size` bytes: the caller releases it. 1 = it is sound. */
int rmq_named_half_hold(struct rmq_queue_reader *q, uint32_t slot, struct rmq_named_half *half, const uint8_t *texts,
                        struct rmq_held_record *record, uint32_t *size);
/* cdef-end */

#endif
