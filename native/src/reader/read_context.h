/* read_context.h: what every part of a read worker sees: its place in the shared memory, its engine, the time of the round, its
 * counters. reader.c fills it. The parts change the counters alone.
 *
 * What stays true: now_ms is now_ns in whole milliseconds, and both stay for a round. The generation is that of the process.
 */
#ifndef RMQ_READ_CONTEXT_H
#define RMQ_READ_CONTEXT_H

#include "engine/engine.h"
#include "plane/plane.h"
#include "plane/ring.h"
#include "reader/reader.h"

struct rmq_read_context {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    const struct rmq_settings *settings;
    struct rmq_port *port;   /* its own */
    struct rmq_engine *engine;
    uint32_t port_number, role_number;
    uint32_t generation;     /* of its role: this process */
    int64_t now_ms, now_ns;  /* of the round */
    uint64_t counters[RMQ_READ_COUNTERS];
};
#endif
