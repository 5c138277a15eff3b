/* ha_connection.h: one slave's connection to the HA writer: reports in, frames of the log out. Private to ha_*.c.
 *
 * What stays true:
 * - A row of `peers` is FREE exactly as long as its connection has no socket. This process alone writes the rows.
 * - In TRANSFER: reported <= sent <= append_offset, received <= sent. A report that says otherwise is the slave's lie, and ends
 *   its connection before it is stored. So no slave can break a row, and a row that is broken is not believed.
 * - append_offset only grows, and `next_offset` is at most this.
 * - `partial` with done != 0 is the frame in front of next_offset.
 * - There are at most RMQ_HA_EVENTS_MAX events: all of them are taken before the next turn.
 */
#ifndef RMQ_HA_CONNECTION_H
#define RMQ_HA_CONNECTION_H

#include "ha/ha_frames.h"
#include "ha/ha_log.h"
#include "ha/ha_sender.h"

/* One turn: each peer may come, report, go and be ordered away; FULL in its place. */
#define RMQ_HA_EVENTS_MAX (4 * RMQ_HA_PEERS_MAX)

struct rmq_ha_connection {
    int fd;                      /* -1 = none */
    int asked;                   /* has reported */
    int blocked;                 /* the socket took less than it was offered */
    uint64_t next_offset;        /* begin of the next frame */
    struct rmq_ha_frame partial; /* done != 0: the socket has taken a part of it */
    uint8_t report[8];           /* bytes of a report that is not complete */
    uint32_t report_bytes;
    int64_t tokens;              /* flow control: bytes that may be sent now; the last frame may overdraw them */
    int64_t tokens_at_ns;
    uint64_t advised;            /* the kernel reads ahead up to here */
    uint64_t second_bytes;
};

struct rmq_ha_sender {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_watermarks *marks;
    struct rmq_role *role;
    const struct rmq_settings *settings;
    struct rmq_ha_log log;
    struct rmq_ha_connection connections[RMQ_HA_PEERS_MAX]; /* beside header->replication.peers */
    struct rmq_ha_event events[RMQ_HA_EVENTS_MAX];
    uint32_t events_head, events_tail;
    struct rmq_ha_requirement answer, confirm;
    int required;                /* the two above mean something */
    uint64_t window_bytes;
    uint64_t append_offset;      /* as of this turn */
    int64_t now_ms;
    int64_t second_ms;           /* time of the last count of rates */
    int64_t accept_again_ms;     /* out of descriptors: not before */
    int64_t stop_seen_ms;
    int listen_fd;
};

static inline struct rmq_ha_peer *rmq_ha_row(struct rmq_ha_sender *s, uint32_t peer)
{
    return &s->header->replication.peers[peer];
}

void rmq_ha_connection_open(struct rmq_ha_sender *s, uint32_t peer, int fd, const uint8_t *host, uint32_t host_bytes,
                            uint32_t port);
/* Closes `fd` because every place is taken. The event FULL names the host. */
void rmq_ha_connection_refuse(struct rmq_ha_sender *s, int fd, const uint8_t *host, uint32_t host_bytes, uint32_t port);
void rmq_ha_connection_close(struct rmq_ha_sender *s, uint32_t peer, uint32_t why, int error, uint64_t offset);
/* Reads the slave's reports. */
void rmq_ha_connection_receive(struct rmq_ha_sender *s, uint32_t peer);
/* Sends the bytes that may be sent now, at most one large call. Returns the bytes that the socket has taken. */
int64_t rmq_ha_connection_send(struct rmq_ha_sender *s, uint32_t peer);
/* Heartbeat and housekeeping when they are due. */
void rmq_ha_connection_tick(struct rmq_ha_sender *s, uint32_t peer);
/* The current read position of each stream in the log; `out` has room for all of them. Returns their number. */
uint32_t rmq_ha_offsets_in_use(const struct rmq_ha_sender *s, uint64_t *out);
/* 1 if a call of send would offer the socket bytes. */
int rmq_ha_connection_has_work(struct rmq_ha_sender *s, uint32_t peer);
/* Nanoseconds until flow control lets the next byte through, -1 = it does not hold this connection up. */
int64_t rmq_ha_connection_held_ns(struct rmq_ha_sender *s, uint32_t peer);
#endif
