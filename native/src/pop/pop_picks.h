/* pop_picks.h: the messages of one answer: which queues, which units. Nothing is given yet (pop_batch.c gives). C only. */
#ifndef RMQ_POP_PICKS_H
#define RMQ_POP_PICKS_H

#include "pop/pop_desk.h"

struct rmq_pop_message {
    int64_t queue_offset;
    uint64_t position;           /* in the log */
    uint64_t mark;               /* of a copy: the window and the offset that it came from; 0: none */
    uint32_t size;
    uint32_t is_held;
    struct rmq_held_record held; /* of a retry topic */
};

/* Messages of one queue. */
struct rmq_pop_pick {
    uint32_t place, flag, queue_id;
    uint32_t first, count;       /* messages */
    uint32_t looked;             /* with those that are passed over */
    int64_t start_offset, next_offset;
    uint32_t is_again;           /* they were returned */
};

struct rmq_pop_picks {
    struct rmq_pop_pick picks[RMQ_POP_MESSAGES_MAX];
    struct rmq_pop_message messages[RMQ_POP_MESSAGES_MAX];
    uint32_t pick_count, message_count, held_count;
    uint32_t wanted;             /* messages */
    uint32_t is_full;            /* no further message fits */
    uint32_t is_woken;           /* it has waited: messages that its filter does not want stay for the others */
    uint32_t has_left;           /* another poll may get messages that are not in `rest` */
    uint32_t has_later;          /* messages are there that may be given a moment later */
    uint32_t is_stuck;           /* the queue that was looked at last: no later look reads it */
    uint32_t room;               /* left for the bytes of retries that are written anew */
    uint64_t bytes;              /* of the answer */
    int64_t rest;
    const struct rmq_pop_filter *filter; /* NULL: all */
    const struct rmq_pop_attempt *order; /* of an orderly pop; NULL: another one */
    uint64_t log_end;
    uint64_t lowest;             /* position of a message: the reader takes the strictest bounds of all */
};

/* A topic of a request. */
struct rmq_pop_source {
    uint32_t topic_id, flag;
    uint32_t queues;             /* read queues */
    int32_t queue_id;            /* negative: all */
    uint32_t turn;               /* the queue that is first */
};

/* Picks from the queues of a topic in rotation. 0, or RMQ_POP_NEEDS_WINDOWS. */
uint32_t rmq_pop_pick_topic(struct rmq_pop_desk *d, struct rmq_pop_picks *p, uint32_t group_id, const struct rmq_pop_source *source);
void rmq_pop_picks_release(struct rmq_pop_picks *p);
#endif
