/* timer_steps.h: the five steps of timer messages that are done per message. timer/core.py decides when.
 *
 *   TimerEnqueueGet, TimerEnqueuePut    rmq_timer_enqueue
 *   TimerDequeueGet                     rmq_timer_walk
 *   TimerDequeueGetMessage              rmq_timer_take
 *   TimerDequeuePutMessage              rmq_timer_copies, then rmq_record_copies and rmq_timer_submitted
 */
#ifndef RMQ_TIMER_STEPS_H
#define RMQ_TIMER_STEPS_H

#include "queue/queue_reader.h"
#include "services/record_copy.h"
#include "timer/timer_search.h"
#include "timer/timer_slot.h"
#include "timer/timer_topics.h"

/* cdef-begin */
#define RMQ_TIMER_SLOTS_IN_MEMORY 3
#define RMQ_TIMER_STOP_INDEX 1    /* a delete needs the list of index files */
#define RMQ_TIMER_STOP_TIME 2     /* no further search in this turn */
#define RMQ_TIMER_SEARCH_AGE_MS 2000
#define RMQ_TIMER_JOIN_UNITS 4096

struct rmq_timer_tally {
    uint64_t enqueued;
    uint64_t without_time;       /* records without TIMER_OUT_MS, which stock waits at for ever */
    uint64_t done_before;        /* records that were delivered before they came into this log */
    uint64_t damaged;            /* records that cannot be read, and units without a record */
    uint64_t repeated;           /* messages whose copy is in the log already */
    uint64_t deleted;            /* messages that a delete has named */
    uint64_t skipped;            /* messages that cannot be copied: no target, or a record that is damaged */
    uint64_t not_searched;       /* deletes that are in their own slot, because too many came at once */
};

struct rmq_timer_enqueue {
    int64_t write_ms;            /* time of the wheel */
    int64_t open_ms;
    uint64_t rolls_by_write;     /* 1 behind a stock master: it rolls from the time of its write on, not from the store time */
    int64_t known_offset;        /* records before this queue offset whose slot is before known_ms are delivered */
    int64_t known_ms;
    uint64_t known_coarsest_ms;  /* coarsest_ms of the files that were in use then */
    const uint64_t *rolled;      /* ascending: what rmq_timer_rolled_sources has found */
    uint64_t rolled_count;
    int64_t rolled_end;          /* it has read the records before this queue offset */
    struct rmq_timer_slot *slots[RMQ_TIMER_SLOTS_IN_MEMORY]; /* NULL: none */
    const uint64_t *delivered;   /* ascending queue offsets of messages whose copies are in the log */
    uint64_t delivered_count;
    struct rmq_timer_index index;
    int64_t read_ms;             /* store time of the last record that was taken */
    uint32_t stop;               /* cause for fewer units of rmq_timer_enqueue: RMQ_TIMER_STOP_*, 0 = the log has no room */
    uint32_t reserved;
    struct rmq_timer_topics *topics;
    struct rmq_timer_tally tally;
};

/* Names the messages of which records[0..count) of the timer topic are rolled copies: by the queue offset in the mark of `range`, else
 * (the copy of a stock broker) by a hash of key, time and birth. Their number, at most `count`. */
uint32_t rmq_timer_rolled_sources(uint32_t range, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                                  uint32_t count, const uint64_t *secret, uint64_t *sources);

/* Appends units for records[0..count), and adds them to slots in memory. Returns how many were taken: below `count` `stop` says
 * why; or -ENOMEM.
 *
 * Searches of deletes end at index.until_ns. Later deletes wait for the next turn. Those that are older than
 * RMQ_TIMER_SEARCH_AGE_MS go into their own slot, so that a flood of deletes delays no other message for longer. */
int64_t rmq_timer_enqueue(struct rmq_timer_files *f, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                          uint32_t count, struct rmq_timer_enqueue *e);

/* A walk over the chains of the slots of the wheel that are one slot in memory. */
struct rmq_timer_walk {
    int64_t slot_ms;             /* of the chain that is read now */
    int64_t position;            /* of the next unit, RMQ_TIMER_NO_UNIT at the chain's end */
    int64_t until_ms;            /* slots before it may join, while the slot is small */
    int64_t required_ms;         /* slots before it join a large one, too */
    uint64_t units;              /* units that were read */
    int64_t left;                /* messages less deletes of the chain that are to come: at its end 0 */
    uint32_t is_again;           /* 1 = it takes what an earlier walk has left out, and no slot joins */
    uint32_t is_over;
};

/* Begins the chain of walk->slot_ms. */
void rmq_timer_walk_begin(const struct rmq_timer_files *f, struct rmq_timer_walk *w);
/* Adds a piece of the chain, at most `limit` units. A unit that is not as it was written, or a chain that ends elsewhere, stops the
 * walk: f->damaged. At the end of a chain the next slot in use joins. A slot is small while it has
 * fewer than RMQ_TIMER_JOIN_UNITS units. Returns 0, or the error of rmq_queue_reader_record that makes the walk wait. */
int rmq_timer_walk(struct rmq_timer_files *f, struct rmq_queue_reader *q, struct rmq_timer_slot *slot, struct rmq_timer_walk *w,
                   uint32_t limit, struct rmq_timer_enqueue *e);

/* The messages that were taken from a slot for one batch. */
struct rmq_timer_batch {
    uint64_t *keys;              /* arrays of `room` */
    struct rmq_queue_unit *units;
    int64_t *enqueue_ms;
    int64_t *slots_ms;
    uint32_t *magics;
    uint32_t *topic_rows;
    struct rmq_timer_topics *topics;
    uint32_t room;
    uint32_t count;
};

/* Takes due messages and reads their units, which say where the records are. Their number. A batch with a rolled delete has nothing
 * that is due behind it: the delete may name such messages, and has to be in its slot first. */
uint32_t rmq_timer_take(struct rmq_timer_files *f, struct rmq_timer_slot *slot, int64_t now_ms, struct rmq_timer_batch *b);

/* The edits of each copy, which the caller has made once: SET TIMER_ENQUEUE_MS, SET TIMER_DEQUEUE_MS, those of every copy, and last
 * ADD TIMER_ROLL_TIMES, which only rolled copies have. */
#define RMQ_TIMER_EDITS 3
#define RMQ_TIMER_DELETED 256

/* Prepares copies[0..count), which read their records and have their targets (copy_targets.h): the edits, and the timer topic as
 * target of rolled messages. A message that a delete names
 * has no target, and RMQ_TIMER_DELETED in its magic. units[i].queue_offset is that of the record. */
void rmq_timer_copies(struct rmq_timer_slot *slot, struct rmq_timer_batch *b, struct rmq_record_copy *copies, uint32_t count,
                      struct rmq_pair_edit *edits, const struct rmq_record_copy *timer_target, int64_t now_ms,
                      uint32_t precision_ms);

/* Copies in flight, the oldest first. */
struct rmq_timer_flight {
    uint64_t *keys;              /* arrays of `room` */
    uint8_t *is_rolled;
    uint32_t *topic_rows;
    int64_t *due_ms;
    struct rmq_timer_topics *topics;
    struct rmq_latency *lateness; /* of delivered messages */
    uint32_t room;
    uint32_t first;
    uint32_t count;
    uint32_t last_delete;        /* number of the last rolled delete among the copies of the last batch, from 1 on, 0 = none */
    int64_t delete_ms;           /* time at which it was due */
    uint64_t delivered;          /* totals of stored copies */
    uint64_t rolled;
};

/* The first `done` messages of the batch have requests[0..done) (kind 0: no copy); the others return to the slot. 0, or -ENOMEM. */
int rmq_timer_submitted(struct rmq_timer_flight *flight, struct rmq_timer_slot *slot, const struct rmq_timer_batch *b,
                        const struct rmq_request *requests, uint32_t done, struct rmq_timer_tally *tally);
/* The oldest `count` copies in flight are in the log, as of now_ms. */
void rmq_timer_stored(struct rmq_timer_flight *flight, uint32_t count, int64_t now_ms);
/* No copy in flight will be in the log: all return to the slot. 0, or -ENOMEM. */
int rmq_timer_refused(struct rmq_timer_flight *flight, struct rmq_timer_slot *slot);
/* cdef-end */

#endif
