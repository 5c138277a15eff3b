/* ha_watermark.h: how far the log is replicated, by a requirement that Python has drawn from the policy. */
#ifndef RMQ_HA_WATERMARK_H
#define RMQ_HA_WATERMARK_H

#include "plane/layout.h"

/* cdef-begin */
#define RMQ_HA_CONDITIONS_MAX 4

/* At least `count` of the peers must have come as far as `level` says. */
struct rmq_ha_condition {
    uint32_t peers; /* bit n = ha_peers[n] */
    uint32_t count;
    uint32_t level; /* RMQ_HA_LEVEL_* */
};

/* All conditions together; none = nothing is waited for. */
struct rmq_ha_requirement {
    uint32_t count;
    struct rmq_ha_condition conditions[RMQ_HA_CONDITIONS_MAX];
};

/* The offset below which the requirement holds, at most append_offset. Only peers in TRANSFER that have the flag COUNTS
 * count; 0 when there are too few. Twin: ha/replica_watermark.py. */
uint64_t rmq_ha_watermark(const struct rmq_ha_requirement *requirement, const struct rmq_ha_peer *peers,
                          uint64_t append_offset);
/* cdef-end */
#endif
