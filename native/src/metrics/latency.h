/* latency.h: histograms of times in shared memory, one writer each; powers of two of a microsecond.
 *
 * Counting costs some ns: the callers read the clock once per batch, and requests that came in one round are counted
 * at once (struct rmq_latency_run).
 */
#ifndef RMQ_LATENCY_H
#define RMQ_LATENCY_H
#include "plane/plane.h"

/* cdef-begin */
/* `count` requests took `ns` each; a negative time counts as 0. */
void rmq_latency_count(struct rmq_latency *latency, int64_t ns, uint64_t count);
/* Index of the bucket of a time. */
uint32_t rmq_latency_bucket(int64_t ns);
/* cdef-end */

/* Requests in a row that were received at the same time. */
struct rmq_latency_run {
    int64_t received_ns;
    uint64_t count;
};

static inline void rmq_latency_run_end(struct rmq_latency *latency, struct rmq_latency_run *run, int64_t now_ns)
{
    if (run->count && run->received_ns)
        rmq_latency_count(latency, now_ns - run->received_ns, run->count);
    run->count = 0;
}

static inline void rmq_latency_run_add(struct rmq_latency *latency, struct rmq_latency_run *run, int64_t received_ns, int64_t now_ns)
{
    if (run->received_ns != received_ns)
        rmq_latency_run_end(latency, run, now_ns);
    run->received_ns = received_ns;
    run->count++;
}

/* A time in us as completions carry it. */
static inline uint32_t rmq_latency_us(int64_t ns)
{
    return ns <= 0 ? 0 : ns / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 1000);
}
#endif
