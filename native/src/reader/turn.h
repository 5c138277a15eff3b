/* turn.h: the work of a round of the reader, and the share of it that the connection at hand may still use. The sizes of shares
 * are rules (turn_rules.h).
 *
 * What stays true: outside of a share `used` is the work of the round. `units` means something between begin and end alone, and
 * may fall below 0: the last frame is run whole.
 */
#ifndef RMQ_TURN_H
#define RMQ_TURN_H

#include "reader/turn_rules.h"

struct rmq_turn {
    uint32_t used; /* units of work in this round */
    int32_t units; /* that the connection at hand may still use */
    int waits;     /* connections have frames for the next round */
};

static inline void rmq_turn_begin(struct rmq_turn *turn)
{
    turn->units = rmq_turn_units(turn->used);
    turn->used += (uint32_t)turn->units;
}

/* Returns the unused part of the connection's share of the turn. Use beyond the share counts, too. */
static inline void rmq_turn_end(struct rmq_turn *turn) { turn->used -= (uint32_t)turn->units; }
#endif
