/* Life of a connection: accepted, open, closing until the kernel has given every operation back, then free again. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/name_hash.h"
#include "reader/reader_state.h"

enum {
    ROOM_PART = 16,
    ROOM_LOOKS = 16,
    ROOM_SILENT_MS = 100,
    ROOM_IDLE_MS = 40000, /* clients send a heartbeat every 30 s */
};

static const uint8_t v4_in_v6[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* Sockets beside mapped files and the process's own; beyond the hard limit accepts fail and are asked again. */
static void raise_file_limit(uint32_t connections)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)connections + 4096;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int rmq_connections_open(struct rmq_reader *r)
{
    r->connections_max = r->context.settings->connections_max ? r->context.settings->connections_max : 1;
    size_t bytes = (size_t)r->connections_max * sizeof *r->connections;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    r->connections = at;
    raise_file_limit(r->connections_max);
    r->connection_free = calloc(r->connections_max, sizeof *r->connection_free);
    r->dirty = calloc(r->connections_max, sizeof *r->dirty);
    r->stalled = calloc(r->connections_max, sizeof *r->stalled);
    r->starved = calloc(r->connections_max, sizeof *r->starved);
    r->host_counts = calloc(RMQ_HOST_COUNTS, sizeof *r->host_counts);
    return r->connection_free && r->dirty && r->stalled && r->starved && r->host_counts ? 0 : -ENOMEM;
}

void rmq_connections_close(struct rmq_reader *r)
{
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        if (c->state != RMQ_CONNECTION_FREE && c->fd >= 0)
            close(c->fd);
        rmq_output_forget(r, c);
        if (c->state != RMQ_CONNECTION_FREE)
            rmq_receive_forget(r, c);
        free(c->server_frame);
    }
    if (r->connections)
        munmap(r->connections, (size_t)r->connections_max * sizeof *r->connections);
    free(r->connection_free);
    free(r->dirty);
    free(r->stalled);
    free(r->starved);
    free(r->host_counts);
}

static uint64_t tag_of(const struct rmq_reader *r, const struct rmq_connection *c)
{
    return (uint64_t)rmq_connection_index(r, c) << 32 | c->generation;
}

void rmq_accept_arm(struct rmq_reader *r)
{
    if (r->stopping)
        return;
    for (int i = 0; i < 2; i++)
        if (r->listen_fds[i] >= 0 && !r->accepting[i] && rmq_engine_accept(r->context.engine, r->listen_fds[i], (uint64_t)i) == 0)
            r->accepting[i] = 1;
}

void rmq_accept_stop(struct rmq_reader *r)
{
    for (int i = 0; i < 2; i++)
        if (r->accepting[i])
            rmq_engine_accept_stop(r->context.engine, (uint64_t)i);
}

void rmq_connection_receive(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->receiving || c->state != RMQ_CONNECTION_OPEN || rmq_receive_disabled(r->context.generation))
        return;
    if ((c->took_full ? rmq_engine_receive_once : rmq_engine_receive)(r->context.engine, c->fd, tag_of(r, c)) == 0) {
        c->receiving = 1;
        c->stopping = 0;
    } else {
        rmq_connection_starve(r, c);
    }
}

void rmq_connection_receive_again(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->took_full && r->starved_count)
        rmq_connection_starve(r, c);
    else
        rmq_connection_receive(r, c);
}

void rmq_connection_starve(struct rmq_reader *r, struct rmq_connection *c)
{
    c->took_full = 1; /* it competes for buffers: one at a time */
    if (c->in_starved)
        return;
    c->in_starved = 1;
    c->stall_ms = r->context.now_ms;
    r->starved[r->starved_count++] = rmq_connection_index(r, c);
}

static void read_peer(struct rmq_connection *c)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    memset(c->host, 0, sizeof c->host);
    c->v6 = 0;
    c->port = 0;
    if (getpeername(c->fd, (struct sockaddr *)&peer, &length) < 0)
        return;
    if (peer.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
        memcpy(c->host, &v4->sin_addr, 4);
        c->port = ntohs(v4->sin_port);
    } else if (peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
        c->port = ntohs(v6->sin6_port);
        c->v6 = memcmp(&v6->sin6_addr, v4_in_v6, sizeof v4_in_v6) != 0;
        memcpy(c->host, (const uint8_t *)&v6->sin6_addr + (c->v6 ? 0 : 12), c->v6 ? 16 : 4);
    }
}

/* Counts connections by host. Two hosts may share a count: at limits of thousands that is of no weight. The secret keeps
 * peers from choosing the host that they share a count with. */
static uint32_t *host_count(struct rmq_reader *r, const struct rmq_connection *c)
{
    return &r->host_counts[rmq_name_hash(r->context.header->name_secret, c->host, sizeof c->host) % RMQ_HOST_COUNTS];
}

static void connection_free(struct rmq_reader *r, struct rmq_connection *c)
{
    c->state = RMQ_CONNECTION_FREE;
    r->connection_free[r->connection_free_count++] = rmq_connection_index(r, c);
}

static struct rmq_connection *connection_take(struct rmq_reader *r)
{
    if (r->connection_free_count)
        return rmq_connection_at(r, r->connection_free[--r->connection_free_count]);
    if (r->connections_used < r->connections_max)
        return rmq_connection_at(r, r->connections_used++);
    return NULL;
}

/* The last slots of the table go to clients that send. The reader closes one connection that has never sent a frame, or one
 * that has been idle for longer than clients pause between heartbeats. So a flood of connections closes its own. */
static void room_make(struct rmq_reader *r)
{
    struct rmq_connection *victim = NULL;
    if (r->context.counters[RMQ_READ_CONNECTIONS] < r->connections_max - r->connections_max / ROOM_PART)
        return;
    for (uint32_t looks = 0; looks < ROOM_LOOKS; looks++) {
        r->room_hand = r->room_hand + 1 < r->connections_used ? r->room_hand + 1 : 0;
        struct rmq_connection *c = rmq_connection_at(r, r->room_hand);
        int64_t idle_ms = r->context.now_ms - c->active_ms;
        if (c->state != RMQ_CONNECTION_OPEN || c->parked_count || c->cold_count || idle_ms < (c->spoke ? ROOM_IDLE_MS : ROOM_SILENT_MS))
            continue;
        if (!victim || c->spoke < victim->spoke || (c->spoke == victim->spoke && c->active_ms < victim->active_ms))
            victim = c;
    }
    if (victim)
        rmq_connection_close(r, victim, RMQ_READ_CLOSED_FULL);
}

void rmq_connection_accept(struct rmq_reader *r, const struct rmq_event *event)
{
    if (!event->more)
        r->accepting[event->tag & 1] = 0;
    if (event->result < 0)
        return; /* EMFILE and the like: asked again at the next tick */
    int is_near = rmq_load(&r->context.header->memory.level) != 0; /* ringmqMemoryMax */
    struct rmq_connection *c = is_near ? NULL : connection_take(r);
    if (!c) {
        r->context.counters[is_near ? RMQ_READ_CLOSED_MEMORY : RMQ_READ_CLOSED_FULL]++;
        close(event->result);
        return;
    }
    c->fd = event->result;
    read_peer(c);
    if (*host_count(r, c) >= r->context.settings->host_connections_max) {
        r->context.counters[RMQ_READ_CLOSED_HOST]++;
        close(c->fd);
        c->fd = -1;
        connection_free(r, c);
        return;
    }
    ++*host_count(r, c);
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->generation++;
    c->state = RMQ_CONNECTION_OPEN;
    c->receiving = c->stopping = c->sending = c->stall = 0;
    c->took_full = 1; /* until it has taken less */
    c->spoke = c->registered = c->asked = 0; /* list memberships (dirty, in_*) outlive the connection */
    c->listener = (uint8_t)(event->tag & 1);
    c->topic_id = 0;
    c->stalled_ns = 0;
    c->output = NULL;
    c->head_length = c->frame_bytes = c->filled = 0;
    c->block = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
    c->active_ms = c->stall_ms = r->context.now_ms;
    c->span_head = c->span_count = c->buffers_held = 0;
    c->taken_ms = 0;
    c->waited = 0;
    c->parked = c->parked_count = c->cold_count = c->cold_bytes = c->answers_due = 0;
    r->context.counters[RMQ_READ_ACCEPTED]++;
    r->context.counters[RMQ_READ_CONNECTIONS]++;
    rmq_connection_receive(r, c);
    room_make(r);
}

/* Frees a connection without operations in the kernel. */
static void connection_finish(struct rmq_reader *r, struct rmq_connection *c)
{
    rmq_output_forget(r, c);
    close(c->fd);
    c->fd = -1;
    --*host_count(r, c);
    r->context.counters[RMQ_READ_CONNECTIONS]--;
    if (c->asked && rmq_cold_report_closed(r, c) < 0) {
        c->state = RMQ_CONNECTION_REPORT;
        r->reports++;
        return;
    }
    connection_free(r, c);
}

void rmq_connection_ended(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->state == RMQ_CONNECTION_CLOSING && !c->receiving && !c->sending)
        connection_finish(r, c);
}

void rmq_connection_close(struct rmq_reader *r, struct rmq_connection *c, uint32_t reason)
{
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    r->context.counters[reason]++;
    c->state = RMQ_CONNECTION_CLOSING;
    rmq_output_closing(r, c);
    rmq_receive_forget(r, c);
    rmq_park_forget(r, c);
    free(c->server_frame);
    c->server_frame = NULL;
    c->server_frame_length = 0;
    shutdown(c->fd, SHUT_RDWR); /* ends the receive and a stuck send */
    /* finished by the tick or by the last event, never under the feet of a caller that still encodes an answer */
    r->reports++;
}

/* Receives that ended for want of buffers start again once some are there, as many as three quarters of these suffice for: a
 * connection that has not waited finds one of the others. */
void rmq_connections_rearm(struct rmq_reader *r)
{
    if (!r->starved_count || !r->arena.buffers_lent)
        return;
    uint32_t count = r->starved_count, most = r->arena.buffers_lent - r->arena.buffers_lent / 4, turn = count < most ? count : most;
    uint32_t waiting[256]; /* the first ones: a place for each buffer, the others keep theirs in the queue */
    turn = turn < 256 ? turn : 256;
    memcpy(waiting, r->starved, turn * sizeof *waiting);
    memmove(r->starved, r->starved + turn, (count - turn) * sizeof *r->starved);
    r->starved_count = count - turn;
    for (uint32_t i = 0; i < turn; i++) {
        struct rmq_connection *c = rmq_connection_at(r, waiting[i]);
        c->in_starved = 0;
        if (c->stall || c->receiving)
            continue;
        c->partial_ms += r->context.now_ms - c->stall_ms; /* the time for its frame stood still */
        rmq_connection_receive(r, c);
    }
}

/* Finishes closing connections whose operations are all back, and sends CLOSED records that did not fit. */
static void finish_some(struct rmq_reader *r)
{
    r->reports = 0;
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        if (c->state == RMQ_CONNECTION_CLOSING) {
            rmq_connection_ended(r, c);
        } else if (c->state == RMQ_CONNECTION_REPORT) {
            if (rmq_cold_report_closed(r, c) == 0)
                connection_free(r, c);
            else
                r->reports++;
        }
    }
}

/* Closes a half frame whose time is over. A shortage alone does not close a half frame that waits for a block here:
 * reader_eviction.c closes it when another frame needs its memory. */
static void look_at_half_frame(struct rmq_reader *r, struct rmq_connection *c, uint32_t time_ms)
{
    if ((!c->head_length && !c->frame_bytes) || c->stall & ~RMQ_STALL_ROOM || c->in_starved)
        return;
    uint32_t there = c->frame_bytes ? c->filled : c->head_length;
    int lateness = rmq_frame_lateness(r->context.settings->partial_frame_timeout_ms, time_ms, there, (uint64_t)(r->context.now_ms - c->partial_ms));
    if (lateness == RMQ_FRAME_LATE)
        rmq_connection_close(r, c, RMQ_READ_CLOSED_PARTIAL);
    else if (lateness == RMQ_FRAME_SHORT && !c->stall)
        rmq_evict(r, c, RMQ_READ_CLOSED_SHORTAGE);
}

void rmq_connections_tick(struct rmq_reader *r)
{
    const struct rmq_settings *s = r->context.settings;
    uint32_t time_ms = rmq_frame_time_ms(s->partial_frame_timeout_ms, r->arena.blocks_free, r->arena.block_pages);
    if (r->reports)
        finish_some(r);
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        if (c->state != RMQ_CONNECTION_OPEN)
            continue;
        if (c->output && c->output->count && !c->output->reads && /* the disk's time is not the client's */
            r->context.now_ms - c->output->progress_ms > s->send_stall_timeout_ms)
            rmq_connection_close(r, c, RMQ_READ_CLOSED_SLOW);
        else if (s->idle_connection_ms && r->context.now_ms - c->active_ms > s->idle_connection_ms)
            rmq_connection_close(r, c, RMQ_READ_CLOSED_IDLE);
        else
            look_at_half_frame(r, c, time_ms);
    }
    rmq_accept_arm(r);
}
