/* answer.h: whole response frames of the hot codes, in the encoding of their request.
 *
 * Fields are those of RocketMQ 5.3.3's answers (tests compare recorded frames). Every put function returns the end of the bytes
 * that it has written. The matching bound is the largest number of bytes that it may write.
 */
#ifndef RMQ_ANSWER_H
#define RMQ_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "codec/plain_requests.h"

/* cdef-begin */
struct rmq_answer_head {
    int32_t code;
    int32_t opaque;
    uint32_t serialise;     /* RMQ_SERIALISE_* */
    uint32_t remark_length;
    const char *remark;
};

/* The broker's fields in the answers to sends, made once. */
struct rmq_answer_broker {
    const char *region;     /* MSG_REGION */
    const char *host_hex;   /* store host and port as the front of a message id: 16 or 40 characters */
    const char *name;       /* brokerName, in recall handles */
    uint32_t region_length;
    uint32_t host_hex_length;
    uint32_t trace_on;
    uint32_t name_length;
};

struct rmq_send_answer {
    struct rmq_answer_head head;
    const struct rmq_answer_broker *broker;
    const uint8_t *uniq_key;        /* transactionId; NULL = none */
    const uint8_t *batch;           /* batch body with each element's offset big-endian in its bytes 4..11; NULL = single */
    uint32_t uniq_key_length;
    uint32_t batch_length;
    int32_t queue_id;
    uint32_t recall_topic_length;
    int64_t queue_offset;
    uint64_t commit_log_offset;
    const char *recall_topic;       /* of a timer message: the topic in its recall handle; NULL = no handle */
    int64_t recall_ms;
};

struct rmq_pull_answer {
    struct rmq_answer_head head;
    int64_t suggested_broker_id;
    int64_t next_offset;
    int64_t min_offset;
    int64_t max_offset;
    uint32_t body_length;           /* sent behind the frame header by the caller */
    uint32_t reserved;
};

/* The answers to POP and to a change of the invisible time. */
struct rmq_pop_answer {
    struct rmq_answer_head head;
    int64_t pop_time_ms, invisible_ms;
    int64_t rest;                   /* restNum; below 0: it is left out */
    const uint8_t *starts, *offsets; /* startOffsetInfo and msgOffsetInfo; NULL: they are left out */
    const uint8_t *counts;          /* orderCountInfo; NULL: it is left out */
    uint32_t starts_length, offsets_length, counts_length;
    int32_t revive_queue;           /* of a receipt: a client may write any number there */
    uint32_t body_length;           /* sent behind the frame header */
};

/* The answer to NOTIFICATION. */
struct rmq_notification_answer {
    struct rmq_answer_head head;
    uint32_t has_message, is_full;  /* pollingFull */
};

size_t rmq_send_answer_bound(const struct rmq_send_answer *answer);
size_t rmq_send_answer_put(uint8_t *to, const struct rmq_send_answer *answer);
size_t rmq_pull_answer_bound(const struct rmq_pull_answer *answer);
size_t rmq_pull_answer_put(uint8_t *to, const struct rmq_pull_answer *answer);
size_t rmq_pop_answer_bound(const struct rmq_pop_answer *answer);
size_t rmq_pop_answer_put(uint8_t *to, const struct rmq_pop_answer *answer);
size_t rmq_notification_answer_bound(const struct rmq_notification_answer *answer);
size_t rmq_notification_answer_put(uint8_t *to, const struct rmq_notification_answer *answer);
/* Error answer; `broker` NULL: no ext fields (all but sends), else MSG_REGION and TRACE_ON. */
size_t rmq_error_answer_bound(const struct rmq_answer_head *head, const struct rmq_answer_broker *broker);
size_t rmq_error_answer_put(uint8_t *to, const struct rmq_answer_head *head, const struct rmq_answer_broker *broker);
/* Answer whose fields are those of a record, as `table` describes them. Missing fields are left out, as is a text without bytes,
 * which is null to clients. */
size_t rmq_fields_answer_bound(const struct rmq_answer_head *head, const struct rmq_plain_table *table, const void *record);
size_t rmq_fields_answer_put(uint8_t *to, const struct rmq_answer_head *head, const struct rmq_plain_table *table,
                             const void *record, const uint8_t *text);
/* Elements that the batch walk of an answer sees; stops at the first that does not fit. */
uint32_t rmq_batch_count(const uint8_t *batch, uint32_t length);
/* Upper-case hex of `length` bytes. */
void rmq_hex_put(uint8_t *to, const uint8_t *bytes, uint32_t length);
/* cdef-end */
#endif
