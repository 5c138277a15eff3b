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
/* Words of the role block of `transactions`: halves that are open; then totals, of ends, of halves that went to
 * TRANS_CHECK_MAX_TIME_TOPIC, of checks that went to a producer, of checks without a producer, of halves that retention took. */
#define RMQ_TRANSACTIONS_OPEN 1
#define RMQ_TRANSACTIONS_COMMITTED 2
#define RMQ_TRANSACTIONS_ROLLED_BACK 3
#define RMQ_TRANSACTIONS_EXPIRED 4
#define RMQ_TRANSACTIONS_CHECKED 5
#define RMQ_TRANSACTIONS_UNCHECKED 6
#define RMQ_TRANSACTIONS_LOST 7
struct rmq_latency {
    uint64_t sum_ns;
    uint64_t counts[RMQ_LATENCY_BUCKETS];
    uint8_t pad[40];
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

/* The messages that pulls of one group have got from one queue, counted by one reader (pulled.h). 48 bytes. */
struct rmq_pull_stats {
    uint64_t key;                /* group id << 32 | queue slot; may be there twice where a reader died */
    uint64_t messages;
    uint64_t bytes;
    uint64_t next_offset;        /* of the latest pull */
    int64_t time_mono_ms;        /* of it */
    uint64_t reserved;
};
#define RMQ_PULL_STATS_CAPACITY 65536 /* per reader, sparse */
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
