/* send_backs.h: messages that consumers send back (36), a batch a call: requests as rows, their sources in the log, the copies, the
 * answers. `ringmq.services.send_back.service` makes the decisions, once for each case.
 *
 * C takes plain requests out of the inbox (take), and Python adds the others as the same rows (claim). Both are `ready` then. The
 * source of a request is sound if a consumer may have got it.
 *
 * The way of a batch: look -> (Python decides about each case) -> fill -> rmq_record_copies -> tokens -> submit. Rows that get no
 * copy are listed in `left`: Python answers them, or makes them ready again. A row with a copy keeps its slot, which is the low part
 * of its token, until its answer.
 */
#ifndef RMQ_SEND_BACKS_H
#define RMQ_SEND_BACKS_H

#include "codec/plain_requests.h"
#include "plane/port.h"
#include "queue/queue_reader.h"
#include "services/record_copy.h"

/* cdef-begin */
#define RMQ_CODE_SEND_BACK 36
#define RMQ_SEND_BACK_GROUP_BYTES_MAX 255
#define RMQ_SEND_BACK_CASES_MAX 32   /* of a batch: rows of further ones wait for the next */
#define RMQ_SEND_BACK_NO_CASE 0xffffffffu /* the source is not sound */
#define RMQ_SEND_BACK_LATER 0xfffffffeu   /* it is looked at with the next batch: there are too many cases, or files */

#define RMQ_SEND_BACK_LEAVE 0        /* actions of a case: its rows are left to Python, */
#define RMQ_SEND_BACK_STORE 1        /* copied, */
#define RMQ_SEND_BACK_DROP 2         /* or forgotten, because their read worker has died */

/* The record of a request 36. No decision depends on originTopic or originMsgId. */
struct rmq_send_back_fields {
    struct rmq_plain_head head;
    int64_t offset;                  /* in the log */
    struct rmq_plain_text group;
    int32_t delay_level;
    int32_t times_max;               /* maxReconsumeTimes, of a client whose version lets it count */
    uint32_t unit_mode;
};
#define RMQ_SEND_BACK_TIMES_MAX 8u   /* bit of maxReconsumeTimes in `present` */

struct rmq_send_back {
    struct rmq_inbox_record record;
    struct rmq_held_record source;   /* between look and tokens */
    uint64_t batch;                  /* number of the batch of its copy */
    struct rmq_plain_asked asked;
    int32_t reconsume_times;         /* of the source */
    struct rmq_send_back_fields fields;
    uint32_t source_bytes;
    uint32_t case_number;            /* or RMQ_SEND_BACK_NO_CASE, RMQ_SEND_BACK_LATER */
    uint32_t cause;                  /* RMQ_COPY_*: the reason why the source could not be copied */
    uint32_t tried;                  /* bits of Python's: what was done for the row before */
    uint8_t text[RMQ_SEND_BACK_GROUP_BYTES_MAX + 1];
};

/* Rows that agree in all on which a decision depends: asker, `tried`, group, delayLevel, maxReconsumeTimes, reconsume times. */
struct rmq_send_back_case {
    uint32_t first;                  /* slot of its first row */
    uint32_t rows;
    uint32_t action;                 /* RMQ_SEND_BACK_*, set by Python, as are the targets; its rows take them in turn */
    uint32_t targets_from, targets_count;
};

struct rmq_send_back_target {
    uint32_t topic_id, queue_slot, queue_id;
    uint32_t edits_from, edits_count;
};

/* The arrays are Python's: rows, unused, open, ready, taken, copied and left have `capacity` entries. */
struct rmq_send_backs {
    struct rmq_send_back *rows;
    uint32_t *unused;                /* slots without a row, [0, unused_count) */
    uint32_t *open;                  /* batch % capacity -> its copies without an answer */
    uint32_t *ready;                 /* slots of rows that wait for a batch, the oldest first */
    uint32_t *taken;                 /* slots of this batch */
    uint32_t *copied;                /* slots of its copies */
    uint32_t *left;                  /* slots of rows that get no copy: Python releases them, or makes them ready */
    const uint8_t *hidden;           /* topics of which no consumer gets a record: one byte of length, then the name */
    uint32_t hidden_bytes;
    uint32_t capacity, unused_count, ready_count, taken_count, copied_count, left_count, cases_count;
    struct rmq_send_back_case cases[RMQ_SEND_BACK_CASES_MAX];
};

extern const struct rmq_plain_table rmq_send_back_table;

/* Reads an ask. 1 = it is a plain send-back; 0 = it is not, and `out` is undefined. */
int rmq_send_back_read(const struct rmq_inbox_record *record, struct rmq_send_back *out);
/* A slot for a request that Python has decoded: it fills the row, and makes it ready. RMQ_NONE: there is none. */
uint32_t rmq_send_backs_claim(struct rmq_send_backs *s);
/* The row waits for a batch. */
void rmq_send_backs_ready(struct rmq_send_backs *s, uint32_t slot);
/* Takes plain send-backs, at most `room`, up to the first record that is none, or that its asker has given up. They are the last of
 * the ready ones. Returns their number. *oldest_ns: when the first of them was received. */
uint32_t rmq_send_backs_take(struct rmq_plane *plane, uint32_t answerer, struct rmq_send_backs *s, uint32_t room, uint64_t *oldest_ns);
/* Counts the times since the last `count` ready rows were received. */
void rmq_send_backs_measure(const struct rmq_send_backs *s, uint32_t count, struct rmq_latency *latency, int64_t now_ns);
/* 1 if the record at `at` (`left` bytes) is that of `offset`, whole, in no hidden topic and no half message. */
int rmq_send_back_is_sound(const struct rmq_send_backs *s, const uint8_t *at, uint64_t left, int64_t offset, int32_t *reconsume_times);
/* Begins a batch of ready rows, at most `room`: holds their sources, and sorts them into cases. Returns their number. */
uint32_t rmq_send_backs_look(struct rmq_queue_reader *q, struct rmq_send_backs *s, uint32_t room);
/* Describes a copy of each row whose case is stored. Returns their number. */
uint32_t rmq_send_backs_fill(struct rmq_send_backs *s, const struct rmq_send_back_target *targets, struct rmq_record_copy *copies);
/* Closes the gaps among requests[0..done), which rmq_record_copies has made of `copies`, and gives them their tokens: `token` + slot.
 * Releases the sources of the batch, and lists in `left` the rows without a request. Rows whose copies have not been tried are ready
 * again, before all others; taken_count is the number of the rest. Returns the number of requests. */
uint32_t rmq_send_backs_tokens(struct rmq_send_backs *s, const struct rmq_record_copy *copies, struct rmq_request *requests,
                               uint32_t done, uint64_t token, uint64_t batch);
/* Takes the completions of this port whose tokens begin with `token`, at most `room`, up to the first of another user. Those whose
 * copies are stored are answered with success if `may_answer` is set. Others, and those whose answer has no room, go to `out`:
 * their rows are Python's to release. Returns the number taken, *left: of them in `out`. */
uint32_t rmq_send_backs_answer(struct rmq_plane *plane, uint32_t port, uint32_t answerer, uint64_t token, struct rmq_send_backs *s,
                               struct rmq_completion *out, uint32_t room, int may_answer, uint32_t *left);
/* The row's copy has its completion: its batch has one less to wait for. rmq_send_backs_answer calls it itself. */
void rmq_send_backs_answered(struct rmq_send_backs *s, uint32_t slot);
/* The slot is free again. */
void rmq_send_backs_release(struct rmq_send_backs *s, uint32_t slot);
/* cdef-end */

#endif
