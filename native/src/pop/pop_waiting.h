/* pop_waiting.h: pops and notifications that wait for a message, woken and ended. A wake-up serves the whole request once more, as
 * in stock.
 *
 * A key wakes by a message in a queue of its topic or of its retries, by the rest of an answer of the same key, by an answer of the
 * group that no client has received, by a window that begins anew, and if its topic or group is gone. A key for which messages are
 * there that cannot be given now, at a bound or from the disk, is served again every few milliseconds.
 */
#ifndef RMQ_POP_WAITING_H
#define RMQ_POP_WAITING_H

#include "pop/pop_desk.h"

/* cdef-begin */
/* Takes arrivals, serves polls that are awake, and ends those whose time is over, a bounded part of each. The caller wakes the read
 * workers. */
void rmq_pop_waiting_turn(struct rmq_pop_desk *d);
/* 1: the last turn has left arrivals, keys of a look, or polls that are awake. No bell rings for them. */
int rmq_pop_waiting_has_more(const struct rmq_pop_desk *d);
/* The next turns look at all keys: for queues and topics of retries that are new or can be read now, and for topics and groups that
 * are gone. A look that goes on already is followed by another one. */
void rmq_pop_waiting_look(struct rmq_pop_desk *d);
/* All requests are refused from now on, and those of polls. */
void rmq_pop_waiting_wake_all(struct rmq_pop_desk *d);
/* The time of the monotonic clock at which a turn is due; INT64_MAX: none is. */
int64_t rmq_pop_waiting_next_ms(const struct rmq_pop_desk *d);
/* The client has received nothing of the answer with this serial, or its read worker does not hold the poll. Returns the number of
 * pops that are taken back. */
uint32_t rmq_pop_waiting_unsent(struct rmq_pop_desk *d, uint32_t serial);
/* cdef-end */
#endif
