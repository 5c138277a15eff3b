/* connections.h: the table of a read worker's connections: accept, receive, close.
 *
 * A close is a mark at first: the connection takes and gives nothing any more, but keeps what it holds (bytes, answers,
 * parked pulls). closings.h gives that back, in the same turn, when no caller is at work on the connection. The place in the
 * table is free again when the kernel has given back every operation.
 *
 * What stays true:
 * - A place is free, open, closing, or waits for room for its CLOSED record. Places from `used` on have never been taken.
 * - A change of owner changes the generation, so a tag or an answer of a former owner finds no connection.
 * - `closed` names each connection once that was closed since the last settlement.
 * - `context->counters[RMQ_READ_CONNECTIONS]` and the counts of hosts include a connection until its socket is closed.
 */
#ifndef RMQ_CONNECTIONS_H
#define RMQ_CONNECTIONS_H

#include "reader/connection.h"

struct rmq_connections {
    struct rmq_read_context *context;
    struct rmq_connection *table;
    uint32_t max, used;
    uint32_t *free_list, free_count;
    uint32_t *closed, closed_count;
    uint32_t *starved, starved_count;      /* receive ended for want of buffers */
    uint32_t *host_counts;                 /* connections by the hash of their host */
    uint32_t ending;                       /* closing ones, and those whose CLOSED record does not fit into an inbox yet */
    int listen_fds[2], accepting[2], accepts_no_more;
};

int rmq_connections_open(struct rmq_connections *all, struct rmq_read_context *context, int listen_fd, int vip_listen_fd);
void rmq_connections_close(struct rmq_connections *all);

static inline struct rmq_connection *rmq_connection_at(const struct rmq_connections *all, uint32_t index)
{
    return &all->table[index];
}

static inline uint32_t rmq_connection_index(const struct rmq_connections *all, const struct rmq_connection *c)
{
    return (uint32_t)(c - all->table);
}

/* Of its operations in the kernel. */
static inline uint64_t rmq_connection_tag(const struct rmq_connections *all, const struct rmq_connection *c)
{
    return (uint64_t)rmq_connection_index(all, c) << 32 | c->generation;
}

/* The open connection, NULL when it is another one by now. */
static inline struct rmq_connection *rmq_connection_get(const struct rmq_connections *all, uint32_t index, uint32_t generation)
{
    if (index >= all->used)
        return NULL;
    struct rmq_connection *c = &all->table[index];
    return c->state == RMQ_CONNECTION_OPEN && c->generation == generation ? c : NULL;
}

void rmq_accept_arm(struct rmq_connections *all);
void rmq_accept_stop(struct rmq_connections *all);
int rmq_connection_accept(struct rmq_connections *all, const struct rmq_event *event); /* 1 = there is one more */

void rmq_connection_receive(struct rmq_connections *all, struct rmq_connection *c);
/* Receives again. A connection that fills whole buffers waits behind the connections that have found no buffer. */
void rmq_connection_receive_again(struct rmq_connections *all, struct rmq_connection *c);
void rmq_connection_starve(struct rmq_connections *all, struct rmq_connection *c); /* it receives when there are buffers again */
void rmq_connection_receive_stop(struct rmq_connections *all, struct rmq_connection *c); /* its bytes have no place now */
/* Takes the first starved ones, `most` at most, out of their list; how many. */
uint32_t rmq_connections_starved(struct rmq_connections *all, uint32_t *first, uint32_t most);

/* Marks it as closed. `reason`: the counter. */
void rmq_connection_close(struct rmq_connections *all, struct rmq_connection *c, uint32_t reason);
/* Closes the socket of a connection without operations in the kernel. */
void rmq_connection_hang_up(struct rmq_connections *all, struct rmq_connection *c);
/* It has no socket any more, and its CLOSED record finds no room yet. */
void rmq_connection_wait_for_report(struct rmq_connections *all, struct rmq_connection *c);
void rmq_connection_release(struct rmq_connections *all, struct rmq_connection *c); /* its place */
#endif
