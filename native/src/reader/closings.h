/* closings.h: what closed connections hold goes back to the parts that it belongs to.
 *
 * Parts below this one mark a connection as closed (connections.h): they may be at work on it, or on a list that it is on. reader.c
 * settles the marks behind each step of a round. The parts above close and settle in one step.
 */
#ifndef RMQ_CLOSINGS_H
#define RMQ_CLOSINGS_H

#include "reader/connections.h"

struct rmq_reader;

/* Gives back what connections hold that were closed since the last call. */
void rmq_closings_settle_all(struct rmq_reader *r);
void rmq_closings_close(struct rmq_reader *r, struct rmq_connection *c, uint32_t reason);
/* The same, because memory is short, which it notes. */
void rmq_closings_evict(struct rmq_reader *r, struct rmq_connection *c, uint32_t reason);
/* An operation came back: a closing connection may have none left. */
void rmq_closings_end(struct rmq_reader *r, struct rmq_connection *c);
/* Ends closing connections whose operations are all back, and sends CLOSED records that did not fit. */
void rmq_closings_tick(struct rmq_reader *r);
/* Every connection, at the end of the reader. The engine is closed. */
void rmq_closings_finish(struct rmq_reader *r);
#endif
