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
#include "reader/cold.h"
#include "reader/connections.h"
#include "reader/junk.h"
#include "reader/output.h"
#include "reader/pending.h"
#include "reader/eviction_rules.h"
#include "reader/read_context.h"
#include "reader/reader.h"
#include "reader/reader_filter.h"
#include "reader/request_codes.h"
#include "reader/sends.h"
#include "reader/slot_counts.h"
#include "reader/turn.h"

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
    int starting;
    int stopping, takes_no_sends;
    int64_t stop_deadline_ms;
    int64_t opened_ms;
    uint64_t inbox_barrier;
    uint64_t fresh;          /* requests of this round that are not published yet and did not wait for room */

    struct rmq_arena arena;
    int64_t eviction_next_ms;
    uint32_t hung_up_next;
    uint32_t no_room_bytes;  /* no block of that size was found in this round */
    uint32_t room_least;     /* bytes of the smallest frame that waits for a block, 0 = none did at the last look */

    struct rmq_connections connections;
    struct rmq_outputs outputs;
    struct rmq_answers answers;
    struct rmq_pendings pendings;
    struct rmq_cold cold;
    struct rmq_junk junk;
    uint32_t *stalled, stalled_count;

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
void rmq_redo_run(struct rmq_reader *r); /* frames that control has approved */

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

#endif
