/* writer.h: the write role. Request rings -> records in the mapped CommitLog -> completions.
 *
 * One batch is plan, intent, encode, answers, journal, redo, bells. layout.h (3) has the state after a death between any two of
 * them; the next rmq_writer_open repairs it. Records read their bodies from the arenas of the ports.
 */
#ifndef RMQ_WRITER_H
#define RMQ_WRITER_H

#include "plane/plane.h"

/* cdef-begin */
/* counters of role WRITE in struct rmq_role */
#define RMQ_WRITE_BATCHES 0
#define RMQ_WRITE_REQUESTS 1
#define RMQ_WRITE_MESSAGES 2
#define RMQ_WRITE_BYTES 3
#define RMQ_WRITE_REFUSED 4
#define RMQ_WRITE_MINOR_FAULTS 5       /* of the appending thread since it runs, in steady state none */
#define RMQ_WRITE_POPULATED_BYTES 6    /* by the helper thread */
#define RMQ_WRITE_ROLLS 7
#define RMQ_WRITE_SEGMENT_WAITS 8      /* batches that had to wait for the next file */
#define RMQ_WRITE_SLEEPS 9
#define RMQ_WRITE_STALE_DROPPED 10     /* requests of a generation that has lost its port */
#define RMQ_WRITE_WINDOW_MISSES 11     /* batches that reached beyond the populated window */
#define RMQ_WRITE_TOO_FEW_REPLICAS 12  /* of those refused: nothing was appended because replicas were lacking */
#define RMQ_WRITE_DISPATCH_WAITS 13    /* batches after which dispatch was too far behind to go on at once */

/* of one batch. A chain or a request that begins below the bytes is taken whole. */
#define RMQ_BATCH_REQUESTS 512
#define RMQ_BATCH_BYTES 0x200000

struct rmq_writer;

/* Repairs the state of a dead predecessor: redo of the journal, zeroes [append_offset, intent_high), queue offsets. The arenas
 * must be mapped; the file of append_offset must exist. NULL with *error = -errno on failure. */
struct rmq_writer *rmq_writer_open(struct rmq_plane *plane, int *error);
/* RMQ_RUN_BUDGET, RMQ_RUN_STOPPED, RMQ_RUN_YIELDED, or -errno. */
int rmq_writer_run(struct rmq_writer *writer, int64_t budget_ns);
void rmq_writer_close(struct rmq_writer *writer);
/* cdef-end */
#endif
