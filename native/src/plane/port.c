#include "plane/port.h"

#include "plane/ring.h"

uint32_t rmq_port_find(struct rmq_plane *plane, uint32_t role)
{
    const struct rmq_ports *ports = &rmq_header(plane)->ports;
    for (uint32_t i = 0; i < ports->count; i++)
        if (ports->port[i].role == role)
            return i;
    return RMQ_NONE;
}

struct rmq_port *rmq_port_at(struct rmq_plane *plane, uint32_t port) { return &rmq_header(plane)->ports.port[port]; }

void rmq_port_claim(struct rmq_plane *plane, uint32_t port)
{
    struct rmq_port *p = rmq_port_at(plane, port);
    rmq_store(&p->generation, rmq_load(&rmq_header(plane)->roles[p->role].generation));
    RMQ_CRASH("port-claimed");
    rmq_role_wake(plane, RMQ_ROLE_WRITE); /* stale requests must not stay in the ring until the next one */
}

/* Requests up to the last end of a chain. */
static uint32_t whole_chains(const struct rmq_request *requests, uint32_t count)
{
    while (count && requests[count - 1].flags & RMQ_APPEND_FLAG_WITH_NEXT)
        count--;
    return count;
}

uint32_t rmq_port_submit(struct rmq_plane *plane, uint32_t port, const struct rmq_request *requests, uint32_t count)
{
    struct rmq_port *p = rmq_port_at(plane, port);
    uint64_t head = rmq_load_relaxed(&p->request.head), room = rmq_ring_room(&p->request, head);
    count = whole_chains(requests, count < room ? count : (uint32_t)room);
    if (!count)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_request *slot = rmq_ring_slot(plane->base, &p->request, head + i);
        *slot = requests[i];
        slot->generation = p->generation;
        RMQ_CRASH("port-request-filled");
    }
    rmq_store(&p->request.head, head + count);
    RMQ_CRASH("port-requests-published");
    rmq_role_wake(plane, RMQ_ROLE_WRITE);
    return count;
}

static struct rmq_ring *completions(struct rmq_port *port, int ring)
{
    return ring == RMQ_PORT_APPENDED ? &port->appended : &port->completed;
}

uint32_t rmq_port_peek(struct rmq_plane *plane, uint32_t port, int ring, struct rmq_completion *out, uint32_t room)
{
    const struct rmq_ring *from = completions(rmq_port_at(plane, port), ring);
    uint64_t tail = rmq_load_relaxed(&from->tail), waiting = rmq_ring_waiting(from, tail);
    uint32_t count = waiting < room ? (uint32_t)waiting : room;
    for (uint32_t i = 0; i < count; i++)
        out[i] = *(struct rmq_completion *)rmq_ring_slot(plane->base, from, tail + i);
    return count;
}

uint32_t rmq_port_tally(struct rmq_plane *plane, uint32_t port, int ring, uint32_t room, uint64_t *stored, uint32_t lanes,
                        struct rmq_port_tally *tally)
{
    struct rmq_port *p = rmq_port_at(plane, port);
    const struct rmq_ring *from = completions(p, ring);
    uint64_t tail = rmq_load_relaxed(&from->tail), waiting = rmq_ring_waiting(from, tail);
    uint32_t count = waiting < room ? (uint32_t)waiting : room;
    for (uint32_t i = 0; i < count; i++) {
        const struct rmq_completion *found = rmq_ring_slot(plane->base, from, tail + i);
        uint64_t lane = rmq_mark_lane(found->token), behind = rmq_mark_offset(found->token) + 1;
        tally->inherited += found->generation != p->generation;
        tally->stored += found->bytes != 0;
        if (!found->bytes && (!tally->refused++ || tally->first.cause == RMQ_CAUSE_CHAIN_REFUSED))
            tally->first = *found;
        if (found->bytes && tally->end < found->commit_log_offset + found->bytes)
            tally->end = found->commit_log_offset + found->bytes;
        if (found->bytes && lane < lanes && stored[lane] < behind)
            stored[lane] = behind;
    }
    return count;
}

void rmq_port_want_arrival(struct rmq_plane *plane, uint32_t port, uint32_t queue_slot)
{
    uint8_t *flags = (uint8_t *)plane->base + rmq_port_at(plane, port)->parked_flags_at;
    rmq_store(&flags[queue_slot], 1);
    rmq_fence(); /* dispatch stores max_offset, fences, and reads the flag */
}

void rmq_port_done(struct rmq_plane *plane, uint32_t port, int ring, uint32_t count)
{
    struct rmq_ring *from = completions(rmq_port_at(plane, port), ring);
    rmq_store(&from->tail, rmq_load_relaxed(&from->tail) + count);
    RMQ_CRASH("port-completions-done");
}

int rmq_port_take(struct rmq_plane *plane, uint32_t port, struct rmq_completion *out)
{
    return rmq_port_take_where(plane, port, 0, 0, 1, out);
}

int rmq_port_take_where(struct rmq_plane *plane, uint32_t port, uint64_t mask, uint64_t of, int wanted, struct rmq_completion *out)
{
    uint32_t generation = rmq_port_at(plane, port)->generation;
    for (int ring = RMQ_PORT_APPENDED; ring <= RMQ_PORT_COMPLETED; ring++)
        while (rmq_port_peek(plane, port, ring, out, 1)) {
            int is_own = out->generation == generation;
            if (is_own && ((out->token & mask) == of) != wanted)
                break;
            rmq_port_done(plane, port, ring, 1);
            if (is_own)
                return 1;
        }
    return 0;
}

int rmq_port_has_answers(struct rmq_plane *plane, uint32_t port)
{
    const struct rmq_port *p = rmq_port_at(plane, port);
    return rmq_ring_used(&p->appended) || rmq_ring_used(&p->completed);
}

uint32_t rmq_port_commit(struct rmq_plane *plane, uint32_t port, const struct rmq_offset_commit *commits, uint32_t count)
{
    struct rmq_ring *ring = &rmq_port_at(plane, port)->commit;
    uint64_t head = rmq_load_relaxed(&ring->head), room = rmq_ring_room(ring, head);
    count = count < room ? count : (uint32_t)room;
    for (uint32_t i = 0; i < count; i++)
        *(struct rmq_offset_commit *)rmq_ring_slot(plane->base, ring, head + i) = commits[i];
    RMQ_CRASH("port-commits-filled");
    rmq_store(&ring->head, head + count);
    RMQ_CRASH("port-commits-published");
    return count;
}

/* The state after the last batch: end of the log, completions and parked requests of the port. */
struct left {
    uint64_t end, completion_head, parked;
};

/* From the journal, not from the words that follow it: a writer that died in between has moved some of them alone. */
static void journal_of(struct rmq_plane *plane, uint32_t port, struct left *left)
{
    const struct rmq_journal *journal = &rmq_header(plane)->ports.journal;
    for (;;) {
        uint64_t generation = rmq_load(&journal->generation);
        if (!generation) {
            left->end = rmq_load(&plane->watermarks->append_offset);
            left->completion_head = rmq_load(&rmq_port_at(plane, port)->appended.head);
            left->parked = rmq_load(&rmq_port_at(plane, port)->completed.head);
            return;
        }
        const struct rmq_journal_entry *entry = &journal->entry[generation & 1];
        left->end = rmq_load(&entry->append_offset);
        left->completion_head = rmq_load(&entry->port[port].completion_head);
        left->parked = rmq_load(&entry->port[port].parked_count);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (rmq_load_relaxed(&journal->generation) == generation)
            return;
    }
}

int64_t rmq_port_settled(struct rmq_plane *plane, uint32_t port)
{
    struct left left;
    if (rmq_ring_used(&rmq_port_at(plane, port)->request))
        return -EAGAIN;
    journal_of(plane, port, &left);
    return (int64_t)left.end;
}

int rmq_port_answered(struct rmq_plane *plane, uint32_t port)
{
    const struct rmq_port *p = rmq_port_at(plane, port);
    struct left left;
    if (rmq_ring_used(&p->request))
        return 0;
    journal_of(plane, port, &left);
    return rmq_load(&p->appended.head) == left.completion_head && rmq_load(&p->completed.head) == left.parked;
}

void rmq_port_acknowledge(struct rmq_plane *plane, uint32_t port)
{
    struct rmq_port *p = rmq_port_at(plane, port);
    rmq_store(&p->acknowledged, rmq_load_relaxed(&p->request.head));
    RMQ_CRASH("port-acknowledged");
}
