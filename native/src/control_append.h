/* control_append.h: control as a producer of the log (request ring 16): what it publishes for staged writes.
 *
 * A successor of control never reuses what its predecessor had under way: requests carry the generation of their maker,
 * write drops those of an older one, and nothing is submitted before rmq_control_settled() says that none is left.
 */
#ifndef RMQ_CONTROL_APPEND_H
#define RMQ_CONTROL_APPEND_H

#include "plane.h"

/* cdef-begin */
/* Fills in control's generation, publishes the request and wakes write. 0, or -ENOBUFS: the ring is full. */
int rmq_control_submit(struct rmq_plane *plane, const struct rmq_request *request);

/* Takes the next answer to this generation of control: 1, or 0 when there is none. */
int rmq_control_take(struct rmq_plane *plane, struct rmq_completion *out);

/* Whether an answer waits; to be looked at between arming control's bell and waiting. */
int rmq_control_has_answers(struct rmq_plane *plane);

/* End of the log behind everything that earlier generations asked for, or -EAGAIN while write still has some of it. */
int64_t rmq_control_settled(struct rmq_plane *plane);
/* cdef-end */

#endif
