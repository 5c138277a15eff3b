/* The queues of all topics of a run in one row: lane = number of the topic * queues + queue. */
#ifndef RINGMQ_LOAD_LANES_H
#define RINGMQ_LOAD_LANES_H

#include <stdint.h>
#include <stdio.h>

enum { LANES_MAX = 16384, TOPIC_ROOM = 160 };

/* One topic has the name itself, several have it with -0, -1, ... behind. */
struct lanes {
    const char *name;
    uint32_t topics, queues; /* queues of each topic */
};

static inline uint32_t lanes_count(const struct lanes *l)
{
    return l->topics * l->queues;
}

static inline uint32_t lane_queue(const struct lanes *l, uint32_t lane)
{
    return lane % l->queues;
}

/* Writes the topic of `lane` into `out` (TOPIC_ROOM bytes) and returns it. */
static inline const char *lane_topic(const struct lanes *l, uint32_t lane, char *out)
{
    if (l->topics == 1)
        snprintf(out, TOPIC_ROOM, "%s", l->name);
    else
        snprintf(out, TOPIC_ROOM, "%s-%u", l->name, lane / l->queues);
    return out;
}

#endif
