/* A reader's turns over a simulated kernel: greedy clients, whose sockets are never empty, beside an honest one that sends a
 * small frame now and then. `driver GREEDY LARGE NEW` prints how many turns the honest one waited at most, and how many
 * frames one turn took at most. LARGE: the bytes of a greedy client's frame. NEW: each honest frame comes on a new connection.
 *
 * The kernel serves receives in the order in which they were asked for, and a lasting one takes buffers as long as there are
 * bytes, 32 at most: so do Linux's. */
#include <stdio.h>
#include <stdlib.h>

#include "driver_parts.h"

enum { BUFFERS = 256, BUFFER_BYTES = 16384, PAGES = 4096, CLIENTS = 4000, TURNS = 120, FIRST_TURN = 20, EVENTS = 256, LASTING = 32, SMALL = 100, PAUSE = 3 };

struct client {
    uint64_t waiting;    /* bytes in its socket */
    uint64_t taken;
    uint32_t frame_bytes;
    int armed, once, stop;
    uint64_t order;      /* of its receive */
};

static struct parts r;
static struct rmq_plane plane;
static struct client clients[CLIENTS];
static uint32_t lent[BUFFERS], lent_head, lent_count, client_count, honest, turn, frames, heard_turn, asked_turn;
static uint64_t orders;
static struct rmq_event queue[CLIENTS * LASTING];
static uint32_t queue_head, queue_tail;

/* --- stubs for the reader's other files --------------------------------------------------------------------------- */

void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count)
{
    (void)engine;
    for (uint32_t i = 0; i < count; i++)
        lent[(lent_head + lent_count++) % BUFFERS] = buffers[i];
}
static int arm(uint64_t tag, int once)
{
    struct client *c = &clients[tag >> 32];
    c->armed = 1;
    c->once = once;
    c->order = orders++;
    return 0;
}
int rmq_engine_accept(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
int rmq_engine_accept_stop(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
void rmq_engine_hang_up(struct rmq_engine *engine, int fd) { (void)engine, close(fd); }
int rmq_engine_receive(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, arm(tag, 0); }
int rmq_engine_receive_once(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, arm(tag, 1); }
int rmq_engine_receive_stop(struct rmq_engine *engine, int fd, uint64_t tag)
{
    (void)engine, (void)fd;
    clients[tag >> 32].stop = 1;
    return 0;
}
void rmq_park_forget(struct rmq_parking *parking, struct rmq_connection *c) { (void)parking, (void)c; }
uint64_t rmq_output_soft_limit(const struct rmq_outputs *o) { return (void)o, 1000; }
enum rmq_outcome rmq_frame_process(struct rmq_frames *part, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                struct rmq_frame_ref *hold, uint32_t redone, uint32_t rule)
{
    (void)frame, (void)hold, (void)redone, (void)rule;
    uint32_t index = rmq_connection_index(part->connections, c);
    if (length != clients[index].frame_bytes)
        exit(3);
    frames++;
    if (index == honest)
        heard_turn = turn;
    return RMQ_OUTCOME_DONE;
}

/* --- the kernel ------------------------------------------------------------------------------------------------------- */

static void put_bytes(const struct client *c, uint8_t *to, uint32_t count)
{
    memset(to, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)((c->taken + i) % c->frame_bytes);
        to[i] = at < 4 ? (uint8_t)((c->frame_bytes - 4) >> (24 - 8 * at)) : 0x5a;
    }
}

static void push(uint32_t index, int result, uint16_t buffer, int more)
{
    uint64_t tag = (uint64_t)index << 32 | rmq_connection_at(&r.connections, index)->generation;
    clients[index].armed = more;
    queue[queue_tail++ % (sizeof queue / sizeof *queue)] =
        (struct rmq_event){.tag = tag, .result = result, .buffer = buffer, .kind = RMQ_EVENT_RECEIVED, .more = (uint8_t)more};
}

static void receive(uint32_t index)
{
    struct client *c = &clients[index];
    for (int n = 0; n < LASTING && c->armed && c->waiting; n++) {
        if (!lent_count) {
            push(index, -ENOBUFS, RMQ_NO_BUFFER, 0);
            return;
        }
        uint32_t buffer = lent[lent_head], count = c->waiting < BUFFER_BYTES ? (uint32_t)c->waiting : BUFFER_BYTES;
        lent_head = (lent_head + 1) % BUFFERS;
        lent_count--;
        put_bytes(c, rmq_buffer_at(&r.arena, buffer), count);
        c->taken += count;
        if (index == honest)
            c->waiting -= count;
        push(index, (int)count, (uint16_t)buffer, !c->once);
    }
}

static int by_order(const void *a, const void *b)
{
    const struct client *x = &clients[*(const uint32_t *)a], *y = &clients[*(const uint32_t *)b];
    return x->order < y->order ? -1 : x->order > y->order;
}

static void kernel(void)
{
    uint32_t order[CLIENTS], count = 0;
    for (uint32_t i = 0; i < client_count; i++) {
        if (clients[i].stop && clients[i].armed)
            push(i, -ECANCELED, RMQ_NO_BUFFER, 0);
        clients[i].stop = 0;
        if (clients[i].armed)
            order[count++] = i;
    }
    qsort(order, count, sizeof *order, by_order);
    for (uint32_t i = 0; i < count; i++)
        receive(order[i]);
}

static uint32_t connect_client(uint32_t frame_bytes)
{
    uint32_t index = r.connections.free_count ? r.connections.free_list[r.connections.free_count - 1] : r.connections.used;
    clients[index] = (struct client){.frame_bytes = frame_bytes, .waiting = frame_bytes == SMALL ? 0 : UINT64_MAX};
    client_count = index + 1 > client_count ? index + 1 : client_count;
    parts_accept(&r, &(struct rmq_event){.kind = RMQ_EVENT_ACCEPTED, .result = 1 << 20, .more = 1});
    return index;
}

/* A round of reader.c. */
static void serve(void)
{
    uint32_t count = queue_tail - queue_head < EVENTS ? queue_tail - queue_head : EVENTS;
    frames = r.turn.used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_event event = queue[queue_head++ % (sizeof queue / sizeof *queue)];
        parts_receive(&r, &event);
    }
    if (r.frames.stalled_count)
        rmq_stalls_resume(&r.frames);
    if (r.arena.buffers_lent < r.arena.lend_target)
        rmq_buffers_lend(&r.arena);
    if (r.connections.starved_count)
        rmq_starved_resume(&r.frames);
}

int main(int argc, char **argv)
{
    uint32_t greedy = argc > 1 ? (uint32_t)atoi(argv[1]) : 64, bytes = argc > 2 ? (uint32_t)atoi(argv[2]) : 64;
    int is_new = argc > 3 && atoi(argv[3]);
    struct rmq_plane_header *header = calloc(1, sizeof *header);
    header->settings = (struct rmq_settings){.receive_buffer_bytes = BUFFER_BYTES, .receive_buffer_count = BUFFERS,
        .reassembly_bytes_max = PAGES * RMQ_BLOCK_BYTES, .frame_bytes_max = 16 << 20, .connections_max = CLIENTS,
        .host_connections_max = CLIENTS, .partial_frame_timeout_ms = 30000};
    plane.arena_bytes[0] = BUFFERS * BUFFER_BYTES + PAGES * RMQ_BLOCK_BYTES;
    plane.arenas[0] = calloc(1, plane.arena_bytes[0]);
    r = (struct parts){.context = {.plane = &plane, .header = header, .settings = &header->settings, .now_ms = 1}};
    if (parts_open(&r))
        return 2;
    rmq_buffers_lend(&r.arena);
    for (uint32_t i = 0; i < greedy; i++)
        connect_client(bytes);
    honest = connect_client(SMALL);
    uint32_t longest = 0, most = 0;
    for (turn = 1; turn < TURNS; turn++, r.context.now_ms++) {
        if (!asked_turn && turn > FIRST_TURN && turn % PAUSE == 0) {
            honest = is_new ? connect_client(SMALL) : honest;
            clients[honest].waiting = SMALL;
            asked_turn = turn;
        }
        kernel();
        serve();
        most = frames > most ? frames : most;
        uint32_t waited = asked_turn ? turn - asked_turn : 0;
        longest = waited > longest ? waited : longest;
        if (heard_turn == turn)
            asked_turn = 0;
    }
    printf("%u %u\n", longest, most);
    parts_close(&r);
    free(plane.arenas[0]);
    free(header);
    return 0;
}
