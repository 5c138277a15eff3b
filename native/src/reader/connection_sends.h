/* connection_sends.h: what sends.c keeps of a connection.
 *
 * What stays true: `stalled_ns` is set while the frame at hand is a send that found no room, and no longer.
 */
#ifndef RMQ_CONNECTION_SENDS_H
#define RMQ_CONNECTION_SENDS_H

#include <stdint.h>

struct rmq_connection_sends {
    int64_t stalled_ns; /* since when its next send waits for room, 0 = does not */
    uint32_t topic_id;  /* of the last send: most clients repeat it */
};

static inline void rmq_connection_sends_begin(struct rmq_connection_sends *sends)
{
    *sends = (struct rmq_connection_sends){0, 0};
}
#endif
