/* pop_hold.h: a pop or a notification that has found nothing begins to wait. Its read worker holds the request (RMQ_VERDICT_HOLD),
 * and the table of polls has what is needed to serve it again.
 *
 * A message that comes between the look at a queue and the wish for its arrivals is found: a key with a new wish is awake, so it is
 * served once more.
 */
#ifndef RMQ_POP_HOLD_H
#define RMQ_POP_HOLD_H

#include "pop/pop_desk.h"

/* cdef-begin */
/* No arrival is wanted: the process begins, or ends without polls. Dispatch starts a worker that wants some. */
void rmq_pop_want_none(struct rmq_pop_desk *d);
/* cdef-end */

/* Remarks of stock: of a pop without messages, and where it sets none. */
#define RMQ_POP_NOTHING "NO_MESSAGE_IN_QUEUE"
#define RMQ_POP_NOTHING_SET "not set any response code"

enum rmq_pop_waiting {
    RMQ_POP_IS_OVER,             /* the row is answered now */
    RMQ_POP_IS_HELD,
    RMQ_POP_IS_FULL,             /* it would wait, but there are too many polls */
};

/* A row as the table of polls keeps it. Its texts follow. */
struct rmq_pop_request {
    struct rmq_inbox_record ask;
    struct rmq_plain_asked asked;
    struct rmq_pop_fields fields;
    int64_t until_ns;
};

/* The row has found nothing. `is_behind`: there is something that cannot be given now. */
enum rmq_pop_waiting rmq_pop_wait(struct rmq_pop_desk *d, const struct rmq_pop_row *row, const struct rmq_pop_key *key,
                                  int is_behind);
/* 1: it is a poll, and its topic was deleted and made anew. Arrivals would not wake it. */
int rmq_pop_is_of_another_topic(const struct rmq_pop_desk *d, const struct rmq_pop_row *row, uint32_t topic_id);
/* The topic of the key's retries in the form of a flag; RMQ_NONE: it is not there. */
uint32_t rmq_pop_retry_id(const struct rmq_pop_desk *d, const struct rmq_pop_key *key, uint32_t flag);
/* Wants all arrivals for which the key waits. It is awake if some were not wanted before. */
void rmq_pop_want_all(struct rmq_pop_desk *d, const struct rmq_pop_key *key);
/* Tells dispatch how many polls wait: while some do, it does not nap. */
void rmq_pop_tell_waiting(struct rmq_pop_desk *d);
/* A byte for each queue slot: 1, if its arrivals are wanted. */
uint8_t *rmq_pop_wishes(const struct rmq_pop_desk *d);
#endif
