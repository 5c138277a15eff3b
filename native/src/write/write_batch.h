/* write_batch.h: the write role's private state and the three steps of a batch: plan (write_plan.c), encode, answer
 * (write_batch.c). C only. */
#ifndef RMQ_WRITE_BATCH_H
#define RMQ_WRITE_BATCH_H

#include "codec/record.h"
#include "log/append_window.h"
#include "plane/plane.h"
#include "write/writer.h"

enum {
    RMQ_PIECE_BYTES_MAX = UINT16_MAX + 1, /* pairs of a request, the last one with its 02 */
    RMQ_TAIL_BYTES_MAX = 2 * RMQ_PIECE_BYTES_MAX + sizeof(((struct rmq_settings *)0)->additions) + 1,
};

/* One request taken: where its records go, or why it is refused (code != 0). */
struct rmq_write_plan {
    const struct rmq_request *request;
    uint64_t at;
    uint64_t queue_offset;
    uint32_t bytes;
    uint32_t messages;
    uint32_t port;
    int32_t cause_errno;
    int16_t code;
    uint16_t cause;
    uint16_t stale; /* of a dead owner of its port: neither appended nor answered */
    uint16_t tied;  /* requests of its chain before it */
};

struct rmq_writer {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_role *role;
    uint64_t segment_bytes;
    struct rmq_append_window window;
    struct rmq_journal_entry next;  /* state after the last batch; becomes the next journal entry */
    uint64_t *queue_offsets;        /* per queue slot: offset of the next message */
    uint32_t queues_known;
    struct rmq_port *ports;         /* the table */
    uint32_t port_count;
    uint32_t first_port;            /* goes first in the next batch */
    uint32_t overdrawn[RMQ_PORTS_MAX]; /* requests that its last chain has had beyond its share: its next shares are less */
    uint64_t parked_kept;           /* entries of `parked` that a chain waits for: the other ports leave them free */
    uint32_t kept_for;              /* its port */

    struct rmq_write_plan plan[RMQ_BATCH_REQUESTS];
    uint32_t plans;
    uint64_t plan_end;              /* append position after the batch as planned */
    int needs_segment;              /* a request waits for the file behind the append position */
    uint32_t blocked;               /* bit p: requests of port p wait for room for their answers, or below its cap */
    uint32_t room_wanted[RMQ_PORTS_MAX]; /* of a blocked port: requests that have to find room together */
    uint32_t waits_for_owner;       /* of these: its owner has to take completions first */
    int segment_late;
    int64_t waiting_since_ms;

    /* of this batch: bytes appended, messages, requests refused, too_few_replicas, stale, parked, files rolled into */
    uint64_t appended;
    uint64_t messages, refused, too_few_replicas, stale;
    uint32_t parked, rolled;
    uint8_t answered[RMQ_PORTS_MAX];

    long faults_before;
    int faults_known;
    /* pairs of a client batch in front of those of each message, and behind them */
    uint8_t head[RMQ_PIECE_BYTES_MAX];
    uint8_t tail[RMQ_TAIL_BYTES_MAX];
};

/* Takes note of queues that control has added. */
void rmq_writer_queues_learn(struct rmq_writer *writer);
/* Fills plan, plans, plan_end, needs_segment, blocked, waits_for_owner. Stores nothing in shared memory. */
void rmq_writer_plan(struct rmq_writer *writer);
/* Writes records and blanks; moves next.append_offset, next.port[].request_tail and refused_at, and the queue offsets. When a request has
 * changed under its feet (the owner of its port died) the batch ends before it. */
void rmq_writer_encode(struct rmq_writer *writer);
/* Fills completion and parked slots behind the published heads; moves next.*_head and next.port[].*_head. */
void rmq_writer_answer(struct rmq_writer *writer);
#endif
