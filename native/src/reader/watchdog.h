/* watchdog.h: detects a hung reader: bytes wait on sockets that are not stalled, and the reader has received none for 5
 * seconds. The process cannot repair such a state of the kernel's, so the reader ends with RMQ_RUN_HUNG and is replaced.
 *
 * What stays true: the last `looks` looks have found waiting bytes, and none has found more received ones than `seen`.
 */
#ifndef RMQ_WATCHDOG_H
#define RMQ_WATCHDOG_H

#include "reader/connections.h"

struct rmq_watchdog {
    const struct rmq_read_context *context;
    const struct rmq_connections *connections;
    int64_t look_ms;
    uint64_t seen; /* bytes received at the last look */
    uint32_t looks, next;
};

/* 1 = hung. Looks once a second. */
int rmq_reader_is_hung(struct rmq_watchdog *watchdog);
#endif
