/* completer.h: answers parked requests. C only; part of the flush role.
 *
 * A parked request is answered 0 when its end is flushed (sync_flush) and replicated (sync_replication). Otherwise the missing
 * condition decides, in this order. Not flushed and a failed fsync -> 14. The broker is no master any more -> 2. Not replicated -> replication_state, or 12 when
 * slaveTimeout is over. Not flushed when syncFlushTimeout is over -> 10. The conditions are the same for all entries, so
 * answers keep the order of the log. In stock, too, the replicas' status wins over the flush's
 * (CommitLog.handleDiskFlushAndHA), but stock waits for both. Twin in plain Python: ha/waiter.py.
 */
#ifndef RMQ_COMPLETER_H
#define RMQ_COMPLETER_H

#include "plane/plane.h"

struct rmq_completer {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_watermarks *marks;
    struct rmq_role *role;
    uint64_t flushed_seen, replicated_seen; /* positions in the parked ring: the time of those below has been counted */
};

void rmq_completer_open(struct rmq_completer *completer, struct rmq_plane *plane);
/* Answers parked requests from the head of the ring on; how many entries were given up. */
uint64_t rmq_completer_run(struct rmq_completer *completer);
/* 1 if the oldest parked request can be answered now. */
int rmq_completer_has_work(struct rmq_completer *completer);
/* 1 if a slave's report may make an answer possible before the next sync has ended. */
int rmq_completer_awaits_slaves(struct rmq_completer *completer);
/* Milliseconds to the next deadline, at most `limit_ms`. */
int rmq_completer_wait_ms(struct rmq_completer *completer, int limit_ms);
#endif
