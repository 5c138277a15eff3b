/* serving.h: the wait of an answerer that serves plain asks in C. It sleeps, serves what comes, and returns to Python where that
 * has to decide. So Python runs once for many wake-ups. Twin of the decisions: ringmq/services/kit/serving_twin.py.
 *
 * The owner looks at all its inputs in a turn of Python, and calls the wait then. What comes meanwhile and is for Python has a
 * word here: a record in one of `rings`, another version of the configuration, or `news`. All else waits for the end of the time.
 */
#ifndef RMQ_SERVING_H
#define RMQ_SERVING_H
#include "plane/plane.h"

/* cdef-begin */
#define RMQ_SERVING_RINGS_MAX 6
#define RMQ_SERVING_BUSY_MS 20 /* behind the first ask of a wait, Python has a turn */

/* Decisions. From DUE on the wait returns. */
#define RMQ_SERVING_SERVE 0
#define RMQ_SERVING_SLEEP 1
#define RMQ_SERVING_DUE 2      /* the time is over, or a signal has come */
#define RMQ_SERVING_NEWS 3     /* for Python */
#define RMQ_SERVING_LEFT 4     /* the C loop has left an ask to Python: `why` */
#define RMQ_SERVING_BLOCKED 5  /* the first record of the inbox is incomplete */

struct rmq_serving {
    /* set once */
    uint32_t role, answerer;
    uint32_t ring_count;
    const struct rmq_ring *rings[RMQ_SERVING_RINGS_MAX];
    const struct rmq_ring *arrived; /* the turn takes its records, too; NULL: there is none */
    /* set before each call */
    uint32_t config_version;    /* of the settings that the owner has read */
    /* set by any thread of the owner, before it rings the bell */
    uint32_t news;
    /* go on from call to call */
    uint64_t asks;              /* served */
    uint64_t sleeps;
    /* of one call */
    int64_t until_ns;           /* of the monotonic clock */
    uint32_t has_served;
    uint32_t is_rung;           /* the last sleep was ended by the bell, and nothing was served since */
    uint32_t is_late;           /* a waker may have rung behind an ask that was found without its bell */
    uint32_t why;               /* LEFT: the result of the C loop */
};

/* Findings of one look. */
struct rmq_serving_seen {
    int64_t now_ns;
    uint32_t has_ask;           /* the inbox has a record, complete or not */
    uint32_t has_news;
};

/* The next decision. */
uint32_t rmq_serving_step(struct rmq_serving *s, const struct rmq_serving_seen *seen);
/* cdef-end */

/* Serves asks from the front of the inbox, a bounded number, and what has arrived. *taken = records that left both. Returns 0, or
 * why Python has to go on. It wakes the askers. */
typedef uint32_t rmq_serving_turn(void *owner, int64_t now_ns, uint32_t *taken);

/* Waits at most `timeout_ms`, and serves. The caller has armed the bell and looked at its inputs; the bell is disarmed behind it.
 * Returns a reason from RMQ_SERVING_DUE on. */
uint32_t rmq_serving_run(struct rmq_plane *plane, struct rmq_serving *s, rmq_serving_turn *turn, void *owner, int32_t timeout_ms);
#endif
