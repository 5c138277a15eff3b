/* sends.h: sends of clients. */
#ifndef RMQ_SENDS_H
#define RMQ_SENDS_H

#include "reader/pending.h"

/* The payload of a pending entry of kind APPEND: what its answer tells the client, and the log of slow requests. */
struct rmq_send_note {
    uint64_t uniq_key_at, batch_at; /* in the arena, 0 = none */
    int64_t recall_ms;
    uint32_t recall_topic_id;       /* of a timer message: the topic in its handle; 0: the answer has none */
    uint32_t batch_length;
    uint32_t topic_id;
    int32_t queue_id;
    uint32_t queued_us;             /* it waited for room */
    uint16_t uniq_key_length;
};
_Static_assert(sizeof(struct rmq_send_note) <= RMQ_PENDING_PAYLOAD_BYTES, "it is a payload");

static inline struct rmq_send_note *rmq_send_note_of(struct rmq_pending *p) { return (struct rmq_send_note *)p->payload; }
#endif
