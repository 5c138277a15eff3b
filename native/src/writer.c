#include "writer.h"

#include <errno.h>

struct rmq_writer *rmq_writer_open(struct rmq_plane *plane, int *error)
{
    (void)plane;
    *error = -ENOSYS;
    return 0;
}
int rmq_writer_run(struct rmq_writer *writer, int64_t budget_ns) { (void)writer; (void)budget_ns; return -ENOSYS; }
void rmq_writer_close(struct rmq_writer *writer) { (void)writer; }
uint64_t rmq_writer_queue_offset(struct rmq_writer *writer, uint32_t queue_slot) { (void)writer; return queue_slot; }
