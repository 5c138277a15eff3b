/* connection_parked.h: what parking.c keeps of a connection.
 *
 * What stays true: `count` entries are in the list that `first` begins, and each of them names this connection.
 */
#ifndef RMQ_CONNECTION_PARKED_H
#define RMQ_CONNECTION_PARKED_H

#include <stdint.h>

struct rmq_connection_parked {
    uint32_t first; /* parked pull, index + 1 */
    uint32_t count; /* bounded: one connection must not take every place of its reader */
};

static inline void rmq_connection_parked_begin(struct rmq_connection_parked *parked)
{
    *parked = (struct rmq_connection_parked){0, 0};
}
#endif
