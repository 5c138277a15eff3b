/* admission_layout.h: the rules by which readers redirect or refuse sends that ask for more than storing. Control publishes them.
 *
 * Two copies and a version, as of a subscription (layout.h, 5): a death of control between any two stores leaves the old set or
 * the new one.
 */
#ifndef RMQ_ADMISSION_LAYOUT_H
#define RMQ_ADMISSION_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_RULES_MAX 16
#define RMQ_RULE_PAIRS_MAX 8
#define RMQ_SCRATCH_BYTES 512         /* the longest pairs that are added to one message */

/* A pair that a redirected message gets. Pairs of that name that the client sent are cut out first. */
struct rmq_rule_pair {
    uint8_t value_from;          /* RMQ_ADD_* */
    uint8_t name_length;         /* at least 1; no 00, 01, 02 in a name; not UNIQ_KEY */
    uint8_t value_length;        /* of TEXT, at least 1; no 00, 02 in a value */
    uint8_t reserved;
    char name[28];
    char value[32];
};
#define RMQ_ADD_NOTHING 0        /* the client's pair is cut out, nothing is added */
#define RMQ_ADD_TEXT 1
#define RMQ_ADD_TOPIC 2        /* that the client named */
#define RMQ_ADD_QUEUE 3        /* the queue of that topic, chosen by the reader where the client sent -1 */
#define RMQ_ADD_LEVEL 4        /* the number in the triggering pair, at most the rule's queue_id */
#define RMQ_ADD_UNIQ_KEY 5     /* the client's or the broker's, at most RMQ_RULE_KEY_MAX bytes; else control is asked */
#define RMQ_ADD_OUT_MS 6       /* of a TIMER rule: the time asked for, rounded down to the precision */
#define RMQ_RULE_KEY_MAX 64

/* One rule of kind REDIRECT or REFUSE. It matches a send whose transaction bits are `transaction`. If the rule has a name, the send must have a pair of
 * that name with such a value; of several such pairs the last counts. A rule with a name may ask for a second pair. The first
 * rule that matches decides. Rules see only reserved pairs (struct rmq_reserved_pair), and batches only a TIMER rule without a
 * name.
 *
 * A TIMER rule also needs a pair of a time, and no TIMER_OUT_MS. The first of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS
 * counts. A time that has passed does not match, unless the message deletes a timer: then the rule refuses it. The rule refuses a
 * value that is no number, and a time beyond delay_max_ms. It redirects every other send. It matches no send to its own topic. */
struct rmq_admission_rule {
    uint32_t kind;               /* RMQ_RULE_* */
    uint32_t when;               /* RMQ_WHEN_* */
    uint32_t name_length;        /* 0: the transaction bits alone, and the time of a TIMER rule */
    int32_t transaction;         /* of sysFlag, 0, 4, 8 or 12, or RMQ_TRANSACTION_ANY where the rule has a name */
    /* REDIRECT and TIMER: in the answer topic and queue stay the client's, the offset is that of the system topic's queue, as of stock */
    uint32_t topic_id;           /* the system topic */
    uint32_t queue_from;         /* RMQ_QUEUE_* */
    uint32_t queue_id;
    int32_t sys_flag_clear;      /* bits that are not stored */
    /* REFUSE */
    int32_t code;
    uint32_t pair_count;         /* REDIRECT and TIMER: of `pairs` */
    uint32_t retried;            /* 1: only sends with reconsumeTimes > 0 */
    uint32_t with_when;          /* RMQ_WHEN_*, of the second pair */
    uint32_t with_length;        /* of with_name; 0: no second pair */
    /* TIMER */
    uint32_t precision_ms;       /* 0: timerWheelEnable is false, so the rule refuses */
    int64_t delay_max_ms;
    int32_t slot_messages_max;   /* timerCongestNumEachSlot: above it sends are refused the more often, the fuller the slot is */
    uint32_t recall_topic_id;    /* the topic in the recall handle of the answer; 0: the client's */
    /* REDIRECT and TIMER: bytes of properties that later copies of the message get at most, beside `pairs`. A send without so much
     * room is not admitted: it would be acknowledged and could not be delivered. */
    uint32_t room_bytes;
    /* REDIRECT and TIMER, of half messages: open ones of all producers, of a host and of a producer group (half_shares.h).
     * halves_max 0: the rule counts none. */
    uint32_t halves_max;
    uint32_t host_halves_max;
    uint32_t group_halves_max;
    uint32_t half_topic_id;      /* its queue 0 has the halves */
    uint32_t reserved;
    char name[32];
    char with_name[32];
    char remark[128];            /* REFUSE: NUL-terminated */
    struct rmq_rule_pair pairs[RMQ_RULE_PAIRS_MAX];
};
#define RMQ_RULE_REDIRECT 1
#define RMQ_RULE_REFUSE 2
#define RMQ_RULE_TIMER 3
#define RMQ_TRANSACTION_ANY -1   /* stock's half messages: TRAN_MSG alone decides (SendMessageProcessor.sendMessage) */
#define RMQ_WHEN_PRESENT 0
#define RMQ_WHEN_POSITIVE 1      /* a number above 0; a value that is no number goes to control */
#define RMQ_WHEN_TRUE 2          /* "true", in letters of any case */
#define RMQ_QUEUE_FIXED 0        /* queue_id */
#define RMQ_QUEUE_LEVEL 1        /* the number in the triggering pair, at most queue_id, less 1; needs WHEN_POSITIVE */
#define RMQ_QUEUE_ORIGINAL 2     /* the queue that the client named */

struct rmq_admission_rules {
    uint32_t count;
    uint32_t reserved;
    struct rmq_admission_rule rules[RMQ_RULES_MAX];
};

/* Control. Version 0: none were ever published. */
struct rmq_admission {
    uint64_t version;
    struct rmq_admission_rules copy[2];
};
/* cdef-end */

_Static_assert(sizeof(struct rmq_rule_pair) == 64, "pair");
_Static_assert(sizeof(struct rmq_admission_rule) == 288 + RMQ_RULE_PAIRS_MAX * 64, "rule");
#endif
