#include "reader/watchdog.h"

#include <sys/ioctl.h>

#define LOOK_MS 1000
#define LOOKS 5
#define SOCKETS 1024 /* at most so many are asked in one look */

static int bytes_wait(struct rmq_watchdog *watchdog)
{
    uint32_t count = watchdog->connections->used < SOCKETS ? watchdog->connections->used : SOCKETS;
    for (uint32_t i = 0; i < count; i++) {
        watchdog->next = watchdog->next + 1 < watchdog->connections->used ? watchdog->next + 1 : 0;
        const struct rmq_connection *c = rmq_connection_at(watchdog->connections, watchdog->next);
        int waiting = 0;
        if (c->state == RMQ_CONNECTION_OPEN && !rmq_input_is_stalled(&c->input) && ioctl(c->fd, FIONREAD, &waiting) == 0 &&
            waiting > 0)
            return 1;
    }
    return 0;
}

int rmq_reader_is_hung(struct rmq_watchdog *watchdog)
{
    if (watchdog->context->now_ms < watchdog->look_ms)
        return 0;
    uint64_t heard = watchdog->context->counters[RMQ_READ_BYTES_IN];
    watchdog->look_ms = watchdog->context->now_ms + LOOK_MS;
    if (heard != watchdog->seen || !bytes_wait(watchdog))
        watchdog->looks = 0;
    else
        watchdog->looks++;
    watchdog->seen = heard;
    return watchdog->looks >= LOOKS;
}
