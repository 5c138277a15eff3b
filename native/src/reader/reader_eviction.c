/* Closes connections that hold scarce memory, so that other connections get it at once.
 * Receive buffers: the last eighth is for connections that are not stalled. Bytes that wait because the client does not
 * read its answers, or because no block is free, give their buffers back with their connection.
 * Blocks: frames that are behind their pace make room for frames that wait for a block. */
#include <poll.h>

#include "reader/reader_state.h"

#define POLL_MS 20
#define VICTIMS_MAX 64  /* of one poll of the blocks */
#define HUNG_UP_MAX 256 /* sockets that one poll asks */

struct victim {
    uint64_t rank;
    uint32_t connection;
};

static uint32_t weight(const struct rmq_reader *r, const struct rmq_connection *c)
{
    uint32_t wanted = c->frame_bytes ? c->frame_bytes : c->room_bytes;
    return rmq_waiting_weight(wanted, c->taken_ms != 0, (uint64_t)(r->context.now_ms - c->taken_ms));
}

/* --- receive buffers -------------------------------------------------------------------------------------- */

static uint64_t buffer_rank(const struct rmq_reader *r, const struct rmq_connection *c)
{
    if (c->state != RMQ_CONNECTION_OPEN || !(c->stall & (RMQ_STALL_OUTPUT | RMQ_STALL_ROOM)))
        return 0;
    int reads_not = (c->stall & RMQ_STALL_OUTPUT) != 0 && c->output;
    int64_t since_ms = reads_not ? c->output->progress_ms : c->stall_ms;
    return rmq_buffer_victim_rank(c->buffers_held, reads_not ? 0 : weight(r, c), (uint64_t)(r->context.now_ms - since_ms));
}

/* Closes connections until the last buffers are free. `least`: the lowest rank that is closed. Connections that wait
 * for the request ring or control stay: their requests are refused (reader_append.c, reader_cold.c). */
static void free_buffers(struct rmq_reader *r, uint64_t least)
{
    while (rmq_buffers_last(&r->arena)) {
        struct rmq_connection *worst = NULL;
        uint64_t worst_rank = least - 1;
        for (uint32_t i = 0; i < r->stalled_count; i++) {
            struct rmq_connection *c = rmq_connection_at(&r->connections, r->stalled[i]);
            uint64_t rank = buffer_rank(r, c);
            if (rank > worst_rank) {
                worst = c;
                worst_rank = rank;
            }
        }
        if (!worst)
            return;
        rmq_closings_evict(r, worst, worst->stall & RMQ_STALL_OUTPUT ? RMQ_READ_CLOSED_SLOW : RMQ_READ_CLOSED_SHORTAGE);
    }
}

/* --- blocks ----------------------------------------------------------------------------------------------- */

/* A stalled connection receives nothing, so that its client's close is seen here only. */
static void close_hung_up(struct rmq_reader *r)
{
    struct pollfd fds[HUNG_UP_MAX];
    uint32_t connections[HUNG_UP_MAX], count = 0;
    for (uint32_t i = 0; i < r->stalled_count && count < HUNG_UP_MAX; i++) {
        r->hung_up_next = r->hung_up_next + 1 < r->stalled_count ? r->hung_up_next + 1 : 0;
        const struct rmq_connection *c = rmq_connection_at(&r->connections, r->stalled[r->hung_up_next]);
        if (c->state != RMQ_CONNECTION_OPEN || !(c->stall & RMQ_STALL_ROOM))
            continue;
        fds[count] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        connections[count++] = r->stalled[r->hung_up_next];
    }
    if (!count || poll(fds, count, 0) <= 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        if (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR))
            rmq_closings_close(r, rmq_connection_at(&r->connections, connections[i]), RMQ_READ_CLOSED_PEER);
}

/* The connection that has waited longest for a block; `least` gets the one that wants least. NULL = none waits. */
static struct rmq_connection *first_waiting(struct rmq_reader *r, struct rmq_connection **least)
{
    struct rmq_connection *first = NULL;
    *least = NULL;
    for (uint32_t i = 0; i < r->stalled_count; i++) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, r->stalled[i]);
        if (c->state != RMQ_CONNECTION_OPEN || !(c->stall & RMQ_STALL_ROOM))
            continue;
        if (!first || c->stall_ms < first->stall_ms)
            first = c;
        if (!*least || c->room_bytes < (*least)->room_bytes)
            *least = c;
    }
    return first;
}

static uint64_t block_rank(const struct rmq_reader *r, const struct rmq_connection *c, uint32_t wanted)
{
    if (c->state != RMQ_CONNECTION_OPEN || !c->frame_bytes || c->stall & ~RMQ_STALL_ROOM || c->in_starved)
        return 0;
    int crumb;
    if (c->stall) { /* a frame that waits, too: when nothing comes free by itself, and large ones for small ones */
        int is_stuck = r->context.now_ms - r->arena.block_freed_ms > RMQ_FRAME_FLOOR_MS;
        if (!is_stuck && !(rmq_block_is_large(c->frame_bytes) && !rmq_block_is_large(wanted)))
            return 0;
        return rmq_waiting_victim_rank(weight(r, c), (uint64_t)(r->context.now_ms - c->stall_ms), rmq_block_run(&r->arena, &c->block, wanted, &crumb));
    }
    uint32_t behind = rmq_frame_behind(c->frame_bytes, c->filled, (uint64_t)(r->context.now_ms - c->partial_ms));
    if (!behind)
        return 0;
    uint32_t run = rmq_block_run(&r->arena, &c->block, wanted, &crumb);
    return rmq_block_victim_rank(behind, run, crumb);
}

/* The worst ones, worst first; how many. */
static uint32_t victims_of(struct rmq_reader *r, const struct rmq_connection *waiting, struct victim *victims)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->connections.used; i++) {
        const struct rmq_connection *c = rmq_connection_at(&r->connections, i);
        uint64_t rank = c == waiting ? 0 : block_rank(r, c, waiting->room_bytes);
        if (!rank || (count == VICTIMS_MAX && rank <= victims[count - 1].rank))
            continue;
        uint32_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at && victims[at - 1].rank < rank; at--)
            victims[at] = victims[at - 1];
        victims[at] = (struct victim){rank, i};
    }
    return count;
}

static void make_room(struct rmq_reader *r, const struct rmq_connection *waiting)
{
    struct victim victims[VICTIMS_MAX];
    uint32_t count = rmq_block_fits(&r->arena, waiting->room_bytes) ? 0 : victims_of(r, waiting, victims);
    for (uint32_t i = 0; i < count && !rmq_block_fits(&r->arena, waiting->room_bytes); i++)
        rmq_closings_evict(r, rmq_connection_at(&r->connections, victims[i].connection), RMQ_READ_CLOSED_SHORTAGE);
}

static void free_blocks(struct rmq_reader *r)
{
    r->eviction_next_ms = r->context.now_ms + POLL_MS;
    close_hung_up(r);
    struct rmq_connection *least, *first = first_waiting(r, &least);
    r->room_least = least ? least->room_bytes : 0;
    if (!first)
        return;
    make_room(r, least);
    if (first != least && first->state == RMQ_CONNECTION_OPEN)
        make_room(r, first);
}

void rmq_eviction_poll(struct rmq_reader *r)
{
    free_buffers(r, RMQ_BUFFER_RANK_UNREAD);
    int is_last = rmq_buffers_last(&r->arena);
    if (!is_last && r->context.now_ms < r->eviction_next_ms)
        return;
    free_blocks(r);
    if (!is_last)
        return;
    rmq_receive_resume(r); /* into the blocks that have come free */
    free_buffers(r, 1);
}

/* --- answers ------------------------------------------------------------------------------------------------ */

/* Closes at most VICTIMS_MAX connections, until all answers take seven eighths of their limit. Clients that have read
 * nothing for RMQ_FRAME_GRACE_MS go first, then the largest answers. */
void rmq_eviction_of_answers(struct rmq_reader *r)
{
    if (r->outputs.open <= rmq_outputs_most(&r->outputs))
        return;
    struct victim victims[VICTIMS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->connections.used; i++) {
        const struct rmq_connection *c = rmq_connection_at(&r->connections, i);
        if (c->state != RMQ_CONNECTION_OPEN || !c->output)
            continue;
        uint64_t rank = rmq_answer_victim_rank(c->output->memory, (uint64_t)(r->context.now_ms - c->output->progress_ms));
        if (count == VICTIMS_MAX && rank <= victims[count - 1].rank)
            continue;
        uint32_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at && victims[at - 1].rank < rank; at--)
            victims[at] = victims[at - 1];
        victims[at] = (struct victim){rank, i};
    }
    uint64_t most = rmq_outputs_most(&r->outputs);
    for (uint32_t i = 0; i < count && r->outputs.open > most - most / 8; i++)
        rmq_closings_evict(r, rmq_connection_at(&r->connections, victims[i].connection), RMQ_READ_CLOSED_ANSWERS);
}
