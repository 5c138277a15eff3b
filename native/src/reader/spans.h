/* spans.h: received bytes of a stalled connection, in the order of their arrival. Each span keeps a receive buffer, a block
 * of the arena, or a copy of its own; the connection's buffers_held counts the first kind.
 */
#ifndef RMQ_SPANS_H
#define RMQ_SPANS_H

#include "reader/connection.h"

#define RMQ_FEW_BYTES 256u /* of a frame or of a stalled connection: private memory holds them */

/* Bytes [at, end) of the buffer wait. 0 or -ENOMEM. */
int rmq_span_push(struct rmq_arena *a, struct rmq_connection *c, uint32_t buffer, uint32_t at, uint32_t end);
void rmq_span_pop(struct rmq_arena *a, struct rmq_connection *c);
/* All of them, and the frame in the making. */
void rmq_spans_forget(struct rmq_arena *a, struct rmq_connection *c);
#endif
