/* timer_topics.h: how many messages wait and have come and gone, by their real topics. timer/topic_counts.py reads the table.
 *
 * A start counts the units of the log in pieces, while messages come and go: a row may be negative until that count is over.
 */
#ifndef RMQ_TIMER_TOPICS_H
#define RMQ_TIMER_TOPICS_H

#include "timer/timer_files.h"

/* cdef-begin */
#define RMQ_TIMER_TOPICS 65536
/* Of the delays that clients ask for: up to 1 min, 10 min, 1 h, 12 h, 1 day, 3 days, and the rest. */
#define RMQ_TIMER_DELAY_BUCKETS 7

/* Topics whose Java hashes are equal share a row. */
struct rmq_timer_topic {
    int32_t topic_hash;
    int32_t record_bytes;        /* size of a record that names the topic, 0: the row is free */
    int64_t commit_log_offset;   /* of that record */
    int64_t messages;            /* that wait */
    uint64_t enqueued;           /* since the start: messages and deletes that got a unit */
    uint64_t dequeued;           /* since the start: messages that were stored again, rolled ones as well */
    uint64_t delay_seconds;      /* sum of the delays of what was enqueued */
    uint64_t delays[RMQ_TIMER_DELAY_BUCKETS];
};

struct rmq_timer_topics {
    struct rmq_timer_topic *rows; /* RMQ_TIMER_TOPICS, open addressing, and one row for all that find no free one */
    uint64_t used;
    int64_t messages;            /* of all rows */
    uint64_t secret[2];          /* see name_hash.h: clients can make topics of any Java hash */
};

/* Row of the unit's topic. `topics` may be NULL: RMQ_NONE, nothing is counted. */
uint32_t rmq_timer_topic_of(struct rmq_timer_topics *topics, const struct rmq_timer_unit *unit);
/* The same, but a delete has none (RMQ_NONE): it is no message that waits. */
uint32_t rmq_timer_topic_row(struct rmq_timer_topics *topics, const struct rmq_timer_unit *unit);
/* Adds `count` messages, which may be negative. RMQ_NONE: nothing. */
void rmq_timer_topic_add(struct rmq_timer_topics *topics, uint32_t row, int64_t count);
/* A unit was appended. `bucket` is that of its delay. RMQ_NONE: nothing. */
void rmq_timer_topic_enqueued(struct rmq_timer_topics *topics, uint32_t row, uint32_t bucket, uint64_t delay_seconds);
/* A message was stored again. RMQ_NONE: nothing. */
void rmq_timer_topic_dequeued(struct rmq_timer_topics *topics, uint32_t row);
/* Adds `sign` for each unit in [*position, end) whose slot is at from_ms or later, at most `limit` units. *position becomes that of
 * the next unit, `end` when all are counted. Returns the number of counted messages. */
uint64_t rmq_timer_topics_count(const struct rmq_timer_files *f, struct rmq_timer_topics *topics, int64_t *position, int64_t end,
                                int64_t from_ms, int64_t sign, uint64_t limit);

#define RMQ_TIMER_OLDEST_NONE -1
#define RMQ_TIMER_OLDEST_UNKNOWN -2
/* Moves *position to the first unit before `end` whose slot is at from_ms or later, past at most `limit` units. Returns the CommitLog
 * offset of its record: no older one is needed. NONE: there is no such unit. UNKNOWN: call again. */
int64_t rmq_timer_oldest(const struct rmq_timer_files *f, int64_t *position, int64_t end, int64_t from_ms, uint64_t limit);
/* cdef-end */

_Static_assert(sizeof(struct rmq_timer_topic) == 104, "rmq_timer_topic");
#endif
