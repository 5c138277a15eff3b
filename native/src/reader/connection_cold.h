/* connection_cold.h: what cold.c and verdicts.c keep of a connection.
 *
 * What stays true: counts[a] and bytes[a] are those of the asks of this connection, which answerer a holds. Bit a of `asked` is set
 * from the first frame for answerer a until it has the notice of the connection's close. `awaits` is 0 unless the connection is
 * stalled for an answerer.
 */
#ifndef RMQ_CONNECTION_COLD_H
#define RMQ_CONNECTION_COLD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plane/asks_layout.h"

/* Chunks that an answerer has sent, joined. */
struct rmq_joined {
    uint32_t length;
    uint8_t bytes[];
};

struct rmq_connection_cold {
    uint8_t asked;            /* bit a: answerer a has had frames of it, and gets the notice of its close */
    uint8_t registered;       /* it has sent a heartbeat or a lock: a new control has to hear these again */
    uint8_t awaits;           /* its next frame is for the answerer before this number, which has enough of its frames */
    uint32_t answers_due;     /* of the client, to requests of control */
    uint16_t counts[RMQ_ANSWERERS_MAX]; /* requests that each answerer holds */
    uint32_t bytes[RMQ_ANSWERERS_MAX];  /* as they went into their inboxes */
    struct rmq_joined *frame; /* the part that has come of a frame that control sends on its own */
};

static inline void rmq_connection_cold_begin(struct rmq_connection_cold *cold)
{
    cold->asked = cold->registered = cold->awaits = 0;
    cold->answers_due = 0;
    memset(cold->counts, 0, sizeof cold->counts);
    memset(cold->bytes, 0, sizeof cold->bytes);
}
#endif
