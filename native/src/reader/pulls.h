/* pulls.h: pulls of clients: decode, scan, answer with a header and slices of log pages; or park it, or leave it to control.
 *
 * What stays true:
 * - A pull that was decoded names a queue of the tables. Its texts lie in the frame, or in its own rooms.
 * - Each range of a result holds its file until the result is released, and `bytes` is the length of all of them. A result
 *   without an answer to send has no range.
 */
#ifndef RMQ_PULLS_H
#define RMQ_PULLS_H

#include "codec/send_decode.h"
#include "queue/queue_reader.h"
#include "reader/cold.h"
#include "reader/parking.h"
#include "reader/pull_filter.h"
#include "reader/turn.h"

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

struct rmq_pulls {
    struct rmq_read_context *context;
    struct rmq_outputs *outputs;
    struct rmq_answers *answers;
    struct rmq_cold *cold;
    struct rmq_parking *parking;
    struct rmq_turn *turn;
    struct rmq_queue_reader *queues;
    struct rmq_pull_filters filters;
    struct rmq_pull_result *result; /* of the pull at hand */
};

int rmq_pulls_open(struct rmq_pulls *pulls, struct rmq_cold *cold, struct rmq_parking *parking, struct rmq_turn *turn);
void rmq_pulls_close(struct rmq_pulls *pulls);

enum rmq_outcome rmq_pull_decode(struct rmq_pulls *pulls, const struct rmq_connection *c, const struct rmq_frame_header *h,
                                 struct rmq_pull *pull, int approved);

void rmq_pull_scan(struct rmq_pulls *pulls, const struct rmq_pull *pull, struct rmq_pull_result *out);
void rmq_pull_release(struct rmq_pull_result *out); /* lets go of the files that its ranges hold */
/* 1 when a unit of [*from, max) may match; moves *from. */
int rmq_pull_peek(struct rmq_pulls *pulls, const struct rmq_pull *pull, int64_t *from);

/* pulls.c. DONE or COLD. `approved` as for sends. */
enum rmq_outcome rmq_pull_frame(struct rmq_pulls *pulls, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                                uint32_t length, int approved);
/* A held pull once more, without holding. If `peek` says so only when something may match from *scanned on: 1 = answered. */
int rmq_pull_again(struct rmq_pulls *pulls, struct rmq_connection *c, uint8_t *frame, uint32_t length, int peek, int64_t *scanned);

/* parked_runs.c: parked pulls of queues that have grown, and those whose time is over. How many arrivals there were. */
uint32_t rmq_arrivals_drain(struct rmq_pulls *pulls);
void rmq_parked_tick(struct rmq_pulls *pulls);
#endif
