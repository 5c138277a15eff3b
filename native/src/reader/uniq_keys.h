/* uniq_keys.h: UNIQ_KEY pairs for messages whose client sends none: address, pid, a number of this process, ms since the
 * month began, a counter; upper-case hex.
 *
 * What stays true: every key of this process has a number of its own within a millisecond, and the prefix is that of no other
 * process of the broker.
 */
#ifndef RMQ_UNIQ_KEYS_H
#define RMQ_UNIQ_KEYS_H

#include "reader/read_context.h"

#define RMQ_UNIQ_NAME "UNIQ_KEY"

struct rmq_uniq_keys {
    char prefix[64];
    uint32_t prefix_length;
    uint32_t counter;
    int64_t month_ms;
};

void rmq_uniq_keys_open(struct rmq_uniq_keys *keys, const struct rmq_read_context *context);
static inline uint32_t rmq_uniq_pair_length(const struct rmq_uniq_keys *keys) { return keys->prefix_length + 12 + 1; }
void rmq_uniq_pair_put(struct rmq_uniq_keys *keys, uint8_t *to);
#endif
