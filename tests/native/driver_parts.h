/* The parts of a reader that drivers run without a kernel, wired as reader.c does. Includes the sources of those that receive. */
#include <stdlib.h>

#include "driver_invariant.h"
#include "reader/arena.c"
#include "reader/closings.c"
#include "reader/connections.c"
#include "reader/eviction_rules.c"
#include "reader/frames.c"
#include "reader/held.c"
#include "reader/input.c"
#include "reader/overdue.c"
#include "reader/spans.c"
#include "reader/stalls.c"
#include "reader/turn_rules.c"

struct parts {
    struct rmq_read_context context;
    struct rmq_turn turn;
    struct rmq_arena arena;
    struct rmq_connections connections;
    struct rmq_outputs outputs;
    struct rmq_answers answers;
    struct rmq_pendings pendings;
    struct rmq_held held;
    struct rmq_cold cold;
    struct rmq_parking parking;
    struct rmq_closings closings;
    struct rmq_pulls pulls;
    struct rmq_sends sends;
    struct rmq_frames frames;
};

/* What is sent, asked and pulled is the driver's. One send may be under way: its rmq_frame_process says whether it may. 0 = done. */
static int parts_open(struct parts *r)
{
    if (rmq_arena_open(&r->arena, &r->context) || rmq_connections_open(&r->connections, &r->context, -1, -1) ||
        rmq_held_open(&r->held, &r->context, &r->connections))
        return -1;
    r->outputs = (struct rmq_outputs){.context = &r->context, .connections = &r->connections};
    r->answers = (struct rmq_answers){.context = &r->context, .outputs = &r->outputs};
    r->pendings = (struct rmq_pendings){.arena = &r->arena, .connections = &r->connections, .appends_max = 1, .capacity = 1};
    r->cold = (struct rmq_cold){.context = &r->context, .arena = &r->arena, .connections = &r->connections,
                                .outputs = &r->outputs, .answers = &r->answers, .pendings = &r->pendings,
                                .held = &r->held};
    rmq_closings_open(&r->closings, &r->cold, &r->parking);
    r->pulls.turn = &r->turn;
    r->sends.pendings = &r->pendings;
    return rmq_frames_open(&r->frames, &r->sends, &r->pulls, &r->closings);
}

static void parts_close(struct parts *r)
{
    rmq_closings_finish(&r->closings);
    rmq_connections_close(&r->connections);
    rmq_frames_close(&r->frames);
    rmq_held_close(&r->held);
    rmq_arena_close(&r->arena);
}

/* Hands over an event of a receive. */
static void parts_receive(struct parts *r, const struct rmq_event *event)
{
    rmq_receive_event(&r->frames, event);
    rmq_closings_settle(&r->closings);
    rmq_closings_end(&r->closings, rmq_connection_at(&r->connections, (uint32_t)(event->tag >> 32)));
}

static void parts_accept(struct parts *r, const struct rmq_event *event)
{
    rmq_connection_accept(&r->connections, event);
    rmq_closings_settle(&r->closings);
}

int rmq_cold_report_closed(struct rmq_cold *cold, struct rmq_connection *c) { return (void)cold, (void)c, 0; }
void rmq_held_forget(struct rmq_cold *cold, struct rmq_connection *c) { (void)cold, (void)c; }
void rmq_cold_forget(struct rmq_connection *c) { (void)c; }
void rmq_output_forget(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, c->output.queue = NULL; }
void rmq_output_end(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, c->output.queue = NULL; }
void rmq_output_closing(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, (void)c; }
void rmq_junk_close(struct rmq_junk *junk, struct rmq_connection *c, const uint8_t *bytes, uint32_t length, uint32_t reason)
{
    (void)bytes, (void)length;
    rmq_connection_close(junk->connections, c, reason);
}
