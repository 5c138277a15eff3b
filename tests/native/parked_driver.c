/* Parked pulls of two connections in one queue slot, while the run of one of them closes its connection: `driver arrival RUN`
 * closes in that run of an arrival, `driver tick RUN` in that of pulls whose time is over. Prints how many pulls ran; how many
 * are parked, and the slot's flag, then and when the close is settled. */
#include <stdio.h>
#include <stdlib.h>

#include "driver_invariant.h"
#include "reader/parked_runs.c"
#include "reader/parking.c"

enum { QUEUES = 8, SLOT = 3, PULLS = 3, FRAME_BYTES = 64, HOLD_MS = 60000 };

static struct rmq_connection table[2];
static int runs, closing_run;

/* A pull with a message. Its answer may find no memory; its frame must outlive that. */
int rmq_pull_again(struct rmq_pulls *pulls, struct rmq_connection *c, uint8_t *frame, uint32_t length, int peek, int64_t *scanned)
{
    (void)pulls, (void)peek, (void)scanned;
    if (++runs == closing_run)
        c->state = RMQ_CONNECTION_CLOSING;
    for (uint32_t i = 0; i < length; i++)
        if (frame[i] != 0x5a)
            exit(2);
    return 1;
}

struct rmq_queue *rmq_queue_at(struct rmq_plane *plane, uint32_t slot)
{
    static struct rmq_queue queue;
    return (void)plane, (void)slot, &queue;
}

int rmq_is_master(const struct rmq_watermarks *marks) { return (void)marks, 1; }
uint64_t rmq_output_soft_limit(const struct rmq_outputs *o) { return (void)o, UINT64_MAX; }

int main(int argc, char **argv)
{
    static uint8_t frame[FRAME_BYTES];
    struct rmq_plane_header *header = calloc(1, sizeof *header);
    char *base = calloc(1, 4096);
    struct rmq_port *port = calloc(1, sizeof *port);
    struct rmq_plane plane = {.base = base};
    struct rmq_read_context context = {.plane = &plane, .header = header, .settings = &header->settings, .port = port, .now_ms = 1000};
    struct rmq_connections connections = {.context = &context, .table = table, .max = 2, .used = 2};
    struct rmq_parking parking = {0};
    struct rmq_outputs outputs = {.context = &context, .connections = &connections};
    struct rmq_pulls pulls = {.context = &context, .outputs = &outputs, .parking = &parking};
    if (argc != 3)
        return 1;
    closing_run = atoi(argv[2]);
    header->tables.queue_capacity = QUEUES;
    port->arrived = (struct rmq_ring){.capacity = 8, .slots_at = 1024};
    port->parked_flags_at = 64;
    memset(frame, 0x5a, sizeof frame);
    if (rmq_parking_open(&parking, &context, &connections))
        return 1;
    for (int i = 0; i < 2 * PULLS; i++) { /* by turns; the last one parked runs first */
        table[i % 2].state = RMQ_CONNECTION_OPEN;
        if (rmq_park(&parking, &table[i % 2], SLOT, i, frame, sizeof frame, HOLD_MS))
            return 1;
    }
    if (!strcmp(argv[1], "tick")) {
        context.now_ms += HOLD_MS;
        rmq_parked_tick(&pulls);
    } else {
        *(uint32_t *)(base + port->arrived.slots_at) = SLOT;
        port->arrived.head = 1;
        rmq_arrivals_drain(&pulls);
    }
    printf("%d %u %u ", runs, parking.count, parking.flags[SLOT]);
    for (int i = 0; i < 2; i++)
        if (table[i].state != RMQ_CONNECTION_OPEN)
            rmq_park_forget(&parking, &table[i]);
    printf("%u %u\n", parking.count, parking.flags[SLOT]);
    rmq_parking_close(&parking);
    free(header);
    free(base);
    free(port);
    return 0;
}
