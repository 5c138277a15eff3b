/* ha_sender.h: a master's HA writer. append_offset -> frames of the log -> slaves -> reports -> replicated_offset.
 *
 * Mechanism only: Python (ha/master_core.py) decides between two calls of run which slave may follow, from which offset, and
 * which slaves count. The sender sends as long as sent and unreported bytes stay below the window. It sends many frames per
 * call and never waits for a report. Input is bounded: at most RMQ_HA_PEERS_MAX connections, 8 bytes kept per connection. A
 * report that cannot be true closes its connection before it is used.
 *
 *   FREE --accept--> READY --first report, then rmq_ha_sender_start()--> TRANSFER
 *     ^                |                                                    |
 *     +-- closed by the slave, by housekeeping, for a false report or by command: event CLOSED
 *
 * A replacement takes over two words of the dead process (replicated_offset, confirm_limit) and only raises them.
 */
#ifndef RMQ_HA_SENDER_H
#define RMQ_HA_SENDER_H

#include "ha/ha_watermark.h"
#include "plane/plane.h"

/* cdef-begin */
/* counters of role HA on a master in struct rmq_role */
#define RMQ_HA_TRANSFERS 0       /* frames with a body */
#define RMQ_HA_SENT_BYTES 1      /* headers included */
#define RMQ_HA_HEARTBEATS 2
#define RMQ_HA_REPORTS 3
#define RMQ_HA_CONNECTIONS 4
#define RMQ_HA_FALSE_REPORTS 5            /* closed for junk and for reports that cannot be */
#define RMQ_HA_REFUSED 6         /* beyond RMQ_HA_PEERS_MAX */
#define RMQ_HA_SLEEPS 7          /* with its bell armed: write has to wake it */
#define RMQ_HA_DEGRADED_ENTERED 8 /* counted by the shell */
#define RMQ_HA_DEGRADED_LEFT 9
#define RMQ_HA_REFUSED_NETWORK 10 /* counted by the shell: haAllowedNetworks does not allow the host */
#define RMQ_HA_REFUSED_UNNAMED 11 /* counted by the shell: a longer log of a host that haAllowedNetworks does not name */
#define RMQ_HA_REFUSED_SILENT 12 /* counted by the shell: no first report in its time */
#define RMQ_HA_REFUSED_REPLACED 13 /* counted by the shell: gave its place up */

#define RMQ_HA_EVENT_CONNECTED 1
#define RMQ_HA_EVENT_FIRST_REPORT 2 /* offset: where the slave's log ends, at least 0 and perhaps beyond ours */
#define RMQ_HA_EVENT_CLOSED 3
#define RMQ_HA_EVENT_FULL 4         /* a connection was closed, because every place is taken; peer means nothing */

/* causes of the close of a connection */
#define RMQ_HA_WHY_PEER 1        /* it closed, or error: the system's */
#define RMQ_HA_WHY_SILENT 2      /* no report for haHousekeepingInterval */
#define RMQ_HA_WHY_JUNK 3        /* a negative offset */
#define RMQ_HA_WHY_BACKWARD 4    /* a report below the one before */
#define RMQ_HA_WHY_BEYOND 5      /* a report beyond the sent bytes */
#define RMQ_HA_WHY_LOG 6         /* error: its next log file cannot be mapped; ENOENT = retention was faster */
#define RMQ_HA_WHY_ORDERED 7     /* rmq_ha_sender_disconnect() */

struct rmq_ha_event {
    uint32_t kind;       /* RMQ_HA_EVENT_* */
    uint32_t peer;       /* index into ha_peers; not given to anybody else before CLOSED has been taken */
    uint32_t why;        /* CLOSED: RMQ_HA_WHY_* */
    int32_t error;       /* CLOSED: errno, or 0 */
    uint64_t offset;     /* FIRST_REPORT, and CLOSED for a false report: the reported offset */
    uint32_t port;
    uint32_t host_bytes; /* 4 or 16 */
    uint8_t host[16];
};

struct rmq_ha_sender;

/* The listener belongs to the supervisor. -EINVAL without segment size, -ENOMEM. */
struct rmq_ha_sender *rmq_ha_sender_open(struct rmq_plane *plane, int listen_fd, int *error);
/* RMQ_RUN_BUDGET, RMQ_RUN_NEWS (events or orders wait), RMQ_RUN_YIELDED (this broker is the master no more), RMQ_RUN_STOPPED
 * (everything was reported, or slaveTimeout and at most 3 s have passed since the stop). */
int rmq_ha_sender_run(struct rmq_ha_sender *sender, int64_t budget_ns);
/* The oldest event: 1, or 0 when there is none. All of them must be taken before the next run. */
int rmq_ha_sender_event(struct rmq_ha_sender *sender, struct rmq_ha_event *out);
/* Begin a peer's stream: it has reported. 0, -ENOTCONN (closed meanwhile), -EINVAL (no report; beyond the end). */
int rmq_ha_sender_start(struct rmq_ha_sender *sender, uint32_t peer, uint64_t offset);
/* Close; the event CLOSED follows. Nothing for a peer that is gone. */
void rmq_ha_sender_disconnect(struct rmq_ha_sender *sender, uint32_t peer);
/* Stores the identity of a peer, for the watermark and for status. 0 or -ENOTCONN. The room is cut to its field. */
int rmq_ha_sender_mark(struct rmq_ha_sender *sender, uint32_t peer, int64_t broker_id, uint32_t level, uint32_t flags,
                       const char *room);
/* Sets the requirements of replicated_offset and confirm_limit from now on. Before the first call both words stay. */
void rmq_ha_sender_require(struct rmq_ha_sender *sender, const struct rmq_ha_requirement *answer,
                           const struct rmq_ha_requirement *confirm);
/* RMQ_REPLICATION_* and the number of replicas in sync; wakes the completer and write when the state changes. */
void rmq_ha_sender_state(struct rmq_ha_sender *sender, uint32_t state, uint32_t in_sync_replicas);
/* Closes every connection. */
void rmq_ha_sender_close(struct rmq_ha_sender *sender);
/* cdef-end */
#endif
