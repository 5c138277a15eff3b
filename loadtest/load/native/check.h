/* After a run: do all acknowledged messages stand in queue and index, and do they read back as they were sent? */
#ifndef RINGMQ_LOAD_CHECK_H
#define RINGMQ_LOAD_CHECK_H

#include "control.h"
#include "scenarios.h"

struct check {
    int asked;
    uint64_t before[LANES_MAX], after[LANES_MAX]; /* maximum offsets */
    uint64_t in_queues; /* messages that the queues grew by */
    double queue_ms, index_ms; /* since the last answer until all stood there; below 0: never */
    uint32_t keys_asked, keys_found, queues_wrong;
    struct pull_scenario read_back;
    struct engine_result read_result;
    int read_asked, ok;
    char trouble[200];
};

/* Fills `offsets` by code (CODE_MIN_OFFSET, CODE_MAX_OFFSET) for every queue; 0, negative errno or response code. */
int check_offsets(struct control *c, int code, const struct lanes *lanes, uint64_t *offsets);

struct check_plan {
    struct lanes lanes;
    const char *host, *group;
    int port, json;
    uint32_t keys; /* number of KEYS to look up */
    double settle_ms; /* the most time after the last answer until all is complete */
    int read_back;
    struct send_back_scenario *keep; /* gets the messages that are read back; NULL = none */
};

/* Checks what `sent` acknowledged; `before` must hold the maxima of before the run. */
void check_after_send(struct check *k, struct control *c, const struct check_plan *plan, const struct send_scenario *sent,
                      uint64_t last_answer_ns);

/* Looks up the keys of `count` messages of run `run_id` until they are found or the time is over; in_lane says where each
 * stands, NULL: in the first topic. */
void check_keys(struct check *k, struct control *c, const struct check_plan *plan, uint32_t run_id,
                const uint64_t *sequences, const uint32_t *in_lane, uint64_t count, uint64_t since_ns);

/* The same for plan->keys of the messages 0 .. total - 1, chosen at random, and the very last one. */
void check_keys_of(struct check *k, struct control *c, const struct check_plan *plan, uint32_t run_id, uint64_t total);

/* Reads the queues from `min` to `max` and sums up bodies into k->read_back. */
void check_read_back(struct check *k, const struct check_plan *plan, const uint64_t *min, const uint64_t *max);

#endif
