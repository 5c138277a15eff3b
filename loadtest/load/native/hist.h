/* Latency histogram in the manner of HdrHistogram: every bucket is at most 1/128 of its value wide. */
#ifndef RINGMQ_HIST_H
#define RINGMQ_HIST_H

#include <stdint.h>

enum {
    HIST_SUB_BITS = 7,
    HIST_SUB = 1 << HIST_SUB_BITS,
    HIST_MAX_BITS = 41, /* values from 2^41 ns (36 minutes) on count as the largest one */
    HIST_BUCKETS = (HIST_MAX_BITS - HIST_SUB_BITS + 1) * HIST_SUB,
};

struct hist {
    uint64_t count;
    uint64_t sum; /* ns */
    uint64_t min, max; /* exact, ns; min is UINT64_MAX while empty */
    uint64_t bucket[HIST_BUCKETS];
};

void hist_init(struct hist *h);

/* Largest value that falls into the bucket of `value`. */
uint64_t hist_upper(uint64_t value);

/* Value that at least `percent` % of the samples do not exceed, at most 1/128 too high; 0 while empty. */
uint64_t hist_percentile(const struct hist *h, double percent);

static inline uint32_t hist_index(uint64_t value)
{
    if (value >= (uint64_t)1 << HIST_MAX_BITS)
        value = ((uint64_t)1 << HIST_MAX_BITS) - 1;
    if (value < 2 * HIST_SUB)
        return (uint32_t)value;
    uint32_t shift = 63u - HIST_SUB_BITS - (uint32_t)__builtin_clzll(value);
    return (shift << HIST_SUB_BITS) + (uint32_t)(value >> shift);
}

static inline void hist_add(struct hist *h, uint64_t value)
{
    h->bucket[hist_index(value)]++;
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
    if (value < h->min)
        h->min = value;
}

#endif
