#include "reader/eviction.h"

#include <poll.h>

#include "reader/eviction_rules.h"

#define POLL_MS 20
#define VICTIMS_MAX 64  /* of one poll of the blocks */
#define HUNG_UP_MAX 256 /* sockets that one poll asks */

struct victim {
    uint64_t rank;
    uint32_t connection;
};

void rmq_eviction_open(struct rmq_eviction *eviction, struct rmq_frames *frames)
{
    *eviction = (struct rmq_eviction){
        .context = frames->context,
        .arena = frames->arena,
        .connections = frames->connections,
        .outputs = frames->outputs,
        .closings = frames->closings,
        .frames = frames,
    };
}

static void evict(struct rmq_eviction *eviction, const struct victim *victim, uint32_t reason)
{
    rmq_closings_evict(eviction->closings, rmq_connection_at(eviction->connections, victim->connection), reason);
}

static uint32_t weight(const struct rmq_eviction *eviction, const struct rmq_connection *c)
{
    uint32_t wanted = c->frame_bytes ? c->frame_bytes : c->room_bytes;
    return rmq_waiting_weight(wanted, c->taken_ms != 0, (uint64_t)(eviction->context->now_ms - c->taken_ms));
}

/* --- receive buffers -------------------------------------------------------------------------------------- */

static uint64_t buffer_rank(const struct rmq_eviction *eviction, const struct rmq_connection *c)
{
    if (c->state != RMQ_CONNECTION_OPEN || !(c->stall & (RMQ_STALL_OUTPUT | RMQ_STALL_ROOM)))
        return 0;
    int reads_not = (c->stall & RMQ_STALL_OUTPUT) != 0 && c->output;
    int64_t since_ms = reads_not ? c->output->progress_ms : c->stall_ms;
    uint64_t idle_ms = (uint64_t)(eviction->context->now_ms - since_ms);
    return rmq_buffer_victim_rank(rmq_spans_buffers(&c->spans), reads_not ? 0 : weight(eviction, c), idle_ms);
}

/* Closes connections until the last buffers are free. `least`: the lowest rank that is closed. Connections that wait
 * for the request ring or control stay: their requests are refused (sends.c, cold.c). */
static void free_buffers(struct rmq_eviction *eviction, uint64_t least)
{
    while (rmq_buffers_last(eviction->arena)) {
        struct rmq_connection *worst = NULL;
        uint64_t worst_rank = least - 1;
        for (uint32_t i = 0; i < eviction->frames->stalled_count; i++) {
            struct rmq_connection *c = rmq_connection_at(eviction->connections, eviction->frames->stalled[i]);
            uint64_t rank = buffer_rank(eviction, c);
            if (rank > worst_rank) {
                worst = c;
                worst_rank = rank;
            }
        }
        if (!worst)
            return;
        int reads_not = (worst->stall & RMQ_STALL_OUTPUT) != 0;
        rmq_closings_evict(eviction->closings, worst, reads_not ? RMQ_READ_CLOSED_SLOW : RMQ_READ_CLOSED_SHORTAGE);
    }
}

/* --- blocks ----------------------------------------------------------------------------------------------- */

/* A stalled connection receives nothing, so that its client's close is seen here only. */
static void close_hung_up(struct rmq_eviction *eviction)
{
    struct pollfd fds[HUNG_UP_MAX];
    uint32_t connections[HUNG_UP_MAX], count = 0;
    for (uint32_t i = 0; i < eviction->frames->stalled_count && count < HUNG_UP_MAX; i++) {
        eviction->hung_up_next = eviction->hung_up_next + 1 < eviction->frames->stalled_count ? eviction->hung_up_next + 1 : 0;
        const struct rmq_connection *c = rmq_connection_at(eviction->connections, eviction->frames->stalled[eviction->hung_up_next]);
        if (c->state != RMQ_CONNECTION_OPEN || !(c->stall & RMQ_STALL_ROOM))
            continue;
        fds[count] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        connections[count++] = eviction->frames->stalled[eviction->hung_up_next];
    }
    if (!count || poll(fds, count, 0) <= 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        if (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR))
            rmq_closings_close(eviction->closings, rmq_connection_at(eviction->connections, connections[i]), RMQ_READ_CLOSED_PEER);
}

static uint64_t block_rank(const struct rmq_eviction *eviction, const struct rmq_connection *c, uint32_t wanted)
{
    if (c->state != RMQ_CONNECTION_OPEN || !c->frame_bytes || c->stall & ~RMQ_STALL_ROOM || c->in_starved)
        return 0;
    int crumb;
    if (c->stall) { /* a frame that waits, too: when nothing comes free by itself, and large ones for small ones */
        int is_stuck = eviction->context->now_ms - eviction->arena->block_freed_ms > RMQ_FRAME_FLOOR_MS;
        if (!is_stuck && !(rmq_block_is_large(c->frame_bytes) && !rmq_block_is_large(wanted)))
            return 0;
        uint64_t waited_ms = (uint64_t)(eviction->context->now_ms - c->stall_ms);
        return rmq_waiting_victim_rank(weight(eviction, c), waited_ms, rmq_block_run(eviction->arena, &c->block, wanted, &crumb));
    }
    uint32_t behind = rmq_frame_behind(c->frame_bytes, c->filled, (uint64_t)(eviction->context->now_ms - c->partial_ms));
    if (!behind)
        return 0;
    uint32_t run = rmq_block_run(eviction->arena, &c->block, wanted, &crumb);
    return rmq_block_victim_rank(behind, run, crumb);
}

/* The worst ones, worst first; how many. */
static uint32_t victims_of(struct rmq_eviction *eviction, const struct rmq_connection *waiting, struct victim *victims)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < eviction->connections->used; i++) {
        const struct rmq_connection *c = rmq_connection_at(eviction->connections, i);
        uint64_t rank = c == waiting ? 0 : block_rank(eviction, c, waiting->room_bytes);
        if (!rank || (count == VICTIMS_MAX && rank <= victims[count - 1].rank))
            continue;
        uint32_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at && victims[at - 1].rank < rank; at--)
            victims[at] = victims[at - 1];
        victims[at] = (struct victim){rank, i};
    }
    return count;
}

static void make_room(struct rmq_eviction *eviction, const struct rmq_connection *waiting)
{
    struct victim victims[VICTIMS_MAX];
    uint32_t count = rmq_block_fits(eviction->arena, waiting->room_bytes) ? 0 : victims_of(eviction, waiting, victims);
    for (uint32_t i = 0; i < count && !rmq_block_fits(eviction->arena, waiting->room_bytes); i++)
        evict(eviction, &victims[i], RMQ_READ_CLOSED_SHORTAGE);
}

static void free_blocks(struct rmq_eviction *eviction)
{
    eviction->next_ms = eviction->context->now_ms + POLL_MS;
    close_hung_up(eviction);
    struct rmq_connection *least, *first = rmq_stalls_first_waiting(eviction->frames, &least);
    if (!first)
        return;
    make_room(eviction, least);
    if (first != least && first->state == RMQ_CONNECTION_OPEN)
        make_room(eviction, first);
}

void rmq_eviction_poll(struct rmq_eviction *eviction)
{
    free_buffers(eviction, RMQ_BUFFER_RANK_UNREAD);
    int is_last = rmq_buffers_last(eviction->arena);
    if (!is_last && eviction->context->now_ms < eviction->next_ms)
        return;
    free_blocks(eviction);
    if (!is_last)
        return;
    rmq_stalls_resume(eviction->frames); /* into the blocks that have come free */
    free_buffers(eviction, 1);
}

/* --- answers ------------------------------------------------------------------------------------------------ */

/* Closes at most VICTIMS_MAX connections, until all answers take seven eighths of their limit. Clients that have read
 * nothing for RMQ_FRAME_GRACE_MS go first, then the largest answers. */
void rmq_eviction_of_answers(struct rmq_eviction *eviction)
{
    if (eviction->outputs->open <= rmq_outputs_most(eviction->outputs))
        return;
    struct victim victims[VICTIMS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < eviction->connections->used; i++) {
        const struct rmq_connection *c = rmq_connection_at(eviction->connections, i);
        if (c->state != RMQ_CONNECTION_OPEN || !c->output)
            continue;
        uint64_t rank = rmq_answer_victim_rank(c->output->memory, (uint64_t)(eviction->context->now_ms - c->output->progress_ms));
        if (count == VICTIMS_MAX && rank <= victims[count - 1].rank)
            continue;
        uint32_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at && victims[at - 1].rank < rank; at--)
            victims[at] = victims[at - 1];
        victims[at] = (struct victim){rank, i};
    }
    uint64_t most = rmq_outputs_most(eviction->outputs);
    for (uint32_t i = 0; i < count && eviction->outputs->open > most - most / 8; i++)
        evict(eviction, &victims[i], RMQ_READ_CLOSED_ANSWERS);
}
