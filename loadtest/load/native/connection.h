/* One connection of the load loop: its requests on the way, what is to be sent, what was received. */
#ifndef RINGMQ_LOAD_CONNECTION_H
#define RINGMQ_LOAD_CONNECTION_H

#include "engine.h"
#include "mirror.h"

struct connection {
    int fd; /* -1 once closed */
    uint32_t index;
    uint8_t *tx; /* of the pool, while something is to be sent */
    uint32_t tx_len, tx_sent;
    void *block; /* of the slots */
    struct slot *slots; /* NULL: it stays idle */
    uint16_t *free_slots;
    uint32_t free_count, depth;
    uint16_t generation;
    uint8_t dirty;
    uint64_t due; /* open loop: requests whose time has come and that are not written yet */
    uint64_t next; /* open loop: number of the next request of this connection */
    struct mirror rx; /* its own buffer: for large answers, and for what came without its end */
};

/* Connects; 0 or negative errno. With `active` it has requests on its way, as many as config says. */
int connection_open(struct connection *c, uint32_t index, const struct engine_config *config, int active);
void connection_close(struct connection *c);

/* Takes a free slot and gives it a fresh opaque; NULL when `depth` requests are on their way. */
struct slot *connection_take(struct connection *c);

/* Gives a slot back that was taken last and not used. */
void connection_untake(struct connection *c, struct slot *slot);

/* Slot of an answer's opaque, freed; NULL for an opaque without a waiting request. The content stays until the next take. */
struct slot *connection_release(struct connection *c, uint32_t opaque);

#endif
