/* batch_queues.h: BatchConsumeQueue files (46-byte units) of stores that have topics with queue.type=BatchCQ. C only.
 *
 * <root>/batchconsumequeue/<topic>/<queueId>/<20 digits>. A unit's place does not follow from its queue offset: units
 * stand one after another, and a record that the last unit already covers is passed over. Few records come this way,
 * so files are opened for each write.
 */
#ifndef RMQ_BATCH_QUEUES_H
#define RMQ_BATCH_QUEUES_H

#include "engine/background_sync.h"
#include "plane/plane.h"
#include "queue/consume_queue.h"

struct rmq_batch_queue {
    uint64_t end;           /* byte offset behind the last unit */
    int64_t last_offset;    /* commit log offset of the last unit's record, -1 = none */
    int known;
};

struct rmq_batch_queues {
    struct rmq_plane *plane;
    struct rmq_background_sync *sync;
    uint64_t file_bytes;
    struct rmq_batch_queue *by_slot; /* made with the first unit */
};

int rmq_batch_queues_open(struct rmq_batch_queues *queues, struct rmq_plane *plane, struct rmq_background_sync *sync);
void rmq_batch_queues_close(struct rmq_batch_queues *queues);
/* 1 = written, 0 = was there, or -errno. */
int rmq_batch_queues_append(struct rmq_batch_queues *queues, uint32_t slot, const struct rmq_cq_batch_unit *unit);
#endif
