/* pop_orders.h: batches of orderly groups. A queue has one batch at a time, and blocks until its messages are acknowledged or their
 * time is over. Then the queue is read again from next_offset of the window on, which is the consumer offset.
 *
 * So a batch says who waits and how often a message came, and no message is lost with it. Twin: ringmq/pop/order_twin.py.
 */
#ifndef RMQ_POP_ORDERS_H
#define RMQ_POP_ORDERS_H
#include <string.h>

#include "pop/pop_wheel.h"
#include "pop/pop_windows.h"

/* cdef-begin */
#define RMQ_POP_ILLEGAL 4    /* of an acknowledgement: the batch does not have the message */

/* The name that a client gives to one receive, and to its repetitions. `bytes` 0: none, at most RMQ_POP_ATTEMPT_BYTES_MAX. */
struct rmq_pop_attempt {
    const uint8_t *text;
    uint32_t bytes;
};

/* To read. NULL: the window has no batch. */
const struct rmq_pop_order *rmq_pop_order_at(const struct rmq_pop_windows *w, uint32_t place);
/* The offset from which on the messages of the batch are not done, or that behind it. 0: there is none. */
int64_t rmq_pop_order_next(const struct rmq_pop_windows *w, uint32_t place);
/* Bit i: message i of the batch is not done. 0: there is no batch. */
uint32_t rmq_pop_order_open(const struct rmq_pop_windows *w, uint32_t place);
/* The monotonic time at which the queue is free; INT64_MIN: it is. */
int64_t rmq_pop_order_blocked_ms(const struct rmq_pop_windows *w, uint32_t place);
/* 1: a pop of this attempt gets nothing of the queue. The attempt that has the batch gets it again. */
int rmq_pop_order_blocks(const struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_attempt *attempt, int64_t mono_ms);
/* Makes sure that so many batches can be given. Batches that block no queue give way. 0, or -ENOSPC. */
int rmq_pop_orders_ready(struct rmq_pop_windows *w, uint32_t count, int64_t mono_ms);
/* The first pop time from `pop_time_ms` on that none of the windows' batches has. */
int64_t rmq_pop_order_time_for(const struct rmq_pop_windows *w, const uint32_t *places, uint32_t count, int64_t pop_time_ms);
/* The batch of a pop: 1 to RMQ_POP_ORDER_MESSAGES ascending offsets from next_offset of the window on, which stays. It counts how often
 * the batch before it has given each message. It blocks the queue from rmq_pop_order_show on. 0, or -ENOSPC: nothing changed. */
int rmq_pop_order_give(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const struct rmq_pop_attempt *attempt,
                       const int64_t *offsets, uint32_t count);
/* The answer with the batch leaves now. A worker that dies before leaves the queue free: no consumer has the batch. */
void rmq_pop_order_show(struct rmq_pop_windows *w, uint32_t place);
/* Acknowledges a message. DONE: next_offset has moved to the first one that is not done. KNOWN: the offset lies below next_offset.
 * UNKNOWN: the window has no batch of that pop. ILLEGAL: the batch has no such message. Nothing has changed then. */
int rmq_pop_order_ack(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms, int64_t offset);
/* Gives a message another time, `due_ms` of the monotonic clock. Results as above, and DONE for a message that is done. */
int rmq_pop_order_change(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms, int64_t offset, int64_t due_ms);
/* The answer with this pop was not sent: the batch blocks no longer, and the next pop counts it as never given. 1, or 0 if there is no
 * such batch. */
int rmq_pop_order_unsent(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms);
/* Places of windows, at most `room`, whose queues have become free by time. */
uint32_t rmq_pop_orders_due(struct rmq_pop_windows *w, int64_t mono_ms, uint32_t *places, uint32_t room);
/* No queue becomes free before, which may be too early. INT64_MAX: none will. */
int64_t rmq_pop_orders_next_ms(const struct rmq_pop_windows *w);
/* The first slot from `slot` on that has a batch, and the place of its window; RMQ_NONE: there is none. */
uint32_t rmq_pop_orders_from(const struct rmq_pop_windows *w, uint32_t slot, uint32_t *place);
/* Grows with each change of a batch. */
uint64_t rmq_pop_orders_changes(const struct rmq_pop_windows *w);
/* A batch that another broker has had: `visible_ms` and `consumed` of each message, `acked` its bits. 0, or -ENOSPC. */
int rmq_pop_order_adopt(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const struct rmq_pop_attempt *attempt,
                        const int64_t *offsets, uint32_t count, const uint32_t *visible_ms, const uint16_t *consumed, uint32_t acked);
/* cdef-end */

/* --- for the files of the windows --- */

struct rmq_pop_orders {
    struct rmq_pop_order *all;
    uint32_t *places;            /* of each slot: place + 1, 0 = it is not used */
    int64_t *mono_ms;            /* of each slot: the moment of the pop by the monotonic clock */
    uint8_t *is_armed;           /* of each slot: it is in the wheel */
    uint32_t *spare, spare_count, end; /* unused slots below `end`; none above it is used */
    uint32_t hand;               /* slot that is asked next to give way */
    uint64_t changes;
    struct rmq_pop_wheel wheel;
};

int rmq_pop_orders_open(struct rmq_pop_windows *w); /* 0 or -ENOMEM */
void rmq_pop_orders_close(struct rmq_pop_windows *w);
/* Finds the batches of all windows. Returns the number of damaged ones. */
uint32_t rmq_pop_orders_read(struct rmq_pop_windows *w, int64_t now_ms);
/* The window has ended: its batch `order` (slot + 1, 0 = none) does not count any more. */
void rmq_pop_order_forget(struct rmq_pop_windows *w, uint32_t order);
/* The queue is cut: a batch that reaches beyond its end does not count any more. */
void rmq_pop_order_clamp(struct rmq_pop_windows *w, uint32_t place, int64_t end_offset);
uint32_t rmq_pop_order_check(const struct rmq_pop_order *order);
/* A slot for a batch of the window. `ready` comes before. */
uint32_t rmq_pop_order_take(struct rmq_pop_windows *w, uint32_t place, int64_t mono_ms);
/* The time has changed at which the window's queue is free. */
void rmq_pop_order_arm(struct rmq_pop_windows *w, uint32_t place);
/* 1: the attempt has got the batch. */
static inline int rmq_pop_order_is_of(const struct rmq_pop_order *o, const struct rmq_pop_attempt *attempt)
{
    return attempt->bytes && attempt->bytes == o->attempt_bytes && !memcmp(attempt->text, o->attempt, attempt->bytes);
}
static inline int64_t rmq_pop_order_offset(const struct rmq_pop_order *o, uint32_t i) { return (int64_t)(o->base_offset + o->deltas[i]); }
#endif
