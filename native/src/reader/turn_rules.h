/* turn_rules.h: the share of one connection in a reader's turn. The rules keep a turn short, and a client with a small request
 * waits for one turn only. Rules without state or clock; frames.c and sending.c apply them. Twin:
 * tests/native/turn_twin.py.
 */
#ifndef RMQ_TURN_RULES_H
#define RMQ_TURN_RULES_H

#include <stdint.h>

/* cdef-begin */
#define RMQ_TURN_FRAME 1 /* units of work: a request costs one, some half a microsecond */
#define RMQ_TURN_PULL 8  /* a pull */

/* Units that a connection may use now when the turn has used `used` of them: 16 pulls or 128 sends, little when the turn
 * is long already, never nothing. */
int32_t rmq_turn_units(uint32_t used);
/* Bytes of a connection's `waiting` ones that go to the kernel now, when `handed` have gone there in this turn. The kernel
 * copies them before it returns. 0 = in the next turn; a few go at once. */
uint64_t rmq_turn_send_bytes(uint64_t waiting, uint64_t handed);
/* cdef-end */
#endif
