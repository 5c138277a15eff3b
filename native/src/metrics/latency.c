#include "metrics/latency.h"

#include "plane/ring.h"

uint32_t rmq_latency_bucket(int64_t ns)
{
    uint64_t us = ns <= 0 ? 0 : (uint64_t)ns / 1000;
    uint32_t bits = us ? 64 - (uint32_t)__builtin_clzll(us) : 0;
    return bits < RMQ_LATENCY_BUCKETS ? bits : RMQ_LATENCY_BUCKETS - 1;
}

void rmq_latency_count(struct rmq_latency *latency, int64_t ns, uint64_t count)
{
    uint64_t *bucket = &latency->counts[rmq_latency_bucket(ns)];
    rmq_store_relaxed(bucket, *bucket + count);
    rmq_store_relaxed(&latency->sum_ns, latency->sum_ns + (ns <= 0 ? 0 : (uint64_t)ns * count));
    if (ns > 0 && (uint64_t)ns > latency->max_ns)
        rmq_store_relaxed(&latency->max_ns, (uint64_t)ns);
}
