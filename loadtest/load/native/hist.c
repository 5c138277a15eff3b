#include "hist.h"

#include <string.h>

void hist_init(struct hist *h)
{
    memset(h, 0, sizeof *h);
    h->min = UINT64_MAX;
}

static uint64_t upper_of_index(uint32_t index)
{
    if (index < 2 * HIST_SUB)
        return index;
    uint32_t shift = (index >> HIST_SUB_BITS) - 1;
    uint64_t sub = index - (shift << HIST_SUB_BITS);
    return ((sub + 1) << shift) - 1;
}

uint64_t hist_upper(uint64_t value)
{
    return upper_of_index(hist_index(value));
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
    if (h->count == 0)
        return 0;
    double exact = (double)h->count * percent / 100.0;
    uint64_t want = (uint64_t)exact;
    if ((double)want < exact)
        want++;
    if (want == 0)
        want = 1;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= want) {
            uint64_t upper = upper_of_index(i);
            return upper < h->max ? upper : h->max;
        }
    }
    return h->max;
}
