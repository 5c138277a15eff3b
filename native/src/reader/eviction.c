#include "reader/eviction.h"

#include <poll.h>

#include "reader/eviction_rules.h"

#define POLL_MS 20
#define VICTIMS_MAX 64  /* of one poll of the blocks */
#define HUNG_UP_MAX 256 /* sockets that one poll asks */

enum {
    ROOM_PART = 16,
    ROOM_LOOKS = 16,
    ROOM_SILENT_MS = 100,
    ROOM_IDLE_MS = 40000, /* clients send a heartbeat every 30 s */
};

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

/* --- receive buffers -------------------------------------------------------------------------------------- */

static uint64_t buffer_rank(const struct rmq_eviction *eviction, const struct rmq_connection *c)
{
    if (c->state != RMQ_CONNECTION_OPEN)
        return 0;
    int64_t now_ms = eviction->context->now_ms, unread_ms = rmq_output_is_empty(c) ? -1 : rmq_output_unread_ms(c, now_ms);
    return rmq_input_buffer_rank(&c->input, unread_ms, c->waits_since_ms, now_ms);
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
        int reads_not = rmq_input_waits(&worst->input, RMQ_STALL_OUTPUT);
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
        if (c->state != RMQ_CONNECTION_OPEN || !rmq_input_waits(&c->input, RMQ_STALL_ROOM))
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
    if (c->state != RMQ_CONNECTION_OPEN || c->in_starved)
        return 0;
    return rmq_input_block_rank(&c->input, eviction->arena, wanted, c->waits_since_ms, eviction->context->now_ms);
}

/* The worst ones, worst first; how many. */
static uint32_t victims_of(struct rmq_eviction *eviction, const struct rmq_connection *waiting, struct victim *victims)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < eviction->connections->used; i++) {
        const struct rmq_connection *c = rmq_connection_at(eviction->connections, i);
        uint64_t rank = c == waiting ? 0 : block_rank(eviction, c, rmq_input_room_bytes(&waiting->input));
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
    uint32_t wanted = rmq_input_room_bytes(&waiting->input);
    uint32_t count = rmq_block_fits(eviction->arena, wanted) ? 0 : victims_of(eviction, waiting, victims);
    for (uint32_t i = 0; i < count && !rmq_block_fits(eviction->arena, wanted); i++)
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
        if (c->state != RMQ_CONNECTION_OPEN || rmq_output_is_empty(c))
            continue;
        uint64_t unread_ms = (uint64_t)rmq_output_unread_ms(c, eviction->context->now_ms);
        uint64_t rank = rmq_answer_victim_rank(rmq_output_memory_of(c), unread_ms);
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

/* --- places --------------------------------------------------------------------------------------------------- */

/* 1 = no other part waits for anything of it. `has_spoken`: it has sent a frame. */
static int is_idle(const struct rmq_eviction *eviction, const struct rmq_connection *c, int has_spoken)
{
    int64_t idle_ms = eviction->context->now_ms - c->active_ms;
    return c->state == RMQ_CONNECTION_OPEN && !rmq_parked_count(c) && !rmq_cold_count(c) &&
           !rmq_held_count(eviction->frames->cold->held, c) && idle_ms >= (has_spoken ? ROOM_IDLE_MS : ROOM_SILENT_MS);
}

/* The last places of the table go to clients that send. The reader closes one connection that has never sent a frame, or one
 * that has been idle for longer than clients pause between heartbeats. So a flood of connections closes its own. */
void rmq_eviction_of_places(struct rmq_eviction *eviction)
{
    const struct rmq_connections *all = eviction->connections;
    struct rmq_connection *victim = NULL;
    int victim_has_spoken = 0;
    if (eviction->context->counters[RMQ_READ_CONNECTIONS] < all->max - all->max / ROOM_PART)
        return;
    for (uint32_t looks = 0; looks < ROOM_LOOKS; looks++) {
        eviction->place_next = eviction->place_next + 1 < all->used ? eviction->place_next + 1 : 0;
        struct rmq_connection *c = rmq_connection_at(all, eviction->place_next);
        int has_spoken = rmq_input_spoke(&c->input);
        if (!is_idle(eviction, c, has_spoken))
            continue;
        if (!victim || has_spoken < victim_has_spoken || (has_spoken == victim_has_spoken && c->active_ms < victim->active_ms)) {
            victim = c;
            victim_has_spoken = has_spoken;
        }
    }
    if (victim)
        rmq_closings_close(eviction->closings, victim, RMQ_READ_CLOSED_FULL);
}
