#include "worker_want.h"

#include "plane.h" /* crash points of the test build */
#include "ring.h"

int rmq_worker_want(struct rmq_plane *plane, uint32_t role)
{
    uint32_t *wanted = &rmq_header(plane)->roles[role].wanted;
    rmq_fence();
    if (rmq_load_relaxed(wanted))
        return 0;
    rmq_store(wanted, 1);
    RMQ_CRASH("worker-wanted");
    return rmq_role_wake(plane, RMQ_ROLE_SUPERVISOR);
}

void rmq_worker_rest(struct rmq_plane *plane, uint32_t role)
{
    rmq_store_relaxed(&rmq_header(plane)->roles[role].wanted, 0);
    rmq_fence();
}
