/* pop_polls.h: requests that wait for a message, by what they ask for. Private memory of pop: the read worker keeps the requests,
 * too, and asks the next process of pop again.
 *
 * What stays true:
 * - A key is a topic, a group and a queue, or all queues, and the kind of its polls. It is there while a poll of it waits.
 * - Pops are served from the oldest one on, and notifications from the newest one on, as in stock.
 * - A key is asleep, awake (its first polls are to be served), or behind: a message is there that cannot be given yet.
 * - A key is in the lists of its topic, of the topics of its retries that are known, and of its group.
 *
 * Nothing here reads a clock, a queue or the plane. Twin: ringmq/pop/polls_twin.py.
 */
#ifndef RMQ_POP_POLLS_H
#define RMQ_POP_POLLS_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_POP_POLLS_MAX 65536          /* slots of a read worker: the number of a poll is its slot */
#define RMQ_POP_POLLS_BYTES_MAX 67108864 /* of the requests of all polls */

/* Kinds of polls. */
#define RMQ_POP_POLL_POP 0
#define RMQ_POP_POLL_NOTIFICATION 1      /* it takes no message */
#define RMQ_POP_POLL_KINDS 2

struct rmq_pop_polls;

struct rmq_pop_key {
    uint32_t topic_id, group_id;
    int32_t queue_id;                    /* -1: all */
    uint32_t kind;                       /* RMQ_POP_POLL_* */
};

struct rmq_pop_poll_ask {
    struct rmq_pop_key key;
    uint32_t role, role_generation;      /* of the read worker */
    uint32_t connection, connection_generation;
    uint32_t serial;                     /* of the answer */
    int64_t due_ms;                      /* of the monotonic clock: its time is over */
};

struct rmq_pop_poll {
    struct rmq_pop_poll_ask ask;
    uint8_t *request;                    /* a copy */
    uint32_t request_bytes;
    uint32_t key;
    uint32_t next, previous;             /* of its key; number + 1 */
};

/* Each kind has its own count of them. */
struct rmq_pop_poll_limits {
    uint32_t polls;                      /* maxPopPollingSize */
    uint32_t keys;                       /* popPollingMapSize */
    uint32_t of_key;                     /* popPollingSize: a key that has more takes no further one, as in stock */
};

/* `topics`, `groups`: the largest ids. NULL = no memory. */
struct rmq_pop_polls *rmq_pop_polls_open(uint32_t topics, uint32_t groups, int64_t now_ms);
void rmq_pop_polls_close(struct rmq_pop_polls *p);
/* The number of the new poll, RMQ_NONE: a limit is reached. */
uint32_t rmq_pop_polls_add(struct rmq_pop_polls *p, const struct rmq_pop_poll_limits *limits, const struct rmq_pop_poll_ask *ask,
                           const void *request, uint32_t request_bytes);
void rmq_pop_polls_end(struct rmq_pop_polls *p, uint32_t poll);
const struct rmq_pop_poll *rmq_pop_polls_at(const struct rmq_pop_polls *p, uint32_t poll);
/* RMQ_NONE: no poll has this serial. */
uint32_t rmq_pop_polls_named(const struct rmq_pop_polls *p, uint32_t serial);
/* Ends the polls of a closed connection. Returns their number. */
uint32_t rmq_pop_polls_closed(struct rmq_pop_polls *p, uint32_t role, uint32_t role_generation, uint32_t connection,
                              uint32_t connection_generation);
/* The read worker has another process: ends the polls of older ones. Returns their number. */
uint32_t rmq_pop_polls_restarted(struct rmq_pop_polls *p, uint32_t role, uint32_t role_generation);
uint32_t rmq_pop_polls_count(const struct rmq_pop_polls *p);
uint32_t rmq_pop_polls_count_kind(const struct rmq_pop_polls *p, uint32_t kind);
uint32_t rmq_pop_polls_count_of(const struct rmq_pop_polls *p, const struct rmq_pop_key *key);

/* Notifications of a key are told of its queues up to there: the sum of their ends. A message behind it is for one more of them, and
 * so is a wake-up of the key or its group, which lowers it by 1. 0 at first, and of a key that is not there. */
int64_t rmq_pop_polls_told_to(const struct rmq_pop_polls *p, const struct rmq_pop_key *key);
void rmq_pop_polls_tell_to(struct rmq_pop_polls *p, const struct rmq_pop_key *key, int64_t ends);

/* A message has come to the queue. Returns the number of keys that wait for it. */
uint32_t rmq_pop_polls_wake_queue(struct rmq_pop_polls *p, uint32_t topic_id, uint32_t queue_id);
/* Something has changed for the group, or for one key. */
void rmq_pop_polls_wake_group(struct rmq_pop_polls *p, uint32_t group_id);
void rmq_pop_polls_wake_key(struct rmq_pop_polls *p, const struct rmq_pop_key *key);
int rmq_pop_polls_is_awake(const struct rmq_pop_polls *p); /* 1: some key is */
/* Takes the key that has been awake the longest: it is asleep. Returns the poll that is served first, or that with which it goes
 * on; RMQ_NONE: no key is awake. */
uint32_t rmq_pop_polls_take_awake(struct rmq_pop_polls *p);
/* The key of this poll is awake, and goes on with the poll. If something wakes the key before, it begins with its first one. */
void rmq_pop_polls_resume(struct rmq_pop_polls *p, uint32_t poll);
uint32_t rmq_pop_polls_next_of(const struct rmq_pop_polls *p, uint32_t poll); /* the next one to serve of its key; RMQ_NONE */
/* A message is there for the key of this poll, and cannot be given now. An awake key stays awake. */
void rmq_pop_polls_put_behind(struct rmq_pop_polls *p, uint32_t poll);
int rmq_pop_polls_is_behind(const struct rmq_pop_polls *p); /* 1: some key is */
/* Wakes `room` keys at most that are behind, those that are so the longest. */
void rmq_pop_polls_go_on(struct rmq_pop_polls *p, uint32_t room);
/* The poll whose time is over the longest; RMQ_NONE: there is none, or *steps polls were sorted and more are left. */
uint32_t rmq_pop_polls_due(struct rmq_pop_polls *p, int64_t now_ms, uint32_t *steps);
/* No poll is due before it, which may be too early. INT64_MAX: no poll waits. */
int64_t rmq_pop_polls_next_ms(const struct rmq_pop_polls *p);

/* The keys, for a look at all: the first, and the next behind one. RMQ_NONE: there is none. */
uint32_t rmq_pop_polls_key_from(const struct rmq_pop_polls *p, uint32_t number, struct rmq_pop_key *key);
/* The topics of its retries, RMQ_NONE: not known. A known one is not forgotten, another one takes its place. */
void rmq_pop_polls_set_retries(struct rmq_pop_polls *p, const struct rmq_pop_key *key, uint32_t v1, uint32_t v2);
/* cdef-end */

_Static_assert(sizeof(struct rmq_pop_poll) <= 256, "one for each poll, and its request");
#endif
