/* worker_want.h: starting a dormant worker by the word in its role block, and going back to sleep without losing a wish.
 *
 *   a process with work: publish the work, then rmq_worker_want
 *   the worker, idle:    rmq_worker_rest, look for work once more, and end only when there is none
 *   the supervisor:      sees the word of a dormant worker, stores 0, starts the worker
 * The fences order the work against the word on both sides: either the worker's last look finds the work, or the word is
 * 1 after its end, and the supervisor starts it again. A word that is set while the worker runs starts nothing. A process
 * that dies between word and bell loses nothing: the supervisor looks at the words at least four times a second.
 */
#ifndef RMQ_WORKER_WANT_H
#define RMQ_WORKER_WANT_H
#include "plane.h"

/* cdef-begin */
/* After publishing work for the role's worker, which may be dormant. 1 if a system call was needed. */
int rmq_worker_want(struct rmq_plane *plane, uint32_t role);
/* The worker itself, before its last look for work. */
void rmq_worker_rest(struct rmq_plane *plane, uint32_t role);
/* cdef-end */
#endif
