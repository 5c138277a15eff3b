/* dispatch_batch.h: the dispatch role's private state and the steps of a batch. C only.
 *
 * What stays true:
 * - This process alone moves dispatched_offset, and `dispatched` is what it has moved it to. A batch reads from there, and
 *   `position` is at most the confirm offset at its begin.
 * - Every queue slot is below `queue_capacity`, which is the length of `touches` and of each row of `unsent`.
 * - touches[slot].first is set for the slots in `touched` alone, each of which is named once. The rows of a queue are a list
 *   from `first` to `last`, in the order of the log.
 * - unsent_count[p] is the number of slots in unsent[p].
 * - Nothing of a batch is published before all of its units are written.
 */
#ifndef RMQ_DISPATCH_BATCH_H
#define RMQ_DISPATCH_BATCH_H

#include "codec/record_values.h"
#include "dispatch/dispatch_ask.h"
#include "dispatch/dispatcher.h"
#include "engine/background_sync.h"
#include "index/index_files.h"
#include "log/segment.h"
#include "queue/batch_queues.h"
#include "queue/consume_queue.h"
#include "queue/queue_files.h"

enum {
    RMQ_DISPATCH_ROWS = 16384,     /* records with a unit, per batch, at most */
    RMQ_DISPATCH_ROWS_FEW = 2048,  /* beyond it a batch grows only while its queues have few records each: */
    RMQ_DISPATCH_ROWS_OF_A_QUEUE = 8, /* every queue of a batch costs something, whatever it has */
    RMQ_DISPATCH_BATCH_BYTES = 8 << 20,
    RMQ_DISPATCH_KEYS = 256,       /* few: the slots that were prefetched for them are still near when they are put */
};

/* One record that gets a unit. */
struct rmq_dispatch_row {
    struct rmq_cq_unit unit;
    uint64_t queue_offset;
    int64_t store_time_ms;
    uint32_t next;        /* row number + 1 of the next record of the same queue */
    int32_t messages;     /* queue offsets the record takes; > 0 only in batch queues */
};

/* The units of the batch for one queue. One entry per queue slot, in use while first != 0. */
struct rmq_dispatch_touch {
    uint32_t first, last; /* row number + 1 */
    uint64_t max_offset;
    uint64_t min_offset;  /* as to be published with it */
};

struct rmq_dispatch_key {
    int64_t commit_log_offset;
    int64_t store_time_ms;
    int32_t hash;
};

struct rmq_dispatcher {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_watermarks *marks;
    struct rmq_role *role;
    struct rmq_delay_levels levels;
    struct rmq_background_sync sync;
    struct rmq_deferred_close deferred_close;
    struct rmq_queue_files queues;
    struct rmq_batch_queues batch_queues;
    struct rmq_index_files index;
    struct rmq_segment segment;      /* of the record being looked at */
    uint64_t dispatched;             /* dispatched_offset, as this process has stored it */
    uint32_t queue_capacity;         /* as the table had it when the arrays below were made */

    uint64_t position;               /* end of the part of the log that the batch has read */
    struct rmq_dispatch_row rows[RMQ_DISPATCH_ROWS];
    uint32_t row_count;
    struct rmq_dispatch_touch *touches;
    uint32_t touched[RMQ_DISPATCH_ROWS];
    uint32_t touched_count;
    struct rmq_dispatch_key keys[RMQ_DISPATCH_KEYS];
    uint32_t key_count;
    uint8_t units[RMQ_DISPATCH_ROWS * RMQ_CQ_UNIT_BYTES];
    uint64_t records;
    uint64_t left_out;               /* of them, with an impossible value */
    int64_t left_out_at;             /* commit log offset of the first one */
    int32_t left_out_field;          /* its RMQ_VALUE_* */
    int64_t batch_store_time_ms;     /* newest of the batch */
    int64_t newest_store_time_ms;    /* newest dispatched since start */

    uint32_t topic_id;               /* the topic met last */
    uint32_t queue_id, queue_slot;
    int32_t topic_hash;              /* of "topic#" */
    struct rmq_dispatch_question question;
    uint64_t stuck_end;              /* confirm offset up to which nothing more could be taken */

    uint8_t *unsent[RMQ_PORTS_MAX];  /* per slot: an arrival that found the port's ring full */
    uint32_t unsent_count[RMQ_PORTS_MAX];

    int64_t retry_at_ms;
    int64_t next_sync_ms;
    uint32_t fault_told;
    int sticky;                      /* the fault stays until the worker starts again */
};

/* Reads records from dispatched_offset on, up to `end`, as many as fit; puts their index entries. A record that ends
 * beyond `end` is left for later: replicas report in mid-record, so a confirm limit may lie there. Number of bytes looked at,
 * or -errno. */
int64_t rmq_dispatch_read(struct rmq_dispatcher *dispatcher, uint64_t end);
/* Writes the units of every touched queue. 0 or -errno. */
int rmq_dispatch_write_units(struct rmq_dispatcher *dispatcher);
/* Publishes the touched queues, notifies the ports that wait for them, moves dispatched_offset. */
void rmq_dispatch_publish(struct rmq_dispatcher *dispatcher);
/* Forgets the batch; nothing has been published. */
void rmq_dispatch_forget(struct rmq_dispatcher *dispatcher);
/* Arrivals that found a full ring. */
void rmq_dispatch_resend(struct rmq_dispatcher *dispatcher);
#endif
