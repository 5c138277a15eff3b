#include "control_append.h"

#include "ring.h"

int rmq_control_submit(struct rmq_plane *plane, const struct rmq_request *request)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_ring *ring = &h->request[RMQ_CONTROL_PRODUCER];
    uint64_t head = rmq_load_relaxed(&ring->head);
    if (!rmq_ring_room(ring, head))
        return -ENOBUFS;
    struct rmq_request *slot = rmq_ring_slot(plane->base, ring, head);
    *slot = *request;
    slot->producer_generation = h->roles[RMQ_ROLE_CONTROL].generation;
    RMQ_CRASH("control-request-filled");
    rmq_store(&ring->head, head + 1);
    RMQ_CRASH("control-request-published");
    rmq_role_wake(plane, RMQ_ROLE_WRITE);
    return 0;
}

static int take(struct rmq_plane *plane, struct rmq_ring *ring, struct rmq_completion *out)
{
    uint32_t generation = rmq_header(plane)->roles[RMQ_ROLE_CONTROL].generation;
    for (uint64_t tail = rmq_load_relaxed(&ring->tail); tail != rmq_load(&ring->head);) {
        *out = *(struct rmq_completion *)rmq_ring_slot(plane->base, ring, tail);
        rmq_store(&ring->tail, ++tail);
        RMQ_CRASH("control-answer-taken");
        if (out->producer_generation == generation)
            return 1;
    }
    return 0;
}

int rmq_control_take(struct rmq_plane *plane, struct rmq_completion *out)
{
    struct rmq_plane_header *h = rmq_header(plane);
    return take(plane, &h->appended[RMQ_CONTROL_PRODUCER], out) || take(plane, &h->completed[RMQ_CONTROL_PRODUCER], out);
}

int rmq_control_has_answers(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    return rmq_ring_used(&h->appended[RMQ_CONTROL_PRODUCER]) || rmq_ring_used(&h->completed[RMQ_CONTROL_PRODUCER]);
}

int64_t rmq_control_settled(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (rmq_ring_used(&h->request[RMQ_CONTROL_PRODUCER]))
        return -EAGAIN;
    /* The journal, not append_offset: a writer that died in between has moved the tail alone. */
    for (;;) {
        uint64_t generation = rmq_load(&h->journal.generation);
        if (!generation)
            return (int64_t)rmq_load(&plane->watermarks->append_offset);
        uint64_t end = rmq_load(&h->journal.entry[generation & 1].append_offset);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (rmq_load_relaxed(&h->journal.generation) == generation)
            return (int64_t)end;
    }
}
