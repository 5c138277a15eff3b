/* connection.h: one connection of a read worker. Its own fields are those of connections.c, which others only read. Each other
 * part that has something to remember of a connection has a struct of its own here, declared in a header of that part's, and no
 * part touches the struct of another: it asks (input.h, output.h, parking.h, cold.h, sends.h).
 *
 * What stays true: a row is 240 bytes, and all that a frame in the ordinary case touches lies in the first 128.
 */
#ifndef RMQ_CONNECTION_H
#define RMQ_CONNECTION_H

#include <stddef.h>

#include "reader/connection_cold.h"
#include "reader/connection_output.h"
#include "reader/connection_parked.h"
#include "reader/connection_sends.h"
#include "reader/input.h"

enum rmq_connection_state { RMQ_CONNECTION_FREE, RMQ_CONNECTION_OPEN, RMQ_CONNECTION_CLOSING, RMQ_CONNECTION_REPORT };

struct rmq_connection {
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
    int64_t waits_since_ms;  /* since when it is stalled or starved */
    struct rmq_connection_output output;
    struct rmq_connection_sends sends;
    struct rmq_input input;
    struct rmq_connection_parked parked;
    struct rmq_connection_cold cold;
};
_Static_assert(sizeof(struct rmq_connection) <= 240, "a reader has one for each client, and a frame uses little of it");
_Static_assert(offsetof(struct rmq_connection, input.begun_ms) <= 128, "a frame's fields are near each other");

static inline void rmq_connection_note_active(struct rmq_connection *c, int64_t now_ms) { c->active_ms = now_ms; }

static inline void rmq_connection_note_wait(struct rmq_connection *c, int64_t since_ms) { c->waits_since_ms = since_ms; }

/* No receive is under way for it, until one is asked for. */
static inline void rmq_connection_receive_ended(struct rmq_connection *c) { c->receiving = 0; }

static inline void rmq_connection_note_full(struct rmq_connection *c, int took_full) { c->took_full = took_full != 0; }
#endif
