/* pop_copies.h: copies of messages whose invisible time is over, a batch a call. `ringmq.pop.revival` decides once for each
 * window of a batch: where its messages lie, and where their copies go.
 *
 * The way of a message: due -> ready -> (look) a case of the batch -> (Python decides about the case) -> fill ->
 * rmq_record_copies -> tokens -> submit -> answers -> rmq_pop_copied. A message without a copy is listed in `left`: Python has
 * it done, tried again later, or made ready. No page of the log is touched that is on disk: such messages stay ready, and the
 * kernel reads ahead.
 *
 * Twin of the cases of a batch: ringmq/pop/copies_twin.py.
 */
#ifndef RMQ_POP_COPIES_H
#define RMQ_POP_COPIES_H

#include "plane/port.h"
#include "pop/pop_log_acks.h"
#include "pop/pop_windows.h"
#include "queue/queue_reader.h"
#include "services/record_copy.h"

/* cdef-begin */
#define RMQ_POP_COPIES_MAX 4096      /* messages at a time */
#define RMQ_POP_COPY_BATCH 256
#define RMQ_POP_CASES_MAX 64         /* windows of a batch: messages of further ones wait for the next */
#define RMQ_POP_CASE_EDITS 4         /* of a dead letter */
#define RMQ_POP_COPY_EDITS 512       /* one for each copy, then those of the cases */
#define RMQ_POP_COPY_ACK_TOKEN 0x4000000000000000ull /* bit of the tokens of acknowledgements, with the place of the batch in `open` */
#define RMQ_POP_TIMES_NEVER 0x7fffffff /* no message of the case becomes a dead letter */

/* Reasons for which a message has no copy. */
#define RMQ_POP_LEFT_BY_CASE 1       /* Python has not set the case to be copied */
#define RMQ_POP_LEFT_GONE 2          /* its record is deleted, or stands for no message */
#define RMQ_POP_LEFT_UNREADABLE 3    /* `detail`: the error of the queue reader */
#define RMQ_POP_LEFT_NO_COPY 4       /* `detail`: RMQ_COPY_* */
#define RMQ_POP_LEFT_NO_DEAD 5       /* it becomes a dead letter, and the case has no queue for these */
#define RMQ_POP_LEFT_REFUSED 6       /* by write; `detail`: RMQ_CAUSE_* or RMQ_FAULT_* */

struct rmq_pop_copy {
    struct rmq_pop_due due;
    struct rmq_held_record source;   /* between fill and tokens */
    uint64_t batch;                  /* number of the batch of its copy */
    uint32_t case_number;
    uint32_t left;                   /* RMQ_POP_LEFT_* */
    int32_t detail;
    uint32_t is_dead;                /* its copy is a dead letter */
    uint32_t is_later;               /* it is tried with a later batch: on disk, or not mapped */
    uint32_t is_with_write;          /* its copy has no answer yet */
    uint32_t has_ack;                /* its check point in the log is acknowledged by a record that is stored with the copy */
};

struct rmq_pop_copy_target {
    uint32_t topic_id, queue_slot, queue_id; /* queue_slot RMQ_NONE: there is none */
};

/* The messages of one window in a batch. */
struct rmq_pop_copy_case {
    uint32_t window, place;
    uint32_t rows;
    uint32_t is_copied;              /* Python's, as all behind it: 1 = copies are made */
    uint32_t source_slot;
    int32_t times_max;               /* messages that have come so often become dead letters */
    struct rmq_pop_copy_target again, dead;
    uint32_t dead_edits;             /* the first of RMQ_POP_CASE_EDITS edits */
};

/* Arrays are Python's, of RMQ_POP_COPIES_MAX entries where nothing else is said. */
struct rmq_pop_copies {
    struct rmq_pop_windows *windows;
    struct rmq_plane *plane;
    struct rmq_pop_log_acks *log_acks; /* NULL: the port has no requests of acknowledgements */
    uint32_t port;
    uint32_t unused_count, ready_count, taken_count, copied_count, left_count, cases_count;
    uint32_t acks_count;             /* of the batch: copies with an acknowledgement */
    struct rmq_pop_index *index;
    struct rmq_pop_copy *rows;
    uint32_t *unused;
    uint32_t *ready;                 /* slots of messages that wait for a batch, the oldest first */
    uint32_t *open;                  /* batch % RMQ_POP_COPIES_MAX -> its copies without an answer */
    uint32_t *left;                  /* slots of messages that Python has to end */
    uint32_t *taken;                 /* of the batch: RMQ_POP_COPY_BATCH entries, as `copied` */
    uint32_t *copied;
    struct rmq_pair_edit *edits;     /* RMQ_POP_COPY_EDITS */
    uint32_t name_at, name_length;   /* of the pair 1ST_POP_TIME, in the texts of the batch */
    uint64_t stored, dead;           /* copies that are stored, all of them, since the start */
    struct rmq_pop_copy_case cases[RMQ_POP_CASES_MAX];
};

/* Takes messages whose time was over at `mono_ms`, as far as there is room. Returns their number. */
uint32_t rmq_pop_copies_due(struct rmq_pop_copies *c, int64_t mono_ms);
/* Begins a batch of ready messages, at most `room`, and sorts them into cases. Returns their number. */
uint32_t rmq_pop_copies_look(struct rmq_pop_copies *c, uint32_t room);
/* Reads the sources of copied cases, and describes the copies. Returns their number. */
uint32_t rmq_pop_copies_fill(struct rmq_pop_copies *c, struct rmq_queue_reader *q, struct rmq_record_copy *copies);
/* Puts what rmq_record_copies has made of `copies`, requests[0..done), into `out` without gaps, with tokens (slots). A message with
 * a check point in the log has an acknowledgement behind its copy, in one chain: its bytes follow from *arena_at on. `out` has room
 * for two of each. Messages that were not tried are ready again. Returns the number of requests in `out`. */
uint32_t rmq_pop_copies_tokens(struct rmq_pop_copies *c, const struct rmq_record_copy *copies, const struct rmq_request *requests,
                               uint32_t done, uint64_t batch, struct rmq_request *out, uint64_t *arena_at);
/* Takes the completions of the port. Each must be of a copy, or of an acknowledgement, that has none yet. Windows learn of stored
 * copies, and refused ones are added to `left`. Returns their number. */
uint32_t rmq_pop_copies_answers(struct rmq_pop_copies *c);
/* The message is ready again. */
void rmq_pop_copies_ready(struct rmq_pop_copies *c, uint32_t slot);
/* The row is free again: the window has heard of it. */
void rmq_pop_copies_release(struct rmq_pop_copies *c, uint32_t slot);
/* cdef-end */

_Static_assert(RMQ_POP_COPY_EDITS == RMQ_POP_COPY_BATCH + RMQ_POP_CASES_MAX * RMQ_POP_CASE_EDITS, "edits");
#endif
