/* reader_state.h: the read role's private state, shared by reader_*.c. Nothing here is seen by another process. */
#ifndef RMQ_READER_STATE_H
#define RMQ_READER_STATE_H

#include "codec/answer.h"
#include "codec/frame_header.h"
#include "codec/send_decode.h"
#include "engine/engine.h"
#include "plane/asks.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "queue/queue_reader.h"
#include "reader/answers.h"
#include "reader/arena.h"
#include "reader/closings.h"
#include "reader/connections.h"
#include "reader/output.h"
#include "reader/eviction_rules.h"
#include "reader/read_context.h"
#include "reader/reader.h"
#include "reader/reader_filter.h"
#include "reader/request_codes.h"
#include "reader/slot_counts.h"
#include "reader/turn.h"

#define RMQ_REDO_MAX 3
#define RMQ_REDO_DEAD 64 /* beside the number of redos: the send to a retry topic is a dead letter */

/* --- connections ------------------------------------------------------------------------------------------ */

/* With an answerer and not answered: a flood must fill neither its inbox nor its time. Control answers in the order of
 * arrival, so a frame waits for all that are ahead of it. A connection may have as many frames there as RMQ_COLD_TOTAL leaves
 * free, and one: many floods have a few each, and the frame of another connection waits for RMQ_COLD_TOTAL answers. Of one
 * connection the frame that exceeds the bytes is still taken, so that one may be larger than they are. */
#define RMQ_COLD_TOTAL 128u
#define RMQ_COLD_BYTES_MAX (1u << 20)

/* --- pending: requests that other roles answer -------------------------------------------------------------- */

enum rmq_pending_kind { RMQ_PENDING_FREE, RMQ_PENDING_APPEND, RMQ_PENDING_COLD };

#define RMQ_PENDING_INDEX_BITS 20

struct rmq_pending {
    uint32_t connection;
    uint32_t connection_generation;
    int32_t opaque;
    int32_t code;
    uint16_t turn;           /* upper bits of the id: an old verdict must not meet a new request */
    uint8_t kind;
    uint8_t serialise : 1, oneway : 1, dead : 1, redone : 5; /* dead: of a send to run again, it is a dead letter */
    uint32_t next;           /* free list, or the queue of redos */
    struct rmq_frame_ref ref;
    uint32_t frame_length;
    uint64_t frame_at;       /* in the arena */
    uint8_t answerer;        /* cold */
    /* append */
    uint64_t uniq_key_at, batch_at;
    uint32_t batch_length;
    uint16_t uniq_key_length;
    int32_t queue_id;
    uint32_t topic_id;
    uint32_t recall_topic_id; /* of a timer message: the topic in its handle; 0: the answer has none */
    int64_t recall_ms;
    uint32_t queued_us;      /* it waited for room */
    int64_t received_ns;
    /* cold; received_ns, too */
    uint64_t ask_position;
    uint32_t cold_bytes;
    uint32_t answer_length;
    uint8_t *answer;         /* chunks of the verdict so far */
};

/* --- held pulls --------------------------------------------------------------------------------------------- */

struct rmq_parked_pull {
    uint32_t connection, connection_generation;
    uint32_t queue_slot;
    uint32_t frame_length;
    int64_t offset;
    int64_t scanned;         /* units below do not match */
    int64_t deadline_ms;
    uint8_t *frame;          /* private copy; NULL = unused entry */
    uint32_t slot_next, slot_previous;             /* same queue; index + 1 */
    uint32_t connection_next, connection_previous; /* same connection */
    uint32_t next_free;
};

/* --- the reader ----------------------------------------------------------------------------------------------- */

struct rmq_pull_result;

struct rmq_reader {
    struct rmq_read_context context;
    struct rmq_turn turn;
    struct rmq_role *role;
    uint32_t begun[RMQ_ANSWERERS_MAX]; /* generations of the answerers as last seen; control's is that of its role */
    int64_t asks_next_ms;
    int starting;
    int stopping, takes_no_sends;
    int64_t stop_deadline_ms;
    int64_t opened_ms;
    uint64_t inbox_barrier;
    uint64_t fresh;          /* requests of this round that are not published yet and did not wait for room */
    int64_t junk_since_ms;   /* the second in which junk_reports were made */
    uint32_t junk_reports;

    struct rmq_arena arena;
    int64_t eviction_next_ms;
    int refuses;             /* sends and requests to control that would wait: their bytes hold the last buffers */
    uint32_t hung_up_next;
    uint32_t no_room_bytes;  /* no block of that size was found in this round */
    uint32_t room_least;     /* bytes of the smallest frame that waits for a block, 0 = none did at the last look */

    struct rmq_connections connections;
    struct rmq_outputs outputs;
    struct rmq_answers answers;
    uint32_t *stalled, stalled_count;

    /* pending */
    struct rmq_pending *pending;
    uint32_t pending_capacity, pending_used, pending_free;
    uint32_t in_flight, in_flight_max, cold_count;
    uint32_t asked[RMQ_ANSWERERS_MAX]; /* of cold_count, by answerer */
    uint32_t redo_head, redo_tail;

    /* rings */
    struct rmq_ring *requests;
    uint64_t request_head;
    uint32_t round_robin;

    /* sends */
    char uniq_prefix[64];
    uint32_t uniq_prefix_length;
    uint32_t uniq_counter;
    int64_t uniq_month_ms;
    struct rmq_admission_rule dead_letters; /* the redirect of REDO_DEAD */
    struct rmq_admission_rules *rules; /* as published in rules_version, which is looked at when a send asks for them */
    uint64_t rules_version;
    struct rmq_slot_counts slot_counts;
    uint32_t chance_seed;    /* of the refusals of full slots */
    uint8_t *unescaped;      /* properties of the send at hand that came with JSON escapes */

    /* pulls */
    struct rmq_queue_reader queues;
    struct rmq_parked_pull *parked;
    uint32_t parked_capacity, parked_used, parked_free, parked_count, parked_bytes;
    uint32_t *parked_slots;  /* first parked pull per queue slot, index + 1 */
    uint8_t *parked_flags;   /* shared, this reader's row */
    int64_t parked_next_ms, scan_next_ms, tick_next_ms;
    uint32_t long_polling; /* as the last tick has seen it */
    struct rmq_pull_result *pull_result;
    struct rmq_filter_copies *filters;
    uint8_t *filter_text;    /* expression of the pull at hand that came with JSON escapes */

    /* hearing */
    int64_t watchdog_look_ms;
    uint64_t watchdog_seen;
    uint32_t watchdog_looks, watchdog_next;

    struct rmq_event events[256];
};

/* The number of frames that one connection may have at control now, at least 1. */
static inline uint32_t rmq_cold_max(const struct rmq_reader *r)
{
    return r->cold_count + 1 < RMQ_COLD_TOTAL ? RMQ_COLD_TOTAL - r->cold_count : 1;
}

static inline int rmq_cold_is_full(const struct rmq_reader *r, const struct rmq_connection *c)
{
    return c->cold_count >= rmq_cold_max(r) || c->cold_bytes >= RMQ_COLD_BYTES_MAX;
}

/* closings.c */
static inline void rmq_closings_settle(struct rmq_reader *r)
{
    if (r->connections.closed_count)
        rmq_closings_settle_all(r);
}

/* reader_receive.c: bytes -> frames */
void rmq_receive_event(struct rmq_reader *r, const struct rmq_event *event);
void rmq_receive_resume(struct rmq_reader *r); /* stalled connections whose reason is gone */

/* reader_eviction.c: the connections that are closed when buffers or blocks run short */
void rmq_eviction_of_answers(struct rmq_reader *r); /* while they exceed their limit */
void rmq_eviction_poll(struct rmq_reader *r); /* after the stalled have had their turn */

/* reader_watchdog.c. 1 = for 5 s nothing was received while bytes waited on sockets of connections that do not wait. Looks once
 * a second. */
int rmq_reader_is_hung(struct rmq_reader *r);

/* reader_frame.c: which way a frame goes */
/* One whole frame. It takes over the parts of `hold` that it keeps. DONE, STALL (nothing happened: again later) or CLOSED. */
enum rmq_outcome rmq_frame_process(struct rmq_reader *r, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                struct rmq_frame_ref *ref, uint32_t redone);

/* reader_pending.c */
int rmq_pendings_open(struct rmq_reader *r);
void rmq_pendings_close(struct rmq_reader *r);
struct rmq_pending *rmq_pending_take(struct rmq_reader *r, enum rmq_pending_kind kind, struct rmq_connection *c,
                                     const struct rmq_frame_header *h);
/* Bytes of the arena for pairs that the broker adds to a request. They live as long as the entry. */
uint8_t *rmq_pending_scratch(const struct rmq_reader *r, const struct rmq_pending *p);
uint32_t rmq_pending_id(const struct rmq_reader *r, const struct rmq_pending *p);
struct rmq_pending *rmq_pending_find(struct rmq_reader *r, uint32_t id); /* NULL: stale */
void rmq_pending_release(struct rmq_reader *r, struct rmq_pending *p);

/* reader_append.c: a send -> request ring. DONE, STALL or COLD. `approved`: control has approved the frame, so reasons that
 * only ask for its decision do not count. `dead`: it is a dead letter (RMQ_VERDICT_REDO_DEAD). */
enum rmq_outcome rmq_append_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                  uint8_t *frame,
                               uint32_t length, struct rmq_frame_ref *ref, int approved, int dead);
void rmq_append_publish(struct rmq_reader *r);
int rmq_append_open(struct rmq_reader *r);
void rmq_append_close(struct rmq_reader *r);

/* reader_answer.c: completions -> answers; how many */
uint32_t rmq_completions_drain(struct rmq_reader *r);

/* pull_decode.c: fields and checks against the published tables. DONE = may be answered here, else COLD. */
struct rmq_pull {
    const uint8_t *topic, *group, *expression;
    const struct rmq_ext_entry *unread; /* the field that is not of its type */
    uint32_t topic_length, group_length, expression_length;
    uint32_t group_id, topic_id, queue_slot;
    int32_t queue_id, count_max, sys_flag;
    int is_bulk; /* ringmqBulk=true, of readers that take much and often: bounded by bytes, not by a count */
    int64_t offset, commit_offset, suspend_ms, sub_version;
    uint64_t group_config;
    struct rmq_subscription_copy filter;
    const struct rmq_filter_program *program; /* of kind FILTER; until the next pull */
    uint32_t retry_group_id; /* of kind FILTER: RMQ_NONE, or records have the programs of their original topics */
    uint8_t topic_text[RMQ_NAME_JSON_MAX], group_text[RMQ_NAME_JSON_MAX]; /* names that came with escapes */
};
#define RMQ_PULL_COMMIT 1
#define RMQ_PULL_SUSPEND 2
#define RMQ_PULL_SUBSCRIPTION 4
#define RMQ_PULL_CLASS_FILTER 8
enum rmq_outcome rmq_pull_decode(struct rmq_reader *r, const struct rmq_connection *c, const struct rmq_frame_header *h,
                              struct rmq_pull *pull, int approved);

/* pull_scan.c: units -> log pages, the rules of DefaultMessageStore.getMessage */
#define RMQ_PULL_RANGES 512
struct rmq_pull_result {
    int code;
    const char *status;
    int64_t next_offset, min_offset, max_offset;
    int64_t last_position; /* in the log, of the last unit that was looked at; -1 = none was */
    uint32_t bytes, messages, range_count;
    uint32_t filtered;     /* records that an SQL92 condition did not want */
    uint64_t work;         /* of SQL92 conditions; the scan ends at RMQ_FILTER_WORK_MAX */
    int waits_for_disk;    /* the scan ended before a record that is not in memory */
    struct {
        struct rmq_file_map *map;
        const uint8_t *at;
        uint32_t length;
    } ranges[RMQ_PULL_RANGES];
};
void rmq_pull_scan(struct rmq_reader *r, const struct rmq_pull *pull, struct rmq_pull_result *out);
void rmq_pull_release(struct rmq_pull_result *out); /* lets go of the files that its ranges hold */
/* 1 when a unit of [*from, max) may match; moves *from. */
int rmq_pull_peek(struct rmq_reader *r, const struct rmq_pull *pull, int64_t *from);
int rmq_pulls_open(struct rmq_reader *r);
void rmq_pulls_close(struct rmq_reader *r);

/* reader_pull.c. DONE or COLD. `approved` as for sends. */
enum rmq_outcome rmq_pull_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                uint8_t *frame,
                             uint32_t length, int approved);
/* A held pull once more, without holding. If `peek` says so only when something may match from *scanned on: 1 = answered. */
int rmq_pull_again(struct rmq_reader *r, struct rmq_connection *c, uint8_t *frame, uint32_t length, int peek, int64_t *scanned);

/* reader_park.c */
int rmq_park_open(struct rmq_reader *r);
void rmq_park_close(struct rmq_reader *r);
/* 0, or -ENOMEM if no slot is free. The caller checks the queue once more afterwards. */
int rmq_park(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_pull *pull, const uint8_t *frame, uint32_t length,
             int64_t hold_ms);
void rmq_unpark_last(struct rmq_reader *r, struct rmq_connection *c); /* takes back the connection's newest */
uint32_t rmq_arrivals_drain(struct rmq_reader *r);
void rmq_park_tick(struct rmq_reader *r);
/* Long polling was switched off: dispatch rings no reader any more, so a held pull ends as a new one would. */
void rmq_park_apply_settings(struct rmq_reader *r);
void rmq_park_forget(struct rmq_reader *r, struct rmq_connection *c);

/* reader_cold.c: asks of answerers, and their answers */
enum rmq_outcome rmq_cold_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                uint8_t *frame,
                             uint32_t length, struct rmq_frame_ref *ref, uint32_t redone);
void rmq_inbox_head(const struct rmq_reader *r, const struct rmq_connection *c, struct rmq_inbox_record *to);
/* Reports the first bytes to control, then closes. */
void rmq_junk_close(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, uint32_t length, uint32_t reason);
int rmq_cold_report_closed(struct rmq_reader *r, struct rmq_connection *c); /* 0 or -ENOBUFS */
uint32_t rmq_verdicts_drain(struct rmq_reader *r);
void rmq_redo_run(struct rmq_reader *r);
int rmq_verdicts_wait(const struct rmq_reader *r);
void rmq_answerers_watch(struct rmq_reader *r);

#endif
