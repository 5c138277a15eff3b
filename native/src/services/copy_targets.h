/* copy_targets.h: the queues to which copies of stored records go, by the pairs REAL_TOPIC and REAL_QID of each record.
 *
 * A message that waits in a system topic (delayed, half, timer) keeps there the topic and the queue that its sender named.
 * `ringmq.store.copy_targets` is the same rule in Python.
 */
#ifndef RMQ_COPY_TARGETS_H
#define RMQ_COPY_TARGETS_H

#include "plane/plane.h"
#include "services/record_copy.h"

/* cdef-begin */
/* Fills topic_id, queue_slot and queue_id of copies[0..count), which read their records already (rmq_record_copies_read). A copy
 * without a target has queue_slot RMQ_NONE, and cause and detail say why; rmq_record_copies leaves it out. No copy goes to the
 * topic `excluded_topic_id` (RMQ_NONE: to any). Damaged records are left to rmq_record_copies. Returns the number of copies without
 * a target. */
uint32_t rmq_copy_targets(struct rmq_plane *plane, struct rmq_record_copy *copies, uint32_t count, uint32_t excluded_topic_id);
/* cdef-end */

#endif
