/* pop_given.h: the pops of the last answers, so that an answer that no client has received can be taken back. Private memory of
 * pop. An answer that is no longer here was given too long ago: its messages come again at their time.
 */
#ifndef RMQ_POP_GIVEN_H
#define RMQ_POP_GIVEN_H

#include "pop/pop_windows.h"

/* cdef-begin */
#define RMQ_POP_GIVEN_ANSWERS 65536
#define RMQ_POP_GIVEN_POPS 131072        /* pops of single queues, of all these answers */

struct rmq_pop_given;

/* NULL = no memory. */
struct rmq_pop_given *rmq_pop_given_open(void);
void rmq_pop_given_close(struct rmq_pop_given *given);
/* A number for an answer, of which nothing is given yet: polls have theirs while they wait. */
uint32_t rmq_pop_given_serial(struct rmq_pop_given *given);
/* The answer with this number. Its pops follow. */
void rmq_pop_given_begin(struct rmq_pop_given *given, uint32_t serial);
void rmq_pop_given_add(struct rmq_pop_given *given, uint32_t place, uint32_t window_id, int64_t start_offset, int64_t pop_time_ms);
/* The place of the window of its first pop, RMQ_NONE: nothing is known of it. All pops of an answer are of one group. */
uint32_t rmq_pop_given_place(const struct rmq_pop_given *given, uint32_t serial);
/* The client has received nothing of this answer: the messages of its pops are returned. Returns the number of pops. */
uint32_t rmq_pop_given_unsent(struct rmq_pop_given *given, struct rmq_pop_windows *windows, uint32_t serial);
/* cdef-end */
#endif
