/* junk.h: a connection that does not speak the protocol. Peers can cause this at any rate. So a reader reports a few a
 * second, and none while the inbox is filling. It counts the others.
 *
 * What stays true: at most 8 reports were made in the second that began at since_ms.
 */
#ifndef RMQ_JUNK_H
#define RMQ_JUNK_H

#include "reader/cold.h"

struct rmq_junk {
    struct rmq_read_context *context;
    struct rmq_connections *connections;
    int64_t since_ms; /* the second in which `reports` were made */
    uint32_t reports;
};

/* Reports the first bytes to control, then closes. */
void rmq_junk_close(struct rmq_junk *junk, struct rmq_connection *c, const uint8_t *bytes, uint32_t length, uint32_t reason);
#endif
