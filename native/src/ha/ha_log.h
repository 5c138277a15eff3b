/* ha_log.h: read-only mappings of log files for the slaves of one master, shared where several read the same file.
 *
 * What stays true: a file that an offset in use lies in stays mapped. Each stream is in one file at a time, so one place is
 * vacant, or has a file that no stream reads.
 */
#ifndef RMQ_HA_LOG_H
#define RMQ_HA_LOG_H

#include "log/segment.h"
#include "plane/layout.h"

#define RMQ_HA_LOG_FILES (RMQ_HA_PEERS_MAX + 1) /* one for each slave, and one for the next move */

struct rmq_ha_log {
    const struct rmq_settings *settings;
    struct rmq_segment files[RMQ_HA_LOG_FILES];
};

/* Address of the byte at `offset`; the rest of its file follows. NULL with -errno: -ENOENT = deleted by retention.
 * `in_use`: offsets that others read at; a file without one of them may be unmapped for this one. */
const char *rmq_ha_log_at(struct rmq_ha_log *log, uint64_t offset, const uint64_t *in_use, uint32_t count, int *error);
/* Undoes every mapping that none of the offsets lies in. */
void rmq_ha_log_keep(struct rmq_ha_log *log, const uint64_t *in_use, uint32_t count);
#endif
