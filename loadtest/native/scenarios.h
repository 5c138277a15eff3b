/* What is asked of the broker: sends and batches, pulls at full speed, pulls that read everything back. */
#ifndef RINGMQ_LOAD_SCENARIOS_H
#define RINGMQ_LOAD_SCENARIOS_H

#include "engine.h"
#include "message.h"

enum { QUEUES_MAX = 1024, SAMPLE_MAX = 1024, LAST_MAX = 8 };

struct send_scenario {
    struct messages messages;
    uint64_t next_sequence;
    uint64_t acked, acked_crc_sum; /* messages answered with success; sum of their bodies' CRC-32, modulo 2^64 */
    uint64_t sample[SAMPLE_MAX]; /* acknowledged sequences, spread evenly over the run */
    uint64_t sample_count, sample_stride, acked_frames;
    uint64_t last[LAST_MAX]; /* the last acknowledged ones */
    uint64_t acked_of_queue[QUEUES_MAX];
    uint64_t written_frames[CONNECTIONS_MAX]; /* per connection, to spread its frames over the queues */
    char born[13];
    uint64_t born_at_ns;
};

int send_init(struct send_scenario *s, const struct message_plan *plan, struct scenario *out);
void send_free(struct send_scenario *s);

struct pull_scenario {
    const char *topic, *group;
    uint32_t queues, max_messages;
    int json;
    int read_all; /* each queue once from its minimum to its maximum, CRC of every body checked */
    int subscription_in_pull; /* else a heartbeat must have announced the subscription */
    uint64_t min[QUEUES_MAX], max[QUEUES_MAX], next[QUEUES_MAX];
    int in_flight[QUEUES_MAX]; /* read_all asks a queue for one range at a time */
    uint32_t turn, finished;
    uint64_t read, crc_sum; /* read_all: messages and sum of CRC-32 */
    uint64_t wrong_crc, wrong_offset, short_answers;
};

/* min and max must be set. -ENODATA when no queue holds a message. */
int pull_init(struct pull_scenario *p, struct scenario *out);

#endif
