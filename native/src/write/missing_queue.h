/* missing_queue.h: records of another master whose queue is in no table, before write counts the offsets of the queues.
 *
 * The log of a slave may be ahead of its topics. When the slave becomes a master, a send to a queue that write has not counted
 * would get the offset of such a record. So control makes the entries of all queues first (journal.h).
 */
#ifndef RMQ_MISSING_QUEUE_H
#define RMQ_MISSING_QUEUE_H
#include "plane/plane.h"

/* cdef-begin */
struct rmq_missing_queue {
    uint64_t offset; /* CommitLog: the search goes on here */
    uint32_t queue_id;
    uint32_t is_batch;
    uint32_t topic_length;
    char topic[256]; /* not terminated */
};

/* Searches the log from `at->offset` on, at most up to `end` and over `bytes_max` bytes. 1: the record there has a queue without
 * an entry, which `at` names. 0: no record in front of it has. Or -errno. A damaged record is left out, as dispatch does. */
int rmq_missing_queue_find(struct rmq_plane *plane, struct rmq_missing_queue *at, uint64_t end, uint64_t bytes_max);
/* cdef-end */
#endif
