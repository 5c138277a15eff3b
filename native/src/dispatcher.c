#include "dispatcher.h"

#include <errno.h>

struct rmq_dispatcher *rmq_dispatcher_open(struct rmq_plane *plane, uint32_t open_files_max,
                                           const struct rmq_delay_levels *levels, int *error)
{
    (void)plane, (void)open_files_max, (void)levels;
    *error = -ENOSYS;
    return 0;
}
int rmq_dispatcher_run(struct rmq_dispatcher *dispatcher, int64_t budget_ns) { (void)dispatcher; (void)budget_ns; return -ENOSYS; }
void rmq_dispatcher_close(struct rmq_dispatcher *dispatcher) { (void)dispatcher; }
void rmq_dispatcher_state(struct rmq_dispatcher *dispatcher, struct rmq_dispatch_state *out) { (void)dispatcher; (void)out; }
int rmq_dispatcher_sync(struct rmq_dispatcher *dispatcher) { (void)dispatcher; return 0; }
int rmq_dispatcher_clean_queue(struct rmq_dispatcher *dispatcher, uint32_t queue_slot, uint64_t min) { (void)dispatcher; (void)queue_slot; return (int)min; }
int rmq_dispatcher_clean_index(struct rmq_dispatcher *dispatcher, uint64_t min) { (void)dispatcher; return (int)min; }
