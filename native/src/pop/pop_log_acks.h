/* pop_log_acks.h: acknowledgements and changes of messages that have a check point in the log. A RocketMQ broker that takes over
 * the store of a killed broker reads these check points, so the log has to say what became of the messages.
 *
 * The order is: the record, its end by the policy of the log, the entry, the answer. A death between two of them leaves a message
 * that is open, and whose client has no answer.
 *
 * The way of an act: (a request) -> ack, change -> turn: the records of a batch, submitted -> stored -> turn: windows, answers. One
 * batch is with write at a time. What comes meanwhile is the next one. Acknowledgements of one entry share a record.
 *
 * Twin of the records of a batch: ringmq/pop/log_acks_twin.py.
 */
#ifndef RMQ_POP_LOG_ACKS_H
#define RMQ_POP_LOG_ACKS_H

#include "plane/asks.h"
#include "codec/plain_requests.h"
#include "pop/pop_log_records.h"
#include "pop/pop_windows.h"

/* cdef-begin */
#define RMQ_POP_LOG_ACTS_MAX 131072  /* a power of two. The largest batch of acknowledgements has half as many */
#define RMQ_POP_LOG_ANSWERS_MAX 16384
#define RMQ_POP_LOG_BATCH 512        /* records */
#define RMQ_POP_LOG_ARENA_BYTES 4194304 /* at the begin of the port's arena: RMQ_POP_LOG_RECORD_BYTES for each of them */
#define RMQ_POP_LOG_NAMES_BYTES 4096
#define RMQ_POP_LOG_TOKEN 0x8000000000000000ull /* bit of the tokens of these requests */

struct rmq_pop_desk;
struct rmq_pop_log_act;
struct rmq_pop_log_answer;

struct rmq_pop_log_acks {
    /* set by Python */
    struct rmq_pop_log_room room;
    uint8_t *texts;                  /* those of the room; behind texts_bytes there are RMQ_POP_LOG_NAMES_BYTES */
    uint32_t texts_bytes;
    uint32_t port;
    uint32_t is_held;                /* other records need the port: nothing goes to write */
    int64_t until_ms;                /* the next start looks for check points that are due until then */
    /* goes on from call to call */
    struct rmq_pop_log_act *acts;    /* a ring: [ended, sent) have their records with write, or stored; [sent, to) wait */
    uint64_t ended, sent, to;
    struct rmq_pop_log_answer *answers;
    uint32_t unused_answer, answers_end; /* unused ones: a chain of numbers + 1, then those from answers_end on */
    uint32_t answers_used;
    uint32_t answer;                 /* of the request that is served; RMQ_NONE: nothing of it waits yet */
    uint32_t flying;                 /* records without a completion */
    uint32_t lacks_room;             /* an answer waits for room in its ring, which rings no bell */
    uint64_t records, refused;       /* all of them; refused ones have the last cause here */
    uint32_t refused_cause;
    uint32_t names_group, names_slot; /* owners of `names`, which are behind the texts */
    struct rmq_pop_log_text names[2];
};

/* NULL = no memory. */
struct rmq_pop_log_acks *rmq_pop_log_acks_open(void);
void rmq_pop_log_acks_close(struct rmq_pop_log_acks *la);
/* 1: acts of one request fit, and its answer. */
int rmq_pop_log_has_room(const struct rmq_pop_log_acks *la, uint64_t acts);
/* Behind the acts of the request whose ask is in the desk's row. 1: its answer, with this code, follows their records. `code` -1:
 * it has another answer, which follows nothing. */
int rmq_pop_log_wait(struct rmq_pop_desk *d, int32_t code);
/* Ends what is stored, and submits what waits. */
void rmq_pop_log_turn(struct rmq_pop_desk *d);
/* A completion of a request with RMQ_POP_LOG_TOKEN. */
void rmq_pop_log_stored(struct rmq_pop_log_acks *la, const struct rmq_completion *done);
/* cdef-end */

/* A message of a window, by its numbers in the plane, and a receipt. */
struct rmq_pop_log_named {
    uint32_t place, group_id, queue_slot;
    int64_t start_offset, pop_time_ms;
};

struct rmq_pop_log_act {
    uint32_t kind;                   /* RMQ_POP_LOG_ACK .. */
    uint32_t window;                 /* id */
    uint32_t group_id, queue_slot;
    uint32_t answer;                 /* RMQ_NONE: no client waits */
    uint32_t is_written;             /* a change whose check point has gone to write */
    uint32_t refused;                /* write has not stored a record of it */
    int64_t start_offset, pop_time_ms, offset;
    uint64_t bits;                   /* of an acknowledgement, as in rmq_pop_ack */
    struct rmq_pop_give give;        /* of the check point that a change writes */
};
#define RMQ_POP_LOG_ACK 1
#define RMQ_POP_LOG_CHANGE 2         /* a check point with the new time, then an acknowledgement of the old one, as one chain */
#define RMQ_POP_LOG_END 3            /* an acknowledgement of a check point of which no entry has the message any more */

/* 1: the messages wait for their record. 0: none of them has a check point in the log. -1: there is no room. */
int rmq_pop_log_ack(struct rmq_pop_desk *d, const struct rmq_pop_log_named *named, int64_t offset, uint64_t bits);
/* The same for a change of the invisible time of one message. */
int rmq_pop_log_change(struct rmq_pop_desk *d, const struct rmq_pop_log_named *named, int64_t offset, const struct rmq_pop_give *give);
/* The message of this record has a copy in the log. No client waits for the record. Without room for it a RocketMQ broker may give the
 * message once more. */
void rmq_pop_log_end(struct rmq_pop_log_acks *la, uint32_t window, uint32_t group_id, uint32_t queue_slot,
                     const struct rmq_pop_log_record *record);
/* Requests of the next acts, at most `room`, which is at least 2. Moves la->sent. */
uint32_t rmq_pop_log_batch(struct rmq_pop_log_acks *la, struct rmq_plane *plane, struct rmq_pop_windows *windows,
                           struct rmq_request *requests, uint32_t room);
static inline struct rmq_pop_log_act *rmq_pop_log_act_at(struct rmq_pop_log_acks *la, uint64_t number)
{
    return &la->acts[number & (RMQ_POP_LOG_ACTS_MAX - 1)];
}
/* The names of a group and of a queue's topic, as texts of the room: la->names. */
void rmq_pop_log_names(struct rmq_pop_log_acks *la, struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);

_Static_assert(RMQ_POP_LOG_ARENA_BYTES == RMQ_POP_LOG_BATCH * RMQ_POP_LOG_RECORD_BYTES, "each record has its room");
#endif
