/* transaction_ends.h: ends of transactions, from the inbox to their answers. Twin of the rules: `ringmq.services.transactions.ends_twin`.
 *
 * C takes plain ends out of the inbox, and Python adds the others. An end waits until its half is in the half queue and in the
 * table. Then it is sent in a chain, or it is left to Python, which answers it or decides about it (RMQ_END_*). Each chain has
 * copies of halves, and last an op record that lists them (`ringmq.services.transactions.chain_port`). Ends of refused chains are
 * left to Python, too: their halves are open again.
 */
#ifndef RMQ_TRANSACTION_ENDS_H
#define RMQ_TRANSACTION_ENDS_H

#include "metrics/latency.h"
#include "plane/port.h"
#include "services/half_table.h"
#include "services/named_halves.h"
#include "services/plain_ends.h"
#include "services/record_copy.h"

/* cdef-begin */
#define RMQ_END_WAITING_MAX 16384
#define RMQ_END_ROWS 16888       /* those, and ends of refused chains that wait once more */
#define RMQ_END_CHAINS 8
#define RMQ_END_CHAIN_ITEMS 63   /* one less than RMQ_CHAIN_MAX */
#define RMQ_OP_BYTES_MAX 4096
#define RMQ_OP_ROOM 4160         /* at the end of a chain's part of the arena, with the properties */

/* Reasons why Python gets an end. */
#define RMQ_END_NEW 0            /* none: its half has not been judged */
#define RMQ_END_MISSING 1        /* the log does not reach its half */
#define RMQ_END_FULL 2           /* its half arrives when others have ended */
#define RMQ_END_UNSOUND 3        /* its half is not sound (named_halves.h) */
#define RMQ_END_DECIDE 4         /* its half is sound, but not open, held, without a target or room, or its chain was refused */
#define RMQ_END_SLOW 5           /* it is in a chain, and gets a log line alone */

/* Positions as in Arrival of services/transactions/ends.py. */
struct rmq_half_marks {
    int64_t append_end, dispatched, arrived, end;
    uint32_t is_full;
    uint32_t reserved;
};

struct rmq_end_chain {
    uint32_t count;              /* ends */
    uint32_t waiting;            /* completions */
    uint32_t refused;
    uint32_t done;               /* ends that are answered, or left to Python */
    uint64_t end;                /* of its last record in the log */
    struct rmq_plain_end ends[RMQ_END_CHAIN_ITEMS];
};

struct rmq_end_chains {
    /* set by the owner, once */
    uint32_t port, answerer, role;
    uint32_t half_topic_id, half_slot;
    uint32_t op_topic_id, op_slot, op_queue_id;
    uint32_t first_chain;        /* number of chains[0] in tokens and in the arena */
    uint32_t body_bytes_max, properties_bytes_max;
    uint32_t op_properties_length;
    uint32_t host_length, host_port;
    uint64_t chain_bytes;        /* of the arena */
    uint8_t *arena;
    uint8_t op_properties[64];
    uint8_t host[16];
    /* set before each call */
    uint32_t op_bytes_max;
    uint32_t reserved;
    int64_t op_mark, wall_ms;
    /* results, which the owner resets */
    uint64_t committed, rolled_back;
    uint64_t finish_counts[RMQ_FINISH_BUCKETS]; /* commits, by the age of their halves */
    uint64_t finish_seconds;
    uint64_t log_end;            /* raised to the end of the last chain that is stored */
    uint64_t judged;             /* halves that were read and judged */
    uint32_t waiting_count, unused_count;
    uint32_t used_rows;          /* rows from here on have never been used */
    uint32_t busy_chains;
    uint32_t unfinished;         /* chains with all completions: their answers find no room, or they were refused */
    uint32_t waiting[RMQ_END_ROWS]; /* numbers of rows, in the order in which they came */
    uint32_t unused[RMQ_END_ROWS];
    struct rmq_plain_end rows[RMQ_END_ROWS];
    struct rmq_end_chain chains[RMQ_END_CHAINS];
};

/* Moves plain ends from the inbox to the waiting ones, at most `room`, up to the first record that is none, or that its asker has
 * given up. Returns their number. */
uint32_t rmq_end_chains_take(struct rmq_plane *plane, struct rmq_end_chains *c, uint32_t room);
/* One more waiting end, which the caller fills: a request that Python has decoded, or one that waits once more. */
struct rmq_plain_end *rmq_end_chains_add(struct rmq_end_chains *c);
/* The request for the op record of the chain with this number, whose body is a list of offsets of at most RMQ_OP_BYTES_MAX. Its bytes
 * go to the end of the chain's part of the arena. Other chains of the port use it, too. */
void rmq_end_chains_op(const struct rmq_end_chains *c, uint32_t number, const uint8_t *list, uint32_t length,
                       struct rmq_request *request);
/* 0 = the half of this end is looked up now, -1 = it waits; else RMQ_END_MISSING or RMQ_END_FULL. */
int rmq_end_readiness(const struct rmq_half_marks *marks, const struct rmq_end_fields *end);
/* Sends the waiting ends whose time has come, as far as there is room. Ends for Python go to `left`, at most `room`. Returns
 * their number. An end that was received before `slow_ns` goes there too, when it is sent. The time of the others is counted.
 * To judge a half costs a microsecond, and thousands of ends may wait. So a call judges only while there is room for chains and in
 * `left`, and an end whose half is in the chain of another end is judged once until that chain has ended. */
uint32_t rmq_end_chains_send(struct rmq_plane *plane, struct rmq_queue_reader *q, struct rmq_end_chains *c,
                             struct rmq_half_table *halves, const struct rmq_half_marks *marks, int64_t now_ns, int64_t slow_ns,
                             struct rmq_latency *latency, struct rmq_plain_end *left, uint32_t room);
/* Bucket of an age in seconds. Twin: services/transactions/finish_times.py. */
uint32_t rmq_finish_bucket(int64_t seconds);
/* Takes completions. Those of other chains go to `others`, at most `room`; returns their number. Ends of stored chains are
 * answered. Those of refused chains are left to Python by the next rmq_end_chains_send. */
uint32_t rmq_end_chains_collect(struct rmq_plane *plane, struct rmq_end_chains *c, struct rmq_half_table *halves,
                                struct rmq_completion *others, uint32_t room);
/* cdef-end */

#endif
