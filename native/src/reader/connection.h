/* connection.h: one connection of a read worker. Each group of fields belongs to the part that is named in front of it, and
 * other parts only read them, but for the times: a part that sees progress, or the end of a wait, notes it.
 */
#ifndef RMQ_CONNECTION_H
#define RMQ_CONNECTION_H

#include "reader/spans.h"

struct rmq_output;

/* Chunks that an answerer has sent, joined. */
struct rmq_joined {
    uint32_t length;
    uint8_t bytes[];
};

enum rmq_connection_state { RMQ_CONNECTION_FREE, RMQ_CONNECTION_OPEN, RMQ_CONNECTION_CLOSING, RMQ_CONNECTION_REPORT };

#define RMQ_STALL_RING 1   /* request ring full */
#define RMQ_STALL_ROOM 2   /* no block for a straddling frame */
#define RMQ_STALL_OUTPUT 4 /* its answers are not read fast enough */
#define RMQ_STALL_COLD 8   /* control has enough of its frames */
#define RMQ_STALL_TURN 16  /* it has had its part of this turn */

struct rmq_connection {
    /* connections.c */
    int fd;
    uint32_t generation;
    uint8_t state;
    uint8_t receiving;       /* a receive is armed */
    uint8_t stopping;        /* a stop of it was asked for */
    uint8_t listener;        /* 1 = VIP port */
    uint8_t v6;
    uint8_t in_starved : 1;
    uint8_t took_full : 1;   /* its last receive filled a buffer, or found none: it gets one buffer at a time */
    uint16_t port;
    uint8_t host[16];
    int64_t active_ms;
    /* output.c */
    uint8_t sending;         /* or reading the next bytes to send */
    uint8_t dirty;
    struct rmq_output *output;
    /* frames.c: the frame in the making, the bytes that wait */
    uint8_t stall;           /* RMQ_STALL_*: parsing waits */
    uint8_t spoke : 1, in_stalled : 1, waited : 1;
    uint8_t head[4];
    uint8_t *early;          /* its first bytes, with the head, while they are few: they hold nothing of the arena */
    uint32_t head_length;    /* of both */
    uint32_t frame_bytes;    /* 0: no block yet */
    uint32_t filled;
    uint32_t room_bytes;     /* of the frame that waits for a block, in RMQ_STALL_ROOM */
    struct rmq_frame_ref block;
    int64_t partial_ms;
    struct rmq_spans spans;
    int64_t taken_ms;        /* a whole frame was taken last, 0 = none was */
    int64_t stall_ms;        /* since when it is stalled or starved */
    /* parking.c */
    uint32_t parked;         /* first parked pull, index + 1 */
    uint32_t parked_count;   /* bounded: one connection must not take every place of its reader */
    /* cold.c */
    uint8_t asked;           /* bit a: answerer a has had frames of it, and gets the notice of its close */
    uint8_t registered;      /* it has sent a heartbeat or a lock: a new control has to hear these again */
    uint32_t cold_count;     /* requests that answerers hold */
    uint32_t cold_bytes;     /* as they went into their inboxes */
    uint32_t answers_due;    /* of the client, to requests of control */
    struct rmq_joined *server_frame; /* the part that has come of a frame that control sends on its own */
    /* sends.c */
    uint32_t topic_id;       /* of the last send: most clients repeat it */
    int64_t stalled_ns;      /* since when its next send waits for room, 0 = does not */
};
#endif
