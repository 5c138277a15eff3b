/* slot_counts.h: the number of messages in a slot of the timer wheel, read from the file `timerwheel`. C only.
 *
 * The timer worker keeps the file (timer/timer_wheel.py has its format). It may not run, or may replace the file, so the file is
 * opened again once a second while counts are asked for. A count may be stale by as long as the worker delays its stores.
 *
 * What stays true: the descriptor is at most a second old, and what the file says is a count, never a place in memory.
 */
#ifndef RMQ_SLOT_COUNTS_H
#define RMQ_SLOT_COUNTS_H

#include <stdint.h>

/* cdef-begin */
struct rmq_slot_counts {
    int fd;             /* -1: there is no file */
    int64_t opened_ms;
};

void rmq_slot_counts_open(struct rmq_slot_counts *counts);
void rmq_slot_counts_close(struct rmq_slot_counts *counts);
/* Messages of the slot of `slot_ms`, less deletes. 0 without a file, and for a slot that holds another time. */
int64_t rmq_slot_count(struct rmq_slot_counts *counts, const char *store_path, int64_t slot_ms, int64_t precision_ms, int64_t now_ms);
/* cdef-end */
#endif
