#include "plane/worker_activation.h"

#include "plane/plane.h" /* crash points of the test build */
#include "plane/ring.h"

int rmq_worker_activate(struct rmq_plane *plane, uint32_t role)
{
    struct rmq_role *worker = &rmq_header(plane)->roles[role];
    uint32_t *requested = &worker->activation_requested;
    rmq_fence();
    if (rmq_load_relaxed(requested))
        return 0;
    if ((rmq_load_relaxed(&worker->flags) & RMQ_ROLE_OF_MASTER) && !rmq_is_master(plane->watermarks))
        return 0;
    rmq_store(requested, 1);
    RMQ_CRASH("worker-activation-requested");
    return rmq_role_wake(plane, RMQ_ROLE_SUPERVISOR);
}

void rmq_worker_deactivate(struct rmq_plane *plane, uint32_t role)
{
    rmq_store_relaxed(&rmq_header(plane)->roles[role].activation_requested, 0);
    rmq_fence();
}
