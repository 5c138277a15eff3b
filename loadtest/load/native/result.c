#include "engine.h"

void result_count_code(struct engine_result *r, int code)
{
    for (uint32_t i = 0; i < r->code_count; i++)
        if (r->codes[i].code == code) {
            r->codes[i].count++;
            return;
        }
    if (r->code_count < CODES_MAX)
        r->codes[r->code_count++] = (struct code_count){code, 1};
}

void result_add_interval(struct engine_result *r, struct interval interval, const struct hist *latency)
{
    if (r->interval_count == INTERVALS_MAX)
        return;
    interval.p50_us = (double)hist_percentile(latency, 50) / 1e3;
    interval.p99_us = (double)hist_percentile(latency, 99) / 1e3;
    interval.p99_9_us = (double)hist_percentile(latency, 99.9) / 1e3;
    interval.max_us = (double)latency->max / 1e3;
    r->intervals[r->interval_count++] = interval;
}
