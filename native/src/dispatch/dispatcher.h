/* dispatcher.h: the dispatch role. Records up to the confirm offset -> ConsumeQueue units and index entries.
 *
 * One batch: units by pwrite, index entries, then per touched queue max_offset (after its units), then arrivals for parked
 * pulls, then dispatched_offset. After a death, everything from dispatched_offset on is written again: units have fixed
 * positions, index entries are recognised (index.h). The first round of the replacement (background_sync.h) syncs the files
 * that the dead process has written.
 */
#ifndef RMQ_DISPATCHER_H
#define RMQ_DISPATCHER_H

#include "codec/record.h"
#include "plane/plane.h"

/* cdef-begin */
/* counters of role DISPATCH in struct rmq_role */
#define RMQ_DISPATCH_BATCHES 0
#define RMQ_DISPATCH_RECORDS 1
#define RMQ_DISPATCH_BYTES 2
#define RMQ_DISPATCH_INDEX_ENTRIES 3
#define RMQ_DISPATCH_UNKNOWN_TOPIC 4   /* records of topics or queues that are not in the tables */
#define RMQ_DISPATCH_BAD_RECORDS 5
#define RMQ_DISPATCH_FILLED_UNITS 6    /* filler units before the first unit of a queue, or in a gap */
#define RMQ_DISPATCH_ARRIVALS 7
#define RMQ_DISPATCH_OPEN_FILES 8
#define RMQ_DISPATCH_SYNCS 9
#define RMQ_DISPATCH_SLEEPS 10
#define RMQ_DISPATCH_QUEUE_WRITES 11   /* calls of write */
#define RMQ_DISPATCH_NOT_INDEXED 12    /* records with an impossible value (record_values.h) */
#define RMQ_DISPATCH_IMPOSSIBLE_OFFSET 13 /* commit log offset of the first of them since the broker's start */
#define RMQ_DISPATCH_IMPOSSIBLE_FIELD 14  /* its RMQ_VALUE_*; stored last */
#define RMQ_DISPATCH_BAD_BODIES 15 /* the start's: records that the recovery has met whose body has a wrong CRC */
/* its shell's, for the checkpoint that flush writes: store times in ms */
#define RMQ_DISPATCH_QUEUES_SYNCED_MS 18
#define RMQ_DISPATCH_INDEX_SYNCED_MS 19

struct rmq_dispatch_state {
    uint64_t dispatched_offset;
    int64_t dispatched_store_time_ms;      /* of the last record dispatched since start, 0 = none */
    int64_t synced_store_time_ms;          /* queues on disk up to a record of this time, 0 = none */
    int64_t full_index_synced_time_ms;     /* end time of the newest full index file that is on disk, 0 = none */
    uint64_t index_files;
    uint32_t dispatch_fault;
    int32_t dispatch_fault_errno;
};

struct rmq_dispatcher;

/* `open_files_max` bounds the ConsumeQueue files kept open. `levels` may be NULL (copied). */
struct rmq_dispatcher *rmq_dispatcher_open(struct rmq_plane *plane, uint32_t open_files_max,
                                           const struct rmq_delay_levels *levels, int *error);
/* RMQ_RUN_BUDGET, RMQ_RUN_STOPPED (all dispatched or faulted), RMQ_RUN_FAULT, or -errno. */
int rmq_dispatcher_run(struct rmq_dispatcher *dispatcher, int64_t budget_ns);
/* Syncs dirty files first. dispatch_fault is set if that has failed. */
void rmq_dispatcher_close(struct rmq_dispatcher *dispatcher);

void rmq_dispatcher_state(struct rmq_dispatcher *dispatcher, struct rmq_dispatch_state *out);

/* The three below: between two runs, by the same thread. */
/* Sync queue and index files now. 0 or -errno. */
int rmq_dispatcher_sync(struct rmq_dispatcher *dispatcher);
/* 1 if files may be deleted now. 0 while many deleted files are not freed yet. */
int rmq_dispatcher_may_clean(struct rmq_dispatcher *dispatcher);
/* One queue: deletes files that lie wholly below the log's min_offset and moves the queue's min_offset.
 * Number of files deleted, or -errno. */
int rmq_dispatcher_clean_queue(struct rmq_dispatcher *dispatcher, uint32_t queue_slot, uint64_t min_commit_log_offset);
/* Index files that end below min_commit_log_offset, never the newest. Number deleted, or -errno. */
int rmq_dispatcher_clean_index(struct rmq_dispatcher *dispatcher, uint64_t min_commit_log_offset);
/* cdef-end */
#endif
