/* Requests to a broker: sends and batches, pulls at full speed, that read everything back, or that follow, pops, and sends beside
 * pulls or pops that wait. */
#ifndef RINGMQ_LOAD_SCENARIOS_H
#define RINGMQ_LOAD_SCENARIOS_H

#include "arrivals.h"
#include "engine.h"
#include "message.h"

enum { SAMPLE_MAX = 1024, LAST_MAX = 8 };

struct send_scenario {
    struct messages messages;
    uint64_t next_sequence;
    uint64_t acked, acked_crc_sum; /* messages answered with success; sum of their bodies' CRC-32, modulo 2^64 */
    uint64_t sample[SAMPLE_MAX]; /* acknowledged sequences, spread evenly over the run */
    uint32_t sample_lane[SAMPLE_MAX];
    uint64_t sample_count, sample_stride, acked_frames;
    uint64_t last[LAST_MAX]; /* the last acknowledged ones */
    uint32_t last_lane[LAST_MAX];
    uint64_t acked_of_lane[LANES_MAX];
    uint64_t written_frames[CONNECTIONS_MAX]; /* per connection, to spread its frames over the lanes */
    char born[13];
    uint64_t born_at_ns;
};

int send_init(struct send_scenario *s, const struct message_plan *plan, struct scenario *out);
void send_free(struct send_scenario *s);
uint32_t send_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out);
int send_answer(void *self, const struct slot *slot, const struct answer *answer);

/* A stored half message whose transaction is to be committed. */
struct stored_half {
    uint64_t sequence, position;
    int64_t half_offset;
    uint32_t lane, next; /* of the connection; UINT32_MAX at its end */
};

/* Half messages, each committed on its connection as soon as it is stored. A pair counts when the commit is answered. */
struct transaction_scenario {
    struct send_scenario send;
    struct stored_half *halves; /* one for each request on its way */
    uint32_t first[CONNECTIONS_MAX], last[CONNECTIONS_MAX], free;
};

/* The plan must be of halves. `requests`: the most that are on their way at once. 0, -EINVAL, -ENOMEM. */
int transaction_init(struct transaction_scenario *t, const struct message_plan *plan, uint32_t requests, struct scenario *out);
void transaction_free(struct transaction_scenario *t);

/* A stored message that is to be sent back: its place in the log, and the CRC-32 of its body. */
struct send_back_source {
    uint64_t position;
    uint32_t crc;
};

/* Sends each message of a topic back once (36), as a consumer of `group` that failed. */
struct send_back_scenario {
    const char *group, *topic, *broker_name;
    int json;
    struct send_back_source *sources;
    uint64_t room, count, next;
    uint64_t acked, acked_crc_sum; /* answered with success; sum of their bodies' CRC-32, modulo 2^64 */
};

/* Room for this many messages. 0 or -ENOMEM. */
int send_back_init(struct send_back_scenario *s, uint64_t room);
/* Adds a message, while there is room. */
void send_back_keep(struct send_back_scenario *s, uint64_t position, uint32_t crc);
void send_back_begin(struct send_back_scenario *s, struct scenario *out);
void send_back_free(struct send_back_scenario *s);

enum pull_kind {
    PULL_FULL_SPEED,
    PULL_READ_ALL, /* each queue once from its minimum to its maximum */
    PULL_FOLLOW, /* each queue from its minimum on, until nothing has come for idle_ns */
};

struct pull_scenario {
    struct lanes lanes;
    const char *group;
    uint32_t max_messages;
    int json;
    enum pull_kind kind; /* but for full speed, the CRC of every body is checked, and one pull is on its way per queue */
    uint64_t idle_ns;
    int subscription_in_pull; /* else a heartbeat must have announced the subscription */
    uint32_t groups; /* of PULL_FOLLOW, each reads everything; 0 counts as 1 */
    struct send_back_scenario *keep; /* of PULL_READ_ALL: gets the messages; NULL = none */
    const char *expression, *tag; /* SQL92 or a tag, of PULL_FULL_SPEED; NULL = everything */
    int commit; /* pulls commit what was read before */
    uint32_t poll_ms; /* of PULL_FOLLOW: so long a pull may wait; 0 counts as 1,000 */
    struct arrivals *arrivals; /* of PULL_FOLLOW: gets the messages; NULL = none */
    uint64_t min[LANES_MAX], max[LANES_MAX], next[LANES_MAX]; /* by group, then lane */
    int in_flight[LANES_MAX];
    uint32_t turn, finished;
    uint64_t read, crc_sum; /* messages and sum of CRC-32 */
    uint64_t first_ns, last_ns; /* times of the first and the last message */
    uint64_t wrong_crc, wrong_offset, short_answers;
};

/* The most pulls that are under way at once: lanes times groups. */
uint32_t pull_lanes(const struct pull_scenario *p);

/* min and max must be set (to follow: min). -ENODATA when no queue holds a message. */
int pull_init(struct pull_scenario *p, struct scenario *out);

enum { POP_QUEUES_MAX = 64 }; /* of one topic */

/* Messages of one queue in one answer: bit i stands for the offset start + i. Bits of acknowledged ones are cleared. */
struct popped_queue {
    uint32_t queue;
    uint64_t start, bits;
};

/* The messages of one pop, until the last of them is asked to be acknowledged. */
struct popped {
    int64_t pop_time_ms;
    uint32_t revive_queue, count;
    struct popped_queue queues[POP_QUEUES_MAX];
};

/* Pops of all queues of a topic from the first message on. Each message is acknowledged on the connection that got it.
 * A message counts when its acknowledgement is answered. The run must end within the invisible time. */
struct pop_scenario {
    struct lanes lanes; /* at most POP_QUEUES_MAX queues of a topic */
    uint32_t groups;    /* 0 counts as 1. Each pops everything: several groups of one topic, or one group of several topics */
    const char *group, *broker_name;
    uint32_t max_messages, invisible_ms, connections, depth;
    int json, single_acks; /* single: a request for each message, else one for each pop */
    int leave_open;        /* without acknowledgements */
    uint32_t poll_ms;      /* 0: pops do not wait. Else a connection has `depth` pops that do, for ever */
    uint32_t polls[CONNECTIONS_MAX];
    struct arrivals *arrivals; /* gets the messages; NULL = none */
    uint64_t stop_ns; /* after so much time the last pop is asked; 0: when the topic is empty */
    uint64_t max[LANES_MAX]; /* behind the last message of a queue; by group, then lane */
    struct popped *rings;
    uint64_t head[CONNECTIONS_MAX], tail[CONNECTIONS_MAX];
    uint64_t *bits, *seen[LANES_MAX], ends[LANES_MAX]; /* as max: seen offsets, and behind the highest of them */
    uint64_t begun_ns, expected, pops_under_way, acks_under_way;
    uint64_t popped, acked, crc_sum, twice, came_back, wrong_crc, empty_pops;
};

/* The queues of all topics, for each group. */
uint32_t pop_lanes(const struct pop_scenario *p);
/* `max` must be set. 0, -ENODATA when no queue holds a message, -ENOMEM. */
int pop_init(struct pop_scenario *p, struct scenario *out);
/* Messages before popped ones of their queue that no pop has shown. */
uint64_t pop_skipped(const struct pop_scenario *p);
void pop_free(struct pop_scenario *p);

/* Pulls or pops that wait, and sends at the rate of the run beside them. Each message is to be received once by each group. */
struct wait_scenario {
    struct send_scenario *send;
    struct scenario sender, listener;
    struct arrivals *arrivals;
    uint32_t listeners;  /* connections of the listener, the first ones */
    uint64_t messages;   /* to be sent; 0: the listener only waits */
    uint64_t warmup_ns, end_ns, begun_ns; /* messages of the warm-up do not count; the end: since the begin, at the latest */
    const uint64_t *acked;                /* messages that the listener has acknowledged; NULL: it acknowledges none */
    uint64_t waiting, answered;           /* requests of the listener that wait; sends that are answered */
};

void wait_init(struct wait_scenario *w, struct scenario *out);

#endif
