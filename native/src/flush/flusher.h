/* flusher.h: the flush role and the completer. append_offset -> fdatasync -> flushed_offset -> answers.
 *
 * Group commit: the append position is read before the sync is submitted. Every file from that of flushed_offset to that of the
 * last appended byte is synced before flushed_offset moves. A failed sync is never repeated: store_fault stays, flushed_offset
 * stays, and all waiting requests get an error. A restart needs no state: bytes that are not known to be flushed are flushed
 * again, and the parked ring goes on at its tail.
 */
#ifndef RMQ_FLUSHER_H
#define RMQ_FLUSHER_H

#include "plane/plane.h"

/* cdef-begin */
/* counters of role FLUSH in struct rmq_role */
#define RMQ_FLUSH_SYNCS 0
#define RMQ_FLUSH_COMPLETED 1
#define RMQ_FLUSH_TIMEOUTS 2
#define RMQ_FLUSH_FAILED 3             /* parked requests answered 14 */
#define RMQ_FLUSH_SYNC_NS 4            /* spent in fdatasync */
#define RMQ_FLUSH_SYNC_NS_MAX 5
#define RMQ_FLUSH_SLEEPS 6
#define RMQ_FLUSH_SLAVE_LOST 7         /* parked requests answered 11 */
#define RMQ_FLUSH_SLAVE_TIMEOUTS 8     /* answered 12 */
#define RMQ_FLUSH_YIELDED 9            /* answered 2 */

/* The values that the shell needs for checkpoint, marker file and segment making. */
struct rmq_flush_state {
    uint64_t flushed_offset;
    int64_t flushed_store_time_ms;     /* store time of the last batch known to be on disk, 0 = none since start */
    uint64_t next_segment;             /* offset of the file behind that of append_offset */
    int32_t next_segment_exists;
    uint32_t store_fault;
    int32_t store_fault_errno;
    uint32_t parked;                   /* requests waiting now */
};

struct rmq_flusher;

/* -ENOSYS, -EPERM: io_uring refused, where it is the engine. */
struct rmq_flusher *rmq_flusher_open(struct rmq_plane *plane, int *error);
/* RMQ_RUN_BUDGET, RMQ_RUN_STOPPED (everything flushed and answered), RMQ_RUN_ROLLED, RMQ_RUN_FAULT, or -errno. */
int rmq_flusher_run(struct rmq_flusher *flusher, int64_t budget_ns);
void rmq_flusher_close(struct rmq_flusher *flusher);

/* The three below may be called by another thread of the flush worker while run is running. */
void rmq_flusher_state(struct rmq_flusher *flusher, struct rmq_flush_state *out);
/* Sets or clears (RMQ_FAULT_NONE) DISK_FULL or CREATE_FILE. 0, or -EBUSY when FSYNC is set: that one stays. */
int rmq_flusher_set_fault(struct rmq_flusher *flusher, uint32_t fault, int32_t fault_errno);
/* After deleting old files: the log begins here now. Never goes back. */
void rmq_flusher_set_min_offset(struct rmq_flusher *flusher, uint64_t min_offset);
/* cdef-end */
#endif
