/* pop_clients.h: the addresses of connections by the hash that entries have, for operators. Private memory of pop: a new process knows
 * a connection again at its next pop. Two hashes may have the same row, and the later one stays.
 */
#ifndef RMQ_POP_CLIENTS_H
#define RMQ_POP_CLIENTS_H
#include "plane/asks_layout.h"

/* cdef-begin */
#define RMQ_POP_CLIENTS 16384            /* a power of two */

struct rmq_pop_client {
    uint32_t hash;                       /* 0: the row is free */
    uint16_t port;
    uint8_t is_v6, reserved;
    uint8_t host[16];                    /* network order */
};
/* Index of the row in which a hash is looked for. */
uint32_t rmq_pop_client_row(uint32_t hash);
/* cdef-end */

/* The hash of the ask's connection, never 0. Its address is known from now on. */
uint32_t rmq_pop_client(struct rmq_pop_client *clients, const struct rmq_inbox_record *ask);
#endif
