#include "reader/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/name_hash.h"

#define HOST_COUNTS 65536u

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

int rmq_connections_open(struct rmq_connections *all, struct rmq_read_context *context, int listen_fd, int vip_listen_fd)
{
    all->context = context;
    all->listen_fds[0] = listen_fd;
    all->listen_fds[1] = vip_listen_fd;
    all->max = all->context->settings->connections_max ? all->context->settings->connections_max : 1;
    size_t bytes = (size_t)all->max * sizeof *all->table;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    all->table = at;
    raise_file_limit(all->max);
    all->free_list = calloc(all->max, sizeof *all->free_list);
    all->closed = calloc(all->max, sizeof *all->closed);
    all->starved = calloc(all->max, sizeof *all->starved);
    all->host_counts = calloc(HOST_COUNTS, sizeof *all->host_counts);
    return all->free_list && all->closed && all->starved && all->host_counts ? 0 : -ENOMEM;
}

void rmq_connections_close(struct rmq_connections *all)
{
    if (all->table)
        munmap(all->table, (size_t)all->max * sizeof *all->table);
    free(all->free_list);
    free(all->closed);
    free(all->starved);
    free(all->host_counts);
}

void rmq_accept_arm(struct rmq_connections *all)
{
    if (all->accepts_no_more)
        return;
    for (int i = 0; i < 2; i++)
        if (all->listen_fds[i] >= 0 && !all->accepting[i])
            all->accepting[i] = rmq_engine_accept(all->context->engine, all->listen_fds[i], (uint64_t)i) == 0;
}

void rmq_accept_stop(struct rmq_connections *all)
{
    all->accepts_no_more = 1;
    for (int i = 0; i < 2; i++)
        if (all->accepting[i])
            rmq_engine_accept_stop(all->context->engine, all->listen_fds[i], (uint64_t)i);
}

void rmq_connection_receive(struct rmq_connections *all, struct rmq_connection *c)
{
    if (c->receiving || c->state != RMQ_CONNECTION_OPEN || rmq_receive_disabled(all->context->generation))
        return;
    int (*receive)(struct rmq_engine *, int, uint64_t) = c->took_full ? rmq_engine_receive_once : rmq_engine_receive;
    int rc = receive(all->context->engine, c->fd, rmq_connection_tag(all, c));
    if (rc == 0) {
        c->receiving = 1;
        c->stopping = 0;
    } else if (rc == -EBUSY) {
        rmq_connection_starve(all, c);
    } else { /* the kernel has no memory or no watch for it: its client is told, and not left waiting */
        rmq_connection_close(all, c, RMQ_READ_CLOSED_MEMORY);
    }
}

void rmq_connection_receive_again(struct rmq_connections *all, struct rmq_connection *c)
{
    if (c->took_full && all->starved_count)
        rmq_connection_starve(all, c);
    else
        rmq_connection_receive(all, c);
}

void rmq_connection_starve(struct rmq_connections *all, struct rmq_connection *c)
{
    c->took_full = 1; /* it competes for buffers: one at a time */
    if (c->in_starved)
        return;
    c->in_starved = 1;
    rmq_connection_note_wait(c, all->context->now_ms);
    all->starved[all->starved_count++] = rmq_connection_index(all, c);
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

void rmq_connection_receive_stop(struct rmq_connections *all, struct rmq_connection *c)
{
    if (c->receiving && !c->stopping && rmq_engine_receive_stop(all->context->engine, c->fd, rmq_connection_tag(all, c)) == 0)
        c->stopping = 1;
}

/* Counts connections by host. Two hosts may share a count: at limits of thousands that is of no weight. The secret keeps
 * peers from choosing the host that they share a count with. */
static uint32_t *host_count(struct rmq_connections *all, const struct rmq_connection *c)
{
    return &all->host_counts[rmq_name_hash(all->context->header->name_secret, c->host, sizeof c->host) % HOST_COUNTS];
}

void rmq_connection_release(struct rmq_connections *all, struct rmq_connection *c)
{
    c->state = RMQ_CONNECTION_FREE;
    all->free_list[all->free_count++] = rmq_connection_index(all, c);
}

static struct rmq_connection *take(struct rmq_connections *all)
{
    if (all->free_count)
        return rmq_connection_at(all, all->free_list[--all->free_count]);
    if (all->used < all->max)
        return rmq_connection_at(all, all->used++);
    return NULL;
}

int rmq_connection_accept(struct rmq_connections *all, const struct rmq_event *event)
{
    if (!event->more)
        all->accepting[event->tag & 1] = 0;
    if (event->result < 0)
        return 0; /* EMFILE and the like: asked again at the next tick */
    int is_near = rmq_load(&all->context->header->memory.level) != 0; /* ringmqMemoryMax */
    struct rmq_connection *c = is_near ? NULL : take(all);
    if (!c) {
        all->context->counters[is_near ? RMQ_READ_CLOSED_MEMORY : RMQ_READ_CLOSED_FULL]++;
        close(event->result);
        return 0;
    }
    c->fd = event->result;
    read_peer(c);
    if (*host_count(all, c) >= all->context->settings->host_connections_max) {
        all->context->counters[RMQ_READ_CLOSED_HOST]++;
        close(c->fd);
        c->fd = -1;
        rmq_connection_release(all, c);
        return 0;
    }
    ++*host_count(all, c);
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->generation++;
    c->state = RMQ_CONNECTION_OPEN;
    c->receiving = c->stopping = 0;
    c->took_full = 1; /* until it has taken less */
    c->listener = (uint8_t)(event->tag & 1);
    c->active_ms = c->waits_since_ms = all->context->now_ms; /* in_starved outlives a connection, as the list does */
    rmq_connection_output_begin(&c->output);
    rmq_connection_sends_begin(&c->sends);
    rmq_input_begin(&c->input);
    rmq_connection_parked_begin(&c->parked);
    rmq_connection_cold_begin(&c->cold);
    all->context->counters[RMQ_READ_ACCEPTED]++;
    all->context->counters[RMQ_READ_CONNECTIONS]++;
    rmq_connection_receive(all, c);
    return 1;
}

void rmq_connection_hang_up(struct rmq_connections *all, struct rmq_connection *c)
{
    rmq_engine_hang_up(all->context->engine, c->fd);
    c->fd = -1;
    --*host_count(all, c);
    all->context->counters[RMQ_READ_CONNECTIONS]--;
}

void rmq_connection_wait_for_report(struct rmq_connections *all, struct rmq_connection *c)
{
    c->state = RMQ_CONNECTION_REPORT;
    all->ending++;
}

void rmq_connection_close(struct rmq_connections *all, struct rmq_connection *c, uint32_t reason)
{
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    all->context->counters[reason]++;
    c->state = RMQ_CONNECTION_CLOSING;
    all->closed[all->closed_count++] = rmq_connection_index(all, c);
    shutdown(c->fd, SHUT_RDWR); /* ends the receive and a stuck send */
    /* ended by the tick or by the last event, never under the feet of a caller that still encodes an answer */
    all->ending++;
}

uint32_t rmq_connections_starved(struct rmq_connections *all, uint32_t *first, uint32_t most)
{
    uint32_t count = all->starved_count < most ? all->starved_count : most;
    memcpy(first, all->starved, count * sizeof *first);
    memmove(all->starved, all->starved + count, (all->starved_count - count) * sizeof *all->starved);
    all->starved_count -= count;
    for (uint32_t i = 0; i < count; i++)
        rmq_connection_at(all, first[i])->in_starved = 0;
    return count;
}
