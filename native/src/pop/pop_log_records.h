/* pop_log_records.h: records by which RocketMQ keeps open messages, as requests for write: check points and acknowledgements. They
 * go to the timer topic, or to the revive topic if their time is over. Twin: ringmq/pop/revive_records.py.
 */
#ifndef RMQ_POP_LOG_RECORDS_H
#define RMQ_POP_LOG_RECORDS_H

#include "plane/port.h"

/* cdef-begin */
#define RMQ_POP_POINT_MESSAGES 32    /* of one check point: RocketMQ has 32 bits for them. Others get one of their own */
#define RMQ_POP_POINT_EARLIER_MS 1000
#define RMQ_POP_LOG_RECORD_BYTES 8192 /* of one record at most, with the longest names */

/* A place of the texts. As text of JSON, without its quotation marks, and as it is. */
struct rmq_pop_log_text {
    uint32_t json_at, json_length, at, length;
};

/* The queues of records, and the room for their bytes. */
struct rmq_pop_log_room {
    const uint8_t *texts;
    struct rmq_pop_log_text broker, revive_topic;
    const uint32_t *revive_slots, *revive_ids; /* queues of the revive topic, by the revive queue of a receipt: slot and queue id */
    uint32_t revive_queues, revive_topic_id;   /* revive_queues 0: there is no such topic */
    uint32_t timer_topic_id, timer_slot; /* timer_slot RMQ_NONE: all go to the revive topic */
    int64_t precision_ms;            /* of the timer */
    int64_t now_ms;
    uint8_t *arena;
    uint64_t arena_at, arena_end;    /* free bytes */
    uint8_t born_host[16];
    uint32_t born_port, born_v6;
};

/* Messages of one pop of one queue. */
struct rmq_pop_log_record {
    struct rmq_pop_log_text group, topic;
    const int64_t *offsets;          /* `count` of them, ascending */
    int64_t start, pop_time_ms, invisible_ms;
    uint32_t count, queue_id, revive_queue;
    uint32_t is_ack;                 /* 0: a check point */
};

uint64_t rmq_pop_log_record_bytes(const struct rmq_pop_log_room *room, const struct rmq_pop_log_record *record); /* at most */
/* Makes the request of a record, for whose bytes there is room. It is answered by the policy of the log. */
void rmq_pop_log_record_put(struct rmq_pop_log_room *room, struct rmq_request *request, const struct rmq_pop_log_record *record);
/* The parts of a request that all records share: origin, kind, flags. */
void rmq_pop_log_origin(const struct rmq_pop_log_room *room, struct rmq_request *request);
/* cdef-end */
#endif
