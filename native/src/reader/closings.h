/* closings.h: what closed connections hold goes back to the parts that it belongs to.
 *
 * Parts below this one mark a connection as closed (connections.h): they may be at work on it, or on a list that it is on.
 * reader.c settles the marks behind each step of a round. The parts above close and settle in one step.
 *
 * What stays true: a connection that is closing and not named in `closed` holds no bytes of the arena, no parked pull and no held poll.
 * Its output stays until its last operation is back, because the kernel sends from it.
 */
#ifndef RMQ_CLOSINGS_H
#define RMQ_CLOSINGS_H

#include "reader/cold.h"
#include "reader/parking.h"

struct rmq_closings {
    struct rmq_read_context *context;
    struct rmq_arena *arena;
    struct rmq_connections *connections;
    struct rmq_outputs *outputs;
    struct rmq_cold *cold;
    struct rmq_parking *parking;
};

void rmq_closings_open(struct rmq_closings *closings, struct rmq_cold *cold, struct rmq_parking *parking);
/* Gives back what connections hold that were closed since the last call. */
void rmq_closings_settle_all(struct rmq_closings *closings);
static inline void rmq_closings_settle(struct rmq_closings *closings)
{
    if (closings->connections->closed_count)
        rmq_closings_settle_all(closings);
}
void rmq_closings_close(struct rmq_closings *closings, struct rmq_connection *c, uint32_t reason);
/* The same, because memory is short, which it notes. */
void rmq_closings_evict(struct rmq_closings *closings, struct rmq_connection *c, uint32_t reason);
/* An operation came back: a closing connection may have none left. */
void rmq_closings_end(struct rmq_closings *closings, struct rmq_connection *c);
/* Ends closing connections whose operations are all back, and sends CLOSED records that did not fit. */
void rmq_closings_tick(struct rmq_closings *closings);
/* Every connection, at the end of the reader. The engine is closed. */
void rmq_closings_finish(struct rmq_closings *closings);
#endif
