/* pop_desk.h: the desk: requests of consumers that take single messages, from the inbox to their answers. `ringmq.pop.desk` owns
 * it, decides what needs a decision, and makes what is missing.
 *
 * Each request becomes a row, and rows take one road (rmq_pop_serve). C makes rows of plain requests, Python of the others.
 *
 * A row is served, or nothing was done for it: then the result says why. Twin of the decisions: ringmq/pop/desk_twin.py.
 */
#ifndef RMQ_POP_DESK_H
#define RMQ_POP_DESK_H

#include "codec/answer.h"
#include "metrics/latency.h"
#include "plane/serving.h"
#include "pop/pop_clients.h"
#include "pop/pop_filters.h"
#include "pop/pop_given.h"
#include "pop/pop_index.h"
#include "pop/pop_log_acks.h"
#include "pop/pop_orders.h"
#include "pop/pop_polls.h"
#include "pop/pop_requests.h"
#include "pop/pop_windows.h"
#include "queue/queue_reader.h"

/* cdef-begin */
/* Results of rmq_pop_serve and rmq_pop_desk_turn. */
#define RMQ_POP_SERVED 0             /* of a turn: nothing is left that C may serve */
#define RMQ_POP_ODD 1                /* the request is not plain, or of another code */
#define RMQ_POP_NO_ROOM 2            /* in the ring of answers: it is served later */
#define RMQ_POP_NEEDS_WINDOWS 3      /* of wanted_group and wanted_topic */
#define RMQ_POP_NEEDS_FILTER 4       /* for the expression of the row */
#define RMQ_POP_SLOW 5               /* of a turn: the row is served, and waited so long that a log line is due */
#define RMQ_POP_WAITS 6              /* the row is that of a poll, which goes on waiting */
#define RMQ_POP_POLLS_LEFT 7         /* of a wait: there is more for polls than a turn does */
#define RMQ_POP_NEEDS_NOTICE 8       /* that check points of the time of a change are in the log */
/* From here on the row is refused. */
#define RMQ_POP_TOO_LATE 16          /* more than half a second beyond its poll time, without our own delays */
#define RMQ_POP_BROKER_UNREADABLE 17
#define RMQ_POP_TOO_MANY 18          /* more than RMQ_POP_MESSAGES_MAX messages are wanted */
#define RMQ_POP_NO_TOPIC 19
#define RMQ_POP_TOPIC_UNREADABLE 20
#define RMQ_POP_NO_QUEUE 21
#define RMQ_POP_NO_GROUP 22
#define RMQ_POP_GROUP_DISABLED 23
#define RMQ_POP_BAD_EXPRESSION 24
#define RMQ_POP_NOT_OF_BATCH 25      /* the batch of an orderly group has no such message */
#define RMQ_POP_BAD_INVISIBLE 26     /* invisibleTime is not in 0..RMQ_POP_INVISIBLE_MS_MAX */
#define RMQ_POP_BAD_OFFSET 27        /* outside of the queue */
#define RMQ_POP_BAD_RECEIPT 28
#define RMQ_POP_ENTRIES_USED 29      /* a change needs an entry, and none is free */
#define RMQ_POP_STOPPED 30           /* the windows cannot be kept any more */

/* Settings, a bit each. */
#define RMQ_POP_READABLE 1           /* brokerPermission */
#define RMQ_POP_RETRY_V1 2           /* retry topics of this form are read */
#define RMQ_POP_RETRY_V2 4
#define RMQ_POP_ACTUAL_TOPIC 8       /* popResponseReturnActualRetryTopic */
#define RMQ_POP_IS_STOPPED 16
#define RMQ_POP_IS_DRAINING 32       /* no message is given: pops and notifications find none */

/* Counters of the role block, from 1 on (0: SlowRequests). pop/role_words.py names them. */
#define RMQ_POP_COUNT_POPS 1         /* answers with messages */
#define RMQ_POP_COUNT_EMPTY 2        /* without */
#define RMQ_POP_COUNT_MESSAGES 3     /* given */
#define RMQ_POP_COUNT_ACKS 4         /* messages that are done by a consumer's word */
#define RMQ_POP_COUNT_ACKS_LATE 5    /* of messages that were done, or receipts that nothing is known of */
#define RMQ_POP_COUNT_ACKS_FOREIGN 6 /* receipts of another broker */
#define RMQ_POP_COUNT_CHANGES 7
#define RMQ_POP_COUNT_UNSENT 8       /* pops that no client has received */
#define RMQ_POP_COUNT_BOUND 9        /* pops that found too many messages open, and wait or are empty */
#define RMQ_POP_COUNT_PASSED_OVER 10 /* copies whose message was acknowledged in time */
#define RMQ_POP_COUNT_UNREADABLE 11  /* looks at queues whose units or records cannot be read now */
#define RMQ_POP_COUNT_FULL 12        /* pops that found nothing and could not wait */
#define RMQ_POP_COUNT_NOTIFIED 13    /* notifications that a message is there */
#define RMQ_POP_COUNT_NOT_NOTIFIED 14 /* that none is */
#define RMQ_POP_COUNT_NOTIFY_FULL 15 /* that found none and could not wait */
#define RMQ_POP_COUNTERS_END 16      /* the next ones are free */

/* A request. */
struct rmq_pop_row {
    struct rmq_inbox_record ask;
    struct rmq_plain_asked asked;
    struct rmq_pop_fields pop;
    struct rmq_pop_ack_fields ack;   /* of ACK and CHANGE */
    uint32_t has_waited;             /* Python's: for a window, a filter or a group */
    const uint8_t *frame;            /* of a POP that may wait: the ask as it came; NULL: it is answered at once */
    uint32_t frame_bytes;
    uint32_t held, serial;           /* of a poll that is served again: its number + 1, and its serial; 0: another request */
    uint32_t is_last;                /* its time is over: it is answered, whatever is there */
    int64_t due;                     /* of an answered poll that is a notification: so many of its key are to be told, it is one */
    int64_t until_ns;                /* an earlier process has held it until then; 0: none has */
    uint8_t text[RMQ_POP_TEXT_BYTES_MAX];
};

struct rmq_pop_desk {
    /* set once */
    struct rmq_plane *plane;
    struct rmq_queue_reader *queues;
    struct rmq_pop_windows *windows;
    struct rmq_pop_index *index;
    struct rmq_pop_filters *filters;
    struct rmq_pop_given *given;
    struct rmq_pop_polls *polls;
    struct rmq_pop_client *clients;  /* RMQ_POP_CLIENTS */
    struct rmq_pop_log_acks *log_acks; /* NULL: no check points of open messages are in the log */
    struct rmq_latency *latency;
    struct rmq_latency *acked;       /* RMQ_POP_LATENCY_ACKED */
    uint64_t *counters;
    uint8_t *payload, *texts;        /* room_bytes each */
    uint32_t room_bytes;             /* of an answer's payload */
    uint32_t answerer, role, port;
    uint64_t marks_from;             /* of the memory's header: marks of copies below name other windows */
    uint32_t broker_bytes;
    uint8_t broker[RMQ_POP_NAME_BYTES_MAX + 1]; /* its name in receipts */
    int64_t polls_ns;                /* in a turn, for polls that are awake, and for those whose time is over */
    int64_t began_ns;                /* monotonic: requests that came before have waited for this process to start; 0 = not yet */
    /* set before each call */
    int64_t now_ms, now_ns;          /* wall clock; monotonic, read behind it: a time from now on ends no earlier by the wall clock */
    int64_t slow_after_ns;           /* a request that has waited longer is slow; 0: none is */
    uint32_t settings;               /* RMQ_POP_READABLE .. */
    uint32_t retry_percent;          /* popFromRetryProbability */
    uint32_t revive_queues;          /* reviveQueueNum */
    uint32_t open_max;               /* messages of a queue that consumers of a group may hold; 0: no limit */
    uint32_t share_max;              /* entries that one group may have */
    uint32_t entries_max;
    struct rmq_pop_poll_limits poll_limits;
    /* goes on from call to call */
    uint32_t revive_turn;
    uint64_t random;                 /* xorshift64, never 0 */
    uint64_t wakes;                  /* roles that got answers, a bit each */
    uint64_t arrivals;               /* told by dispatch and taken, all of them */
    uint32_t has_arrivals;           /* the last turn has left some */
    int64_t go_on_ms;                /* polls that are behind go on then, by the monotonic clock */
    uint32_t look_at;                /* the next key of the look at all; number + 1, 0: no look goes on */
    uint32_t looks_again;            /* another look follows */
    uint32_t share_group, share;     /* entries of the group that was looked at last in this turn; 0: of none */
    /* results */
    uint32_t wanted_group, wanted_topic; /* NEEDS_WINDOWS: ids */
    uint32_t trouble_slot;           /* queue that could not be read last, */
    int32_t trouble_error;           /* and the error; 0: none since the owner has reset it */
    int64_t trouble_offset;
    int64_t committed_offset;        /* NOT_OF_BATCH: what the group has done */
    struct rmq_pop_row row;
};

/* Serves the row. `code`: RMQ_CODE_POP, _ACK, _CHANGE or _NOTIFICATION. The caller wakes the read workers by rmq_pop_desk_wake. */
uint32_t rmq_pop_serve(struct rmq_pop_desk *d, int32_t code);
/* Serves plain asks from the front of the inbox, at most `room`. Returns RMQ_POP_*; at any but SERVED and SLOW the next ask is
 * still in the inbox, and is the row if it is plain. *taken = asks that left the inbox. */
uint32_t rmq_pop_desk_turn(struct rmq_pop_desk *d, uint32_t room, uint32_t *taken);
/* Waits at most `timeout_ms`, and serves plain asks meanwhile (plane/serving.h). LEFT: s->why is RMQ_POP_*, as of a turn. */
uint32_t rmq_pop_desk_serve(struct rmq_pop_desk *d, struct rmq_serving *s, int32_t timeout_ms);
void rmq_pop_desk_wake(struct rmq_pop_desk *d);
/* Acknowledges base bits of a receipt of a batch: offset start_offset + i for each bit i of the little-endian `bits`. Offsets
 * outside of the queue are passed over. `flag` and `topic` as in the request. Returns the messages that are done. */
uint64_t rmq_pop_ack_bits(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                          uint32_t topic_length, uint32_t flag, int32_t queue_id, int64_t start_offset, int64_t pop_time_ms,
                          const uint8_t *bits, uint32_t bit_bytes);
/* The same for a receipt of an orderly group. *illegal: the last offset that the batch does not have, -1 = none; committed_offset of
 * the desk was that of the group then. */
uint64_t rmq_pop_ack_order_bits(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                                uint32_t topic_length, uint32_t flag, int32_t queue_id, int64_t start_offset, int64_t pop_time_ms,
                                const uint8_t *bits, uint32_t bit_bytes, int64_t *illegal);
/* cdef-end */

/* --- for the files of the desk --- */

#define RMQ_POP_ANSWER_BYTES_MIN 16384u /* room for any answer without records of retries */

#define RMQ_POP_FLAG_NORMAL 0u /* topic flags of receipts */
#define RMQ_POP_FLAG_RETRY_V1 1u
#define RMQ_POP_FLAG_RETRY_V2 2u

uint32_t rmq_pop_serve_pop(struct rmq_pop_desk *d, struct rmq_pop_row *row);
uint32_t rmq_pop_serve_ack(struct rmq_pop_desk *d, struct rmq_pop_row *row);
uint32_t rmq_pop_serve_change(struct rmq_pop_desk *d, struct rmq_pop_row *row);
uint32_t rmq_pop_serve_notification(struct rmq_pop_desk *d, struct rmq_pop_row *row);
/* A batch of acknowledgements in the regular shape, in the inbox. RMQ_POP_ODD: another shape, nothing was done. */
uint32_t rmq_pop_serve_batch_ack(struct rmq_pop_desk *d, const struct rmq_inbox_record *record);

/* The topic and the group that a request names. */
struct rmq_pop_target {
    uint32_t topic_id, group_id;
    uint32_t queues;                 /* read queues */
};
/* Finds both, with the checks of stock in their order. SERVED, or the check that fails. */
uint32_t rmq_pop_find_target(const struct rmq_pop_desk *d, const struct rmq_pop_fields *fields, const uint8_t *text,
                             struct rmq_pop_target *target);
/* Name of the retry topic; 0: it would be too long. `to` has RMQ_NAME_MAX bytes. */
uint32_t rmq_pop_retry_topic(uint8_t *to, const uint8_t *group, uint32_t group_length, const uint8_t *topic, uint32_t topic_length,
                             uint32_t flag);
/* The window of the pair, RMQ_NONE: there is none yet. */
uint32_t rmq_pop_window_of(const struct rmq_pop_desk *d, uint32_t group_id, uint32_t queue_slot);
/* Id of a topic that clients may use, RMQ_NONE: there is none. */
uint32_t rmq_pop_topic_id(const struct rmq_pop_desk *d, const uint8_t *name, uint32_t length, uint64_t *config);
/* Bytes of a payload for which the asker's ring of answers has room. */
uint32_t rmq_pop_room(const struct rmq_pop_desk *d, uint32_t asker);
struct rmq_answer_head rmq_pop_head_of(const struct rmq_pop_row *row, int32_t code, const char *remark);
/* Puts an answer, to a poll into its slot. A oneway request gets none, and its read worker forgets it. */
void rmq_pop_put(struct rmq_pop_desk *d, const struct rmq_pop_row *row, struct rmq_verdict *verdict, const void *payload,
                 uint32_t length);
/* The same for an ask that was not held. */
void rmq_pop_put_to(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked,
                    struct rmq_verdict *verdict, const void *payload, uint32_t length);
/* An answer of a code, and of a remark or NULL. */
void rmq_pop_put_code(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked, int32_t code,
                      const char *remark);
/* The answer to a change of the invisible time. `invisible_ms`: from the pop time on. */
void rmq_pop_put_change(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked,
                        int64_t pop_time_ms, int64_t invisible_ms, int32_t revive_queue);
/* The moment from which an invisible time counts, by the monotonic clock. Rounded up: no message comes before its time. */
static inline int64_t rmq_pop_given_ms(const struct rmq_pop_desk *d, int64_t invisible_ms)
{
    return (d->now_ns + (invisible_ms ? 999999 : 0)) / 1000000;
}
static inline void rmq_pop_count(struct rmq_pop_desk *d, uint32_t counter, uint64_t more)
{
    rmq_store_relaxed(&d->counters[counter], d->counters[counter] + more);
}
/* So many messages of a pop are done by a consumer's word. By the wall clock, as the receipt. */
static inline void rmq_pop_count_acked(struct rmq_pop_desk *d, int64_t pop_time_ms, uint64_t done)
{
    rmq_pop_count(d, RMQ_POP_COUNT_ACKS, done);
    if (done)
        rmq_latency_count(d->acked, (d->now_ms - pop_time_ms) * 1000, done);
}
/* The queue of an orderly group may be free: a poll that waits for it looks again, and one that waits for any queue. */
void rmq_pop_wake_order(struct rmq_pop_desk *d, uint32_t group_id, uint32_t queue_slot);
/* 1 if some entries are free, after entries of revived messages were given up. */
int rmq_pop_has_room(struct rmq_pop_desk *d);
/* 1 if the group has its share of the entries. Those of revived messages, which give way, do not count. */
int rmq_pop_has_its_share(struct rmq_pop_desk *d, uint32_t group_id);

#endif
