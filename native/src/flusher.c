#include "flusher.h"

#include <errno.h>

struct rmq_flusher *rmq_flusher_open(struct rmq_plane *plane, int *error)
{
    (void)plane;
    *error = -ENOSYS;
    return 0;
}
int rmq_flusher_run(struct rmq_flusher *flusher, int64_t budget_ns) { (void)flusher; (void)budget_ns; return -ENOSYS; }
void rmq_flusher_close(struct rmq_flusher *flusher) { (void)flusher; }
void rmq_flusher_state(struct rmq_flusher *flusher, struct rmq_flush_state *out) { (void)flusher; (void)out; }
int rmq_flusher_set_fault(struct rmq_flusher *flusher, uint32_t fault, int32_t fault_errno) { (void)flusher; (void)fault; return fault_errno; }
void rmq_flusher_set_min_offset(struct rmq_flusher *flusher, uint64_t min_offset) { (void)flusher; (void)min_offset; }
