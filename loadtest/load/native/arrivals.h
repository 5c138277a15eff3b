/* The times from sends to receipts. A body begins with the number of its message. */
#ifndef RINGMQ_LOAD_ARRIVALS_H
#define RINGMQ_LOAD_ARRIVALS_H

#include "hist.h"
#include "wire.h"

struct arrivals {
    uint64_t room;       /* messages of the run */
    uint32_t groups;     /* each of them is to receive each message */
    uint64_t *sent_ns;   /* the time at which a message was due; 0: it does not count */
    uint32_t *left;      /* groups that are still to receive it */
    uint64_t received, unknown; /* receipts; those of no message of the run, or beyond the groups of one */
    struct hist late, whole;    /* from the send until each receipt, and until the last one of a message */
};

/* 0 or -ENOMEM. */
int arrivals_init(struct arrivals *a, uint64_t room, uint32_t groups);
void arrivals_free(struct arrivals *a);
void arrivals_sent(struct arrivals *a, uint64_t sequence, uint64_t sent_ns);
void arrivals_take(struct arrivals *a, const struct record *record);

#endif
