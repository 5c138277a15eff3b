/* Life of a connection: accepted, open, closing until the kernel has given every operation back, then free again. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "reader_state.h"

#define GRACE_PART 16 /* of the time for a frame, before its pace is judged */

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
    r->connections_max = r->settings->connections_max ? r->settings->connections_max : 1;
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
    return r->connection_free && r->dirty && r->stalled && r->starved ? 0 : -ENOMEM;
}

void rmq_connections_close(struct rmq_reader *r)
{
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        if (c->state != RMQ_CONNECTION_FREE && c->fd >= 0)
            close(c->fd);
        rmq_output_forget(r, c);
        free(c->spans);
        free(c->server_frame);
    }
    if (r->connections)
        munmap(r->connections, (size_t)r->connections_max * sizeof *r->connections);
    free(r->connection_free);
    free(r->dirty);
    free(r->stalled);
    free(r->starved);
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
        if (r->listen_fds[i] >= 0 && !r->accepting[i] && rmq_engine_accept(r->engine, r->listen_fds[i], (uint64_t)i) == 0)
            r->accepting[i] = 1;
}

void rmq_accept_stop(struct rmq_reader *r)
{
    for (int i = 0; i < 2; i++)
        if (r->accepting[i])
            rmq_engine_accept_stop(r->engine, (uint64_t)i);
}

void rmq_connection_receive(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->receiving || c->state != RMQ_CONNECTION_OPEN)
        return;
    if (rmq_engine_receive(r->engine, c->fd, tag_of(r, c)) == 0) {
        c->receiving = 1;
        c->stopping = 0;
    } else if (!c->in_starved) {
        c->in_starved = 1;
        r->starved[r->starved_count++] = rmq_connection_index(r, c);
    }
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

static struct rmq_connection *connection_take(struct rmq_reader *r)
{
    if (r->connection_free_count)
        return rmq_connection_at(r, r->connection_free[--r->connection_free_count]);
    if (r->connections_used < r->connections_max)
        return rmq_connection_at(r, r->connections_used++);
    return NULL;
}

void rmq_connection_accept(struct rmq_reader *r, const struct rmq_event *event)
{
    if (!event->more)
        r->accepting[event->tag & 1] = 0;
    if (event->result < 0)
        return; /* EMFILE and the like: asked again at the next tick */
    struct rmq_connection *c = connection_take(r);
    if (!c) {
        r->counters[RMQ_READ_CLOSED_MEMORY]++;
        close(event->result);
        return;
    }
    int one = 1;
    setsockopt(event->result, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->fd = event->result;
    c->generation++;
    c->state = RMQ_CONNECTION_OPEN;
    c->receiving = c->stopping = c->sending = c->stall = 0;
    c->had_cold = c->registered = 0; /* list memberships (dirty, in_*) outlive the connection */
    c->listener = (uint8_t)(event->tag & 1);
    c->topic_id = 0;
    c->stalled_ns = 0;
    c->output = NULL;
    c->head_length = c->frame_bytes = c->filled = 0;
    c->block = (struct rmq_hold){RMQ_NONE, RMQ_NONE, 0};
    c->active_ms = r->now_ms;
    c->span_head = c->span_count = 0;
    c->parked = c->parked_count = c->cold_count = c->cold_bytes = c->answers_due = 0;
    read_peer(c);
    r->counters[RMQ_READ_ACCEPTED]++;
    r->counters[RMQ_READ_CONNECTIONS]++;
    rmq_connection_receive(r, c);
}

static void connection_free(struct rmq_reader *r, struct rmq_connection *c)
{
    c->state = RMQ_CONNECTION_FREE;
    r->connection_free[r->connection_free_count++] = rmq_connection_index(r, c);
}

/* Nothing of it is in the kernel any more. */
static void connection_finish(struct rmq_reader *r, struct rmq_connection *c)
{
    rmq_output_forget(r, c);
    close(c->fd);
    c->fd = -1;
    r->counters[RMQ_READ_CONNECTIONS]--;
    if (c->had_cold && rmq_cold_report_closed(r, c) < 0) {
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
    r->counters[reason]++;
    c->state = RMQ_CONNECTION_CLOSING;
    rmq_receive_forget(r, c);
    rmq_park_forget(r, c);
    free(c->server_frame);
    c->server_frame = NULL;
    c->server_frame_length = 0;
    shutdown(c->fd, SHUT_RDWR); /* ends the receive and a stuck send */
    /* finished by the tick or by the last event, never under the feet of a caller that still encodes an answer */
    r->reports++;
}

/* Receives that ended for want of buffers start again once some are there. */
void rmq_connections_rearm(struct rmq_reader *r)
{
    if (!r->starved_count || !r->buffers_lent)
        return;
    uint32_t count = r->starved_count, turn = count < r->buffers_lent ? count : r->buffers_lent;
    uint32_t waiting[256]; /* the first ones: a place for each buffer, the others keep theirs in the queue */
    turn = turn < 256 ? turn : 256;
    memcpy(waiting, r->starved, turn * sizeof *waiting);
    memmove(r->starved, r->starved + turn, (count - turn) * sizeof *r->starved);
    r->starved_count = count - turn;
    for (uint32_t i = 0; i < turn; i++) {
        struct rmq_connection *c = rmq_connection_at(r, waiting[i]);
        c->in_starved = 0;
        if (!c->stall)
            rmq_connection_receive(r, c);
    }
}

/* Closing connections whose operations are all back, CLOSED records that found no room. */
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

/* How far its frame is behind the time for it, in bytes times milliseconds; 0 = is not, or has only begun. */
static uint64_t lag(const struct rmq_reader *r, const struct rmq_connection *c)
{
    uint64_t allowed_ms = r->settings->partial_frame_timeout_ms, taken_ms = (uint64_t)(r->now_ms - c->partial_ms);
    uint64_t due = c->frame_bytes * taken_ms, there = c->filled * allowed_ms;
    return taken_ms > allowed_ms / GRACE_PART && there < due ? due - there : 0;
}

/* A frame of `bytes` waits for a block: who holds one that helps most and does not use it goes, of several the farthest
 * behind. One at a time: the next tick sees whether that was enough. 1 = somebody went. */
static int make_room(struct rmq_reader *r, uint32_t bytes)
{
    struct rmq_connection *last = NULL;
    uint32_t last_run = 0;
    uint64_t last_lag = 0;
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        uint64_t behind = c->state == RMQ_CONNECTION_OPEN && c->frame_bytes && !c->stall ? lag(r, c) : 0;
        uint32_t run = behind ? rmq_block_run(r, &c->block, bytes) : 0;
        if (run > last_run || (run && run == last_run && behind > last_lag)) {
            last = c;
            last_run = run;
            last_lag = behind;
        }
    }
    if (last)
        rmq_connection_close(r, last, RMQ_READ_CLOSED_PARTIAL);
    return last != NULL;
}

void rmq_connections_tick(struct rmq_reader *r)
{
    const struct rmq_settings *s = r->settings;
    if (r->reports)
        finish_some(r);
    for (uint32_t i = 0; i < r->connections_used; i++) {
        struct rmq_connection *c = rmq_connection_at(r, i);
        if (c->state != RMQ_CONNECTION_OPEN)
            continue;
        int partial = c->head_length || c->frame_bytes;
        if (c->output && c->output->count && !c->output->reads && /* the disk's time is not the client's */
            r->now_ms - c->output->progress_ms > s->send_stall_timeout_ms)
            rmq_connection_close(r, c, RMQ_READ_CLOSED_SLOW);
        else if (partial && !c->stall && r->now_ms - c->partial_ms > s->partial_frame_timeout_ms)
            rmq_connection_close(r, c, RMQ_READ_CLOSED_PARTIAL);
        else if (s->idle_connection_ms && r->now_ms - c->active_ms > s->idle_connection_ms)
            rmq_connection_close(r, c, RMQ_READ_CLOSED_IDLE);
    }
    uint32_t least, first = rmq_receive_room_wanted(r, &least);
    if (first && !make_room(r, first) && least < first)
        make_room(r, least);
    rmq_accept_arm(r);
}
