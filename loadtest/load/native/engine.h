/* The load loop: one thread, one io_uring, many connections; closed loop or open loop at a fixed rate. */
#ifndef RINGMQ_LOAD_ENGINE_H
#define RINGMQ_LOAD_ENGINE_H

#include <stdint.h>

#include "hist.h"
#include "watch.h"
#include "wire.h"

enum { CODES_MAX = 32, DEPTH_MAX = 65535, CONNECTIONS_MAX = 20000, INTERVALS_MAX = 4096 };

/* One request on its way. The scenario owns tag, lane, want and connection. */
struct slot {
    uint64_t start_ns; /* closed loop: the loop's time; open loop: when it was due */
    uint64_t tag;
    uint32_t lane, want, connection;
    uint32_t opaque;
    int busy;
};

/* The requests of a run, and the meaning of their answers. Callbacks get `self`. */
struct scenario {
    void *self;
    uint32_t frame_max; /* bytes of the largest request; 0: the connections stay idle */
    size_t answer_max; /* bytes of the largest answer */
    uint32_t messages_per_frame; /* sent by one frame; 0 for pulls, whose answers decide */
    /* Writes a request into `out` and returns its length; 0 when there is nothing to ask now. start_ns is set. */
    uint32_t (*write)(void *self, uint32_t connection, struct slot *slot, uint8_t *out);
    /* Takes an answer with code 0; returns its messages, or -EBADMSG when it is not what was asked for. */
    int (*answer)(void *self, const struct slot *slot, const struct answer *answer);
    /* Takes an answer with another code; 1 when that is no error. NULL: every other code is one. */
    int (*refused)(void *self, const struct slot *slot, const struct answer *answer);
    /* True when everything was asked. NULL: never. */
    int (*done)(void *self);
    /* Requests on their way that may stay without an answer when everything was asked. NULL: none. */
    uint64_t (*left_waiting)(void *self);
};

struct engine_config {
    const char *host;
    int port;
    uint32_t connections, depth;
    uint32_t idle; /* further connections that say nothing */
    double warmup_s, seconds; /* seconds 0: until `messages` are sent or the scenario is done */
    uint64_t messages; /* 0: no limit */
    double interval_s; /* 0: the window as a whole only */
    double rate; /* messages/s of an open loop; 0: closed loop */
    uint32_t listeners; /* of an open loop: so many connections, the first ones, ask as soon as they may */
    uint64_t burst_ns; /* of an open loop, from 1: what is due within one of these is due at its beginning */
    struct watch *watch; /* NULL: none */
    double drain_s; /* the most time to wait for late answers, and for any answer at all */
};

struct code_count {
    int code;
    uint64_t count;
};

/* A stretch of the window. */
struct interval {
    double at_s, seconds; /* begin since the window's begin, length */
    uint64_t messages;
    double p50_us, p99_us, p99_9_us, max_us;
};

struct engine_result {
    /* Within the measured window, that is after the warm-up and before the stop. */
    uint64_t answers, messages, bytes_in, bytes_out;
    double window_s, user_s, system_s;
    struct hist latency, lag; /* lag: open loop, how late the loader itself was */
    struct interval intervals[INTERVALS_MAX]; /* the first INTERVALS_MAX of them */
    uint32_t interval_count;
    /* Over the whole run. */
    uint64_t frames_sent, all_messages, bad_answers, unanswered, disconnects;
    uint32_t connected, still_open;
    struct code_count codes[CODES_MAX]; /* of answers other than 0 */
    uint32_t code_count;
    uint64_t last_answer_ns; /* CLOCK_MONOTONIC */
    char remark[256]; /* of the first refused answer */
    char trouble[160]; /* cause of an early end; empty without one */
};

uint64_t now_ns(void);

/* Counts an answer other than 0. */
void result_count_code(struct engine_result *r, int code);
/* Adds an interval with the latencies of its answers, while there is room. */
void result_add_interval(struct engine_result *r, struct interval interval, const struct hist *latency);

/* Runs `scenario`; 0, or negative errno when it could not start (trouble says what failed). */
int engine_run(const struct engine_config *config, const struct scenario *scenario, struct engine_result *out);

#endif
