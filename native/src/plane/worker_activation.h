/* worker_activation.h: starting a dormant worker by the word in its role block, and going back to sleep without losing
 * a request.
 *
 *   a process with work: publish the work, then rmq_worker_activate
 *   the worker, idle:    rmq_worker_deactivate, look for work once more, and end only when there is none and
 *                        `needed_until_s` has passed
 *   the supervisor:      sees the word of a dormant worker, stores 0, starts the worker
 * The fences order the work against the word on both sides: either the worker's last look finds the work, or the word is
 * 1 after its end, and the supervisor starts it again. A word that is set while the worker runs starts nothing. A process
 * that dies between word and bell loses nothing: the supervisor looks at the words at least four times a second.
 *
 * The worker of a master (RMQ_ROLE_OF_MASTER) has no work while the broker is none, so nothing sets its word. Its work is looked
 * for when the broker has become the master.
 */
#ifndef RMQ_WORKER_ACTIVATION_H
#define RMQ_WORKER_ACTIVATION_H
#include "plane/plane.h"

/* cdef-begin */
/* After publishing work for the role's worker, which may be dormant. 1 if a system call was needed. No effect on the worker of a
 * master while the broker is none. */
int rmq_worker_activate(struct rmq_plane *plane, uint32_t role);
/* The worker itself, before its last look for work. */
void rmq_worker_deactivate(struct rmq_plane *plane, uint32_t role);
/* cdef-end */
#endif
