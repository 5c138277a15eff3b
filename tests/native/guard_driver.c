/* A reader's receiving half over a simulated kernel, clock and clients: honest ones beside some that want to use up its
 * memory. `driver FIRST COUNT` runs so many seeds; the first broken promise ends it with a line that names the seed.
 *
 * Promised: an honest client with bytes in its socket is heard within a second, one that has been served is never closed, and in the end,
 * with the adversaries gone, every receive buffer and block is free again. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static int sim_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
#define poll sim_poll

#include "driver_parts.h"
#include "reader/eviction.c"

enum { CLIENTS = 500, ROUNDS = 4, BULK_MAX = 4, PROMISE_MS = 1000, ADVERSE_MS = 3000, CALM_MS = 1500, BUFFER_BYTES = 4096, FD_FIRST = 1 << 20, UNREAD_MAX = 50 };
enum kind { HONEST, ANNOUNCER, HALF, LORIS, CHURNER, UNREADING, FLOODER, BULK, KINDS };
static const char *const kind_names[] = {"honest", "announcer", "half", "loris", "churner", "unreading", "flooder", "bulk"};

struct client {
    enum kind kind;
    uint32_t connection, generation; /* RMQ_NONE = not connected */
    uint32_t total;                  /* of each of its frames */
    uint64_t sent, taken;            /* bytes of its stream: into the socket; out of it */
    uint64_t most;                   /* it sends no more than so many */
    int64_t next_ms;
    int64_t asked_ms, heard_ms;      /* an honest client's frame is under way since, and was heard last */
    uint32_t speed;                  /* bytes a millisecond */
    int armed, once, stop, gone;
    struct rmq_output output;
};

struct kept { /* a send that write has not answered */
    struct rmq_frame_ref hold;
    int64_t until_ms;
};

static struct parts r;
static struct rmq_eviction eviction;
static int64_t tick_next_ms;
static struct rmq_plane plane;
static struct rmq_plane_header *header;
static struct client clients[CLIENTS];
static uint32_t client_count, client_of[CLIENTS * 2], seed;
static uint32_t *lent;
static uint32_t lent_head, lent_count;
static struct kept kepts[4096];
static uint32_t kept_count;
static int64_t ring_full_until_ms;
static uint64_t random_state;

static uint32_t dice(uint32_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return below ? (uint32_t)(random_state >> 33) % below : 0;
}

static void broken(const struct client *c, const char *what)
{
    for (int i = RMQ_READ_CLOSED_PEER; i < RMQ_READ_COUNTERS; i++)
        if (r.context.counters[i])
            printf("  counter %d: %llu\n", i, (unsigned long long)r.context.counters[i]);
    printf("seed %u at %lld ms: %s client %ld: %s (buffers free %u of %u, blocks free %u of %u)\n", seed, (long long)r.context.now_ms,
           c ? kind_names[c->kind] : "no", c ? (long)(c - clients) : -1L, what, r.arena.buffers_free, r.arena.buffer_count, r.arena.blocks_free,
           r.arena.block_pages);
    uint32_t pages[KINDS][2] = {{0}}, held[KINDS] = {0}, count[KINDS][3] = {{0}};
    for (uint32_t i = 0; i < r.connections.used; i++) {
        const struct rmq_connection *at = rmq_connection_at(&r.connections, i);
        enum kind kind = clients[client_of[i]].kind;
        if (at->state != RMQ_CONNECTION_OPEN)
            continue;
        count[kind][at->input.stall ? 1 : at->in_starved ? 2 : 0]++;
        pages[kind][at->input.stall != 0] += at->input.block.block != RMQ_NONE ? at->input.block.block_pages : 0;
        held[kind] += at->input.spans.buffers_held;
    }
    for (int i = 0; i < KINDS; i++)
        printf("  %s: %u + %u stalled + %u starved, pages %u + %u stalled, buffers %u\n", kind_names[i], count[i][0], count[i][1],
               count[i][2], pages[i][0], pages[i][1], held[i]);
    printf("  sends kept: %u\n", kept_count);
    if (c && c->connection != RMQ_NONE) {
        const struct rmq_connection *at = rmq_connection_at(&r.connections, c->connection);
        printf("  state %u stall %u receiving %u starved %u, frame %u of %u there, wants %u, held buffers %u, socket %llu, starved %u\n",
               at->state, at->input.stall, at->receiving, at->in_starved, at->input.filled, c->total, at->input.room_bytes, at->input.spans.buffers_held,
               (unsigned long long)(c->sent - c->taken), r.connections.starved_count);
    }
    fflush(stdout);
    if (getenv("TRACE"))
        __builtin_trap();
    _exit(1);
}

/* --- stubs for the reader's other files --------------------------------------------------------------------------- */

void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count)
{
    (void)engine;
    for (uint32_t i = 0; i < count; i++)
        lent[(lent_head + lent_count++) % r.arena.buffer_count] = buffers[i];
}
int rmq_engine_accept(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
int rmq_engine_accept_stop(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
void rmq_engine_hang_up(struct rmq_engine *engine, int fd) { (void)engine, close(fd); }
static struct client *client_at(uint64_t tag) { return &clients[client_of[tag >> 32]]; }
int rmq_engine_receive(struct rmq_engine *engine, int fd, uint64_t tag)
{
    (void)engine, (void)fd;
    client_at(tag)->armed = 1;
    client_at(tag)->once = 0;
    return 0;
}
int rmq_engine_receive_once(struct rmq_engine *engine, int fd, uint64_t tag)
{
    (void)engine, (void)fd;
    client_at(tag)->armed = client_at(tag)->once = 1;
    return 0;
}
int rmq_engine_receive_stop(struct rmq_engine *engine, int fd, uint64_t tag)
{
    (void)engine, (void)fd;
    client_at(tag)->stop = 1;
    return 0;
}
uint64_t rmq_outputs_most(const struct rmq_outputs *o) { return (void)o, UINT64_MAX; }
uint64_t rmq_output_soft_limit(const struct rmq_outputs *o) { return (void)o, UNREAD_MAX; }
static int sim_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    (void)timeout_ms;
    int found = 0;
    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = clients[fds[i].fd - FD_FIRST].gone ? POLLRDHUP : 0;
        found += fds[i].revents != 0;
    }
    return found;
}

/* Called by every close. */
void rmq_park_forget(struct rmq_parking *parking, struct rmq_connection *c)
{
    (void)parking;
    const struct client *client = &clients[client_of[rmq_connection_index(&r.connections, c)]];
    if (client->kind == HONEST && !client->gone)
        broken(client, "it was closed");
}

/* The keep of send_requests.c in short. */
static int keep_send(struct rmq_frame_ref *hold, uint32_t length)
{
    struct rmq_frame_ref kept;
    if (hold->buffer != RMQ_NONE && rmq_buffers_few(&r.arena)) {
        if ((length > r.arena.buffer_bytes / 4 && !rmq_blocks_many(&r.arena)) || !rmq_block_take(&r.arena, length, &kept)) {
            if (rmq_buffers_last(&r.arena))
                return 0; /* refused */
            rmq_frame_ref_retain(&r.arena, hold, &kept);
        }
    } else {
        rmq_frame_ref_retain(&r.arena, hold, &kept);
    }
    if (kept_count == sizeof kepts / sizeof *kepts) {
        rmq_frame_ref_release(&r.arena, &kept);
        return 0;
    }
    kepts[kept_count++] = (struct kept){kept, r.context.now_ms + dice(30)};
    return 1;
}

enum rmq_outcome rmq_frame_process(struct rmq_frames *frames, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                struct rmq_frame_ref *hold, uint32_t redone, uint32_t rule)
{
    (void)redone, (void)rule;
    struct client *client = &clients[client_of[rmq_connection_index(frames->connections, c)]];
    if (rmq_get32(frame) + 4 != length || length != client->total || frame[length - 1] != (length > 4 ? 0x5a : frame[length - 1]))
        broken(client, "a frame is mixed up");
    if (client->kind == FLOODER) {
        int is_full = rmq_cold_is_full(frames->cold, c, RMQ_CONTROL_ANSWERER);
        if (is_full && !frames->pendings->refuses) {
            rmq_cold_await(c, RMQ_CONTROL_ANSWERER);
            return RMQ_OUTCOME_STALL;
        }
        c->cold.counts[RMQ_CONTROL_ANSWERER] += !is_full;
        return RMQ_OUTCOME_DONE;
    }
    if (client->kind == UNREADING) {
        if (!c->output.queue) {
            client->output = (struct rmq_output){.count = 1, .progress_ms = frames->context->now_ms};
            c->output.queue = &client->output;
        }
        c->output.queue->bytes++;
        return RMQ_OUTCOME_DONE;
    }
    if (frames->context->now_ms < ring_full_until_ms && !frames->pendings->refuses)
        return RMQ_OUTCOME_STALL;
    keep_send(hold, length); /* kept or refused, the client has its answer soon */
    client->asked_ms = 0;
    return RMQ_OUTCOME_DONE;
}

/* --- clients ---------------------------------------------------------------------------------------------------------- */

static void connect_client(struct client *c)
{
    uint32_t index = (uint32_t)(c - clients), most = r.connections.free_count ? r.connections.free_list[r.connections.free_count - 1] : r.connections.used;
    if (most >= r.connections.max)
        return;
    client_of[most] = index;
    c->sent = c->taken = 0;
    c->armed = c->stop = c->gone = 0;
    c->asked_ms = 0;
    struct rmq_event event = {.kind = RMQ_EVENT_ACCEPTED, .result = FD_FIRST + (int)index, .more = 1};
    parts_accept(&r, &event);
    c->connection = most;
    c->generation = rmq_connection_at(&r.connections, most)->generation;
}

static int is_connected(const struct client *c)
{
    const struct rmq_connection *at = c->connection == RMQ_NONE ? NULL : rmq_connection_at(&r.connections, c->connection);
    return at && at->generation == c->generation && at->state != RMQ_CONNECTION_FREE;
}

static int is_open(const struct client *c)
{
    return is_connected(c) && rmq_connection_at(&r.connections, c->connection)->state == RMQ_CONNECTION_OPEN;
}

static void make_client(struct client *c, enum kind kind)
{
    static const uint32_t large[] = {5000, 30000, 200000, 400000};
    *c = (struct client){.kind = kind, .connection = RMQ_NONE, .next_ms = r.context.now_ms + dice(100) + (kind == HONEST ? 0 : 300), .speed = 1u << dice(15), .most = UINT64_MAX};
    c->total = kind == HONEST ? 100 + dice(dice(3) ? 3000 : r.arena.block_pages * RMQ_BLOCK_BYTES / 64) : large[dice(4)];
    if (kind == UNREADING || kind == FLOODER)
        c->total = 50 + dice(3000);
    if (kind == ANNOUNCER || kind == CHURNER)
        c->most = 1 + dice(200);
    if (kind == HALF)
        c->most = c->total - 1 - dice(c->total - 4);
    if (kind == LORIS)
        c->speed = 0;
}

static void act(struct client *c, int is_calm)
{
    if (c->kind == HONEST) {
        if (c->asked_ms && r.context.now_ms - c->heard_ms > PROMISE_MS)
            broken(c, "nothing of its frame was taken for a second");
    }
    if (!is_connected(c)) {
        if (r.context.now_ms >= c->next_ms && !(is_calm && c->kind != HONEST))
            connect_client(c);
        return;
    }
    if (c->kind != HONEST && (is_calm || (c->kind == CHURNER && r.context.now_ms >= c->next_ms + 20))) {
        c->gone = 1;
        c->next_ms = r.context.now_ms + 1 + dice(20);
        return;
    }
    if (c->kind == HONEST) {
        if (!c->asked_ms && r.context.now_ms >= c->next_ms) {
            c->sent += c->total;
            c->asked_ms = c->heard_ms = r.context.now_ms;
            c->next_ms = r.context.now_ms + dice(100);
        }
    } else if (c->kind == LORIS) {
        c->sent += dice(20) == 0;
    } else if (c->sent - c->taken < 200000) { /* the socket has room for no more */
        uint64_t sent = c->sent + c->speed;
        c->sent = sent < c->most ? sent : c->most;
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------- */

static void put_bytes(const struct client *c, uint8_t *to, uint32_t count)
{
    memset(to, 0x5a, count);
    for (uint64_t at = c->taken - c->taken % c->total; at < c->taken + count; at += c->total)
        for (uint32_t i = 0; i < 4; i++)
            if (at + i >= c->taken && at + i < c->taken + count)
                to[at + i - c->taken] = (uint8_t)((c->total - 4) >> (24 - 8 * i));
}

static void event_of(struct client *c, int result, uint16_t buffer, int more)
{
    struct rmq_event event = {.tag = (uint64_t)c->connection << 32 | c->generation, .result = result, .buffer = buffer,
                              .kind = RMQ_EVENT_RECEIVED, .more = (uint8_t)more};
    c->armed = more;
    parts_receive(&r, &event);
}

static void deliver(struct client *c)
{
    for (int turns = 0; turns < 4 && is_connected(c) && c->armed; turns++) {
        if (c->stop || !is_open(c)) {
            c->stop = 0;
            event_of(c, is_open(c) ? -ECANCELED : 0, RMQ_NO_BUFFER, 0);
            return;
        }
        uint64_t waiting = c->sent - c->taken;
        if (!waiting) {
            if (c->gone)
                event_of(c, 0, RMQ_NO_BUFFER, 0);
            return;
        }
        if (!lent_count) {
            event_of(c, -ENOBUFS, RMQ_NO_BUFFER, 0);
            return;
        }
        uint32_t buffer = lent[lent_head], count = waiting < BUFFER_BYTES ? (uint32_t)waiting : BUFFER_BYTES;
        lent_head = (lent_head + 1) % r.arena.buffer_count;
        lent_count--;
        put_bytes(c, rmq_buffer_at(&r.arena, buffer), count);
        c->taken += count;
        c->heard_ms = r.context.now_ms;
        event_of(c, (int)count, (uint16_t)buffer, !c->once);
    }
}

/* One round of reader.c behind its events. */
static void serve(void)
{
    r.turn.used = 0;
    if (r.frames.stalled_count) {
        rmq_stalls_resume(&r.frames);
        rmq_eviction_poll(&eviction);
    }
    if (r.arena.buffers_lent < r.arena.lend_target)
        rmq_buffers_lend(&r.arena);
    if (r.connections.starved_count)
        rmq_starved_resume(&r.frames);
}

static void round_of(int is_calm)
{
    if (!is_calm && r.context.now_ms > ring_full_until_ms + 500 && !dice(100))
        ring_full_until_ms = r.context.now_ms + dice(400);
    for (uint32_t i = 0; i < client_count; i++)
        act(&clients[i], is_calm);
    for (uint32_t i = 0; i < client_count; i++) {
        struct client *c = &clients[i];
        if (!is_open(c))
            continue;
        struct rmq_connection *at = rmq_connection_at(&r.connections, c->connection);
        if (c->kind == FLOODER && (is_calm || !dice(50)))
            at->cold.counts[RMQ_CONTROL_ANSWERER] = 0; /* control has answered */
        if (c->gone && at->output.queue)
            rmq_closings_close(&r.closings, at, RMQ_READ_CLOSED_PEER); /* the send of its answers has failed */
    }
    for (uint32_t i = 0; i < kept_count;) {
        if (kepts[i].until_ms > r.context.now_ms && !(is_calm && ring_full_until_ms < r.context.now_ms)) {
            i++;
            continue;
        }
        rmq_frame_ref_release(&r.arena, &kepts[i].hold);
        kepts[i] = kepts[--kept_count];
    }
    for (int turn = 0; turn < ROUNDS; turn++) {
        uint32_t first = dice(client_count);
        for (uint32_t i = 0; i < client_count; i++)
            deliver(&clients[(first + i) % client_count]);
        serve();
    }
    if (r.context.now_ms >= tick_next_ms) {
        rmq_closings_tick(&r.closings);
        rmq_overdue_close(&r.closings);
        rmq_accept_arm(&r.connections);
        rmq_buffers_tick(&r.arena);
        tick_next_ms = r.context.now_ms + (r.connections.ending ? 20 : 1000);
    }
    if (r.connections.ending && tick_next_ms > r.context.now_ms + 20)
        tick_next_ms = r.context.now_ms + 20;
}

static void run(uint32_t pages, uint32_t buffers)
{
    struct rmq_settings *s = &header->settings;
    *s = (struct rmq_settings){.receive_buffer_bytes = BUFFER_BYTES, .receive_buffer_count = buffers,
        .reassembly_bytes_max = pages * RMQ_BLOCK_BYTES, .frame_bytes_max = 16 << 20, .connections_max = CLIENTS * 2,
        .host_connections_max = CLIENTS * 2, .partial_frame_timeout_ms = 30000, .send_queue_bytes_max = 1 << 20,
        .send_stall_timeout_ms = 30000};
    size_t bytes = (size_t)(buffers * BUFFER_BYTES + pages * RMQ_BLOCK_BYTES);
    plane.arenas[0] = calloc(1, bytes);
    plane.arena_bytes[0] = bytes;
    r = (struct parts){.context = {.plane = &plane, .header = header, .settings = s, .now_ms = 100000}};
    tick_next_ms = 0;
    lent = calloc(buffers, sizeof *lent);
    lent_head = lent_count = kept_count = 0;
    ring_full_until_ms = 0;
    if (parts_open(&r))
        exit(2);
    rmq_eviction_open(&eviction, &r.frames);
    rmq_buffers_lend(&r.arena);
    uint32_t bulk = 0, honest = 1 + dice(8), mix = 1 + dice((1u << KINDS) - 1);
    client_count = honest + 5 + dice(dice(2) ? 400 : 60);
    for (uint32_t i = 0; i < client_count; i++) {
        enum kind kind = i < honest ? HONEST : 1 + dice(KINDS - 1);
        while (i >= honest && !(mix >> kind & 1) && mix >> 1)
            kind = 1 + dice(KINDS - 1);
        bulk += kind == BULK;
        make_client(&clients[i], kind == BULK && bulk > BULK_MAX ? ANNOUNCER : kind);
    }
    int64_t adverse_ms = r.context.now_ms + ADVERSE_MS, end_ms = adverse_ms + CALM_MS;
    for (; r.context.now_ms < end_ms; r.context.now_ms += 1 + dice(3))
        round_of(r.context.now_ms >= adverse_ms);
    for (uint32_t i = 0; i < honest; i++)
        clients[i].gone = 1;
    for (; r.context.now_ms < end_ms + 1500; r.context.now_ms += 5) {
        for (uint32_t i = 0; i < honest; i++)
            clients[i].asked_ms = 0, clients[i].kind = CHURNER;
        round_of(1);
    }
    if (r.arena.buffers_free != r.arena.buffer_count || r.arena.blocks_free != r.arena.block_pages)
        broken(NULL, "something is still held");
    parts_close(&r);
    free(plane.arenas[0]);
    free(lent);
}

int main(int argc, char **argv)
{
    uint32_t first = argc > 1 ? (uint32_t)atoi(argv[1]) : 0, count = argc > 2 ? (uint32_t)atoi(argv[2]) : 100;
    header = calloc(1, sizeof *header);
    for (seed = first; seed < first + count; seed++) {
        random_state = seed * 0x9e3779b97f4a7c15ull + 1;
        run(512u << dice(3), 32u << dice(3));
    }
    printf("%u seeds\n", count);
    free(header);
    return 0;
}
