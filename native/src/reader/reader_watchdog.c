/* Detects a hung reader: bytes wait on sockets that are not stalled, and the reader has received none for 5 seconds.
 * The process cannot repair such a state of the kernel's, so the reader ends with RMQ_RUN_HUNG and is replaced. */
#include <sys/ioctl.h>

#include "reader/reader_state.h"

#define LOOK_MS 1000
#define LOOKS 5
#define SOCKETS 1024 /* at most so many are asked in one look */

static int bytes_wait(struct rmq_reader *r)
{
    uint32_t count = r->connections.used < SOCKETS ? r->connections.used : SOCKETS;
    for (uint32_t i = 0; i < count; i++) {
        r->watchdog_next = r->watchdog_next + 1 < r->connections.used ? r->watchdog_next + 1 : 0;
        const struct rmq_connection *c = rmq_connection_at(&r->connections, r->watchdog_next);
        int waiting = 0;
        if (c->state == RMQ_CONNECTION_OPEN && !c->stall && ioctl(c->fd, FIONREAD, &waiting) == 0 && waiting > 0)
            return 1;
    }
    return 0;
}

int rmq_reader_is_hung(struct rmq_reader *r)
{
    if (r->context.now_ms < r->watchdog_look_ms || r->stopping)
        return 0;
    uint64_t heard = r->context.counters[RMQ_READ_BYTES_IN];
    r->watchdog_look_ms = r->context.now_ms + LOOK_MS;
    if (heard != r->watchdog_seen || !bytes_wait(r))
        r->watchdog_looks = 0;
    else
        r->watchdog_looks++;
    r->watchdog_seen = heard;
    return r->watchdog_looks >= LOOKS;
}
