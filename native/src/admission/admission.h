/* admission.h: the decision about a decoded send: plain, redirect, refuse, or ask control. Pure: no tables, no clock, no IO.
 *
 * The reader calls head, target, pairs in this order, and rmq_admit_slot (admission_time.h) for a timer message. Between target
 * and pairs a send may wait for a free slot.
 * `ringmq.ipc.admission_twin` is the same in Python.
 */
#ifndef RMQ_ADMISSION_H
#define RMQ_ADMISSION_H

#include "codec/send_decode.h"
#include "plane/layout.h"

/* cdef-begin */
#define RMQ_ADMIT_PLAIN 0        /* stored as it is */
#define RMQ_ADMIT_REDIRECT 1     /* stored in a system topic, with other pairs */
#define RMQ_ADMIT_REFUSE 2       /* answered with the rule's code and remark */
#define RMQ_ADMIT_ASK 3          /* control decides; RMQ_REASON_* says why */

#define RMQ_REASON_NOTHING 0
#define RMQ_REASON_FIELDS 1         /* a field is missing or not of its type */
#define RMQ_REASON_SYS_FLAG 2       /* bits of transactions, or of inner batches */
#define RMQ_REASON_BODY 3           /* empty, or larger than maxMessageSize */
#define RMQ_REASON_TOPIC 4          /* not in the tables, deleted, or its name is too long */
#define RMQ_REASON_TOPIC_COLD 5     /* every send to it is cold */
#define RMQ_REASON_WRITE_QUEUES 6   /* it has none */
#define RMQ_REASON_BATCH_TOPIC 7    /* its name is too long for a batch */
#define RMQ_REASON_QUEUE 8          /* the topic has no such queue */
#define RMQ_REASON_ESCAPES 9        /* JSON escapes that are not well formed, or too many */
#define RMQ_REASON_NUL 10           /* in the properties */
#define RMQ_REASON_PAIR 11          /* a reserved pair that no rule names */
#define RMQ_REASON_VALUE 12         /* a value that its rule cannot use */
#define RMQ_REASON_PROPERTIES 13    /* they are too long, with all that is added */
#define RMQ_REASON_SYSTEM_TOPIC 14  /* the rule's topic or queue is gone */

struct rmq_admission_limits {
    uint32_t message_bytes_max;
    uint32_t additions_length;   /* of the pairs that write adds to every message */
    uint32_t made_key_length;    /* of a UNIQ_KEY pair made here */
};

struct rmq_admitted {
    uint32_t verdict;            /* RMQ_ADMIT_* */
    uint32_t reason;             /* RMQ_REASON_*, of ASK */
    uint32_t rule;               /* its number, of REDIRECT and REFUSE */
    uint32_t queue_id;           /* REDIRECT: of the system topic */
    uint32_t level;              /* REDIRECT: for RMQ_ADD_LEVEL */
    uint32_t time_fault;         /* REFUSE by a TIMER rule: RMQ_TIME_* (admission_time.h) */
    uint32_t time_pair;          /* by a TIMER rule: index of its pair in the send's `reserved` */
    uint32_t slot_messages;      /* REFUSE with RMQ_TIME_SLOT_FULL */
    int64_t out_ms;              /* REDIRECT by a TIMER rule: TIMER_OUT_MS; else 0 */
    uint32_t pairs_bytes;        /* PLAIN and REDIRECT: of all pairs that the message has until its delivery, those of elements left out */
    uint32_t reserved;
};

/* Fields and body. `has_rules`: transaction bits are left to rmq_admit_pairs. RMQ_REASON_*. */
uint32_t rmq_admit_head(const struct rmq_send *s, uint32_t body_length, const struct rmq_admission_limits *limits, int has_rules);
/* Topic and queue; `config` of the topic, 0 = unknown. Queue -1 becomes the `turn`-th write queue. `approved`: control has
 * approved the send, so reasons that only ask for its decision do not count. Returns RMQ_REASON_*. */
uint32_t rmq_admit_target(struct rmq_send *s, uint64_t config, uint32_t turn, int approved);
/* Scanned properties; rules may be NULL. `now_ms`: the wall clock. */
void rmq_admit_pairs(const struct rmq_send *s, const struct rmq_admission_limits *limits, const struct rmq_admission_rules *rules,
                     int approved, int64_t now_ms, struct rmq_admitted *out);
/* cdef-end */
#endif
