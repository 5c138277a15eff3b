/* metrics_layout.h: the counters of the plane (layout.h) for operators. Each word has one writer. Readers accept values that
 * are a moment old.
 */
#ifndef RMQ_METRICS_LAYOUT_H
#define RMQ_METRICS_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
/* The stages up to which a request's time is counted, each from its receipt on. One histogram per role and stage. */
#define RMQ_LATENCY_BUCKETS 26       /* 0: below 1 us, i: below 2^i us, the last: the rest, from 2^24 us = 17 s on */
#define RMQ_LATENCY_STAGES 2
#define RMQ_READ_LATENCY_QUEUED 0    /* in the request ring */
#define RMQ_READ_LATENCY_ANSWERED 1  /* its answer is encoded */
#define RMQ_WRITE_LATENCY_APPENDED 0
#define RMQ_FLUSH_LATENCY_FLUSHED 0  /* of those that wait for it */
#define RMQ_FLUSH_LATENCY_REPLICATED 1
#define RMQ_CONTROL_LATENCY_ANSWERED 0 /* requests that control answers */
#define RMQ_SERVICES_LATENCY_ANSWERED 0 /* requests that services answer at once */
#define RMQ_TIMER_LATENCY_DELIVERED 0 /* timer messages in the log again, since their time */
#define RMQ_POP_LATENCY_ACKED 1      /* messages that consumers have acknowledged, since their pop. Its buckets and its sum count a
                                      * ms where others count a us: up to 2^24 ms = 4.6 h */
/* Words of the role block of `transactions`: halves that are open; then totals, of ends, of halves that went to
 * TRANS_CHECK_MAX_TIME_TOPIC, of checks that went to a producer, of checks without a producer, of halves that retention took,
 * of ends that took no Python. */
#define RMQ_TRANSACTIONS_OPEN 1
#define RMQ_TRANSACTIONS_COMMITTED 2
#define RMQ_TRANSACTIONS_ROLLED_BACK 3
#define RMQ_TRANSACTIONS_EXPIRED 4
#define RMQ_TRANSACTIONS_CHECKED 5
#define RMQ_TRANSACTIONS_UNCHECKED 6
#define RMQ_TRANSACTIONS_LOST 7
#define RMQ_TRANSACTIONS_PLAIN 8
/* Of commits, the age of their halves as of stock: up to 5 s, 1 min, 10 min, 1 h, 12 h, 1 day, and the rest; then its sum in
 * seconds. */
#define RMQ_TRANSACTIONS_FINISH 9
#define RMQ_FINISH_BUCKETS 7
#define RMQ_TRANSACTIONS_FINISH_SECONDS 16
/* Words of the role block of `timer`, behind those of ipc/republish_words.py: totals of messages that went into the wheel, that were
 * delivered, rolled, and deleted, of records that cannot be read or have no time; then the time of the open slot, and the offset of
 * the timer topic's queue before which all records are in the wheel. */
#define RMQ_TIMER_WORD_ENQUEUED 8
#define RMQ_TIMER_WORD_DELIVERED 9
#define RMQ_TIMER_WORD_ROLLED 10
#define RMQ_TIMER_WORD_DELETED 11
#define RMQ_TIMER_WORD_UNREADABLE 12
#define RMQ_TIMER_WORD_OPEN_MS 13
#define RMQ_TIMER_WORD_NEXT 14
/* Messages that wait; of those that were delivered in the last minute: their number, and the lateness of half of them, of 99 % and
 * of all in us. */
#define RMQ_TIMER_WORD_WAITING 15
#define RMQ_TIMER_WORD_MINUTE_COUNT 16
#define RMQ_TIMER_WORD_MINUTE_P50_US 17
#define RMQ_TIMER_WORD_MINUTE_P99_US 18
#define RMQ_TIMER_WORD_MINUTE_MAX_US 19
/* CommitLog offset of the oldest record that a waiting message needs, + 1; 0 = none is needed, or it is not known yet. */
#define RMQ_TIMER_WORD_OLDEST 20
/* Since the broker's start: how often wheel and log were rebuilt, and slots of the wheel that were written again. */
#define RMQ_TIMER_WORD_REBUILDS 21
#define RMQ_TIMER_WORD_MENDED_SLOTS 22
struct rmq_latency {
    uint64_t sum_ns;
    uint64_t counts[RMQ_LATENCY_BUCKETS];
    uint64_t max_ns;             /* the longest since the plane was made */
    uint8_t pad[32];
};

/* reader -> control: a send that took longer than slow_request_ms. Times since it was received. */
struct rmq_slow_request {
    int64_t received_wall_ms;
    uint32_t topic_id;
    int32_t queue_id;
    int32_t code;                /* of the request */
    int16_t answer_code;
    uint16_t port;
    uint8_t host[16];            /* network order */
    uint32_t v6;
    uint32_t bytes;              /* the frame */
    uint32_t queued_us, appended_us, durable_us, answered_us;
};
#define RMQ_SLOW_SLOTS 64

/* The messages that one group has got from one queue, counted by one reader, or by the worker that gives single messages
 * (pull_stats.h). 48 bytes. */
struct rmq_pull_stats {
    uint64_t key;                /* group id << 32 | queue slot; may be there twice where a reader died */
    uint64_t messages;
    uint64_t bytes;
    uint64_t next_offset;        /* of the latest pull */
    int64_t time_mono_ms;        /* of it */
    uint64_t open;               /* of single messages: those that are not done, as of the last second */
};
#define RMQ_PULL_STATS_CAPACITY 65536 /* per port, sparse */
#define RMQ_PULL_STATS_CELLS 131072
struct rmq_pull_stats_table {
    uint64_t count;              /* entries in use, from the first on */
    uint64_t overflow;           /* pulls that found no place */
    uint8_t pad[48];
};
/* cdef-end */

_Static_assert(sizeof(struct rmq_latency) == 256, "latency");
_Static_assert(sizeof(struct rmq_slow_request) == 64, "slow request");
_Static_assert(sizeof(struct rmq_pull_stats) == 48, "pull stats");
_Static_assert(RMQ_PULL_STATS_CELLS == 2 * RMQ_PULL_STATS_CAPACITY, "pull stats");
#endif
