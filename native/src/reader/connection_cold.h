/* connection_cold.h: what cold.c and verdicts.c keep of a connection.
 *
 * What stays true: `count` and `bytes` are those of the asks of this connection, which answerers hold. Bit a of `asked` is set
 * from the first frame for answerer a until it has the notice of the connection's close.
 */
#ifndef RMQ_CONNECTION_COLD_H
#define RMQ_CONNECTION_COLD_H

#include <stddef.h>
#include <stdint.h>

/* Chunks that an answerer has sent, joined. */
struct rmq_joined {
    uint32_t length;
    uint8_t bytes[];
};

struct rmq_connection_cold {
    uint8_t asked;            /* bit a: answerer a has had frames of it, and gets the notice of its close */
    uint8_t registered;       /* it has sent a heartbeat or a lock: a new control has to hear these again */
    uint32_t count;           /* requests that answerers hold */
    uint32_t bytes;           /* as they went into their inboxes */
    uint32_t answers_due;     /* of the client, to requests of control */
    struct rmq_joined *frame; /* the part that has come of a frame that control sends on its own */
};

static inline void rmq_connection_cold_begin(struct rmq_connection_cold *cold)
{
    cold->asked = cold->registered = 0;
    cold->count = cold->bytes = cold->answers_due = 0;
}
#endif
