/* replication_layout.h: a master's slaves, a slave's link to its master, and control's orders to ha. */
#ifndef RMQ_REPLICATION_LAYOUT_H
#define RMQ_REPLICATION_LAYOUT_H
#include <stdint.h>
#include "plane/ports_layout.h"

/* cdef-begin */
/* A replica's level: how far a byte has come before it counts (replicationPolicy). */
#define RMQ_HA_LEVEL_NONE 0
#define RMQ_HA_LEVEL_HANDED 1   /* to the HA writer */
#define RMQ_HA_LEVEL_SENT 2     /* in the network buffer */
#define RMQ_HA_LEVEL_RECEIVED 3 /* acknowledged by the slave's kernel */
#define RMQ_HA_LEVEL_CACHED 4   /* reported: in the slave's mapped log */
#define RMQ_HA_LEVEL_FLUSHED 5  /* reported by a slave that said that its reports are flushed offsets */

/* States of a connection, numbers of RocketMQ's HAConnectionState. */
#define RMQ_HA_FREE 0
#define RMQ_HA_READY 1     /* connected, no report yet */
#define RMQ_HA_TRANSFER 2
#define RMQ_HA_PEERS_MAX 16

/* One slave of this master; ha alone writes, control reads. 256 bytes. */
struct rmq_ha_peer {
    uint32_t state;              /*   0 RMQ_HA_*; FREE: the rest means nothing */
    uint32_t connection;         /*   4 +1 at each connection in this place */
    uint32_t level;              /*   8 CACHED or FLUSHED: level of its reports */
    uint32_t flags;              /*  12 RMQ_HA_PEER_* */
    int64_t broker_id;           /*  16 -1: a stock slave, which does not say */
    uint64_t requested_offset;   /*  24 first report */
    uint64_t start_offset;       /*  32 where the stream began */
    uint64_t sent_offset;        /*  40 */
    uint64_t received_offset;    /*  48 */
    uint64_t reported_offset;    /*  56 */
    uint64_t sent_bytes;         /*  64 headers counted, since connected */
    uint64_t sent_transfers;     /*  72 */
    int64_t connected_mono_ms;   /*  80 */
    int64_t last_read_mono_ms;   /*  88 */
    int64_t last_write_mono_ms;  /*  96 */
    int64_t caught_up_mono_ms;   /* 104 when everything appended was reported last */
    uint64_t bytes_per_second;   /* 112 of the last second */
    uint32_t host_bytes;         /* 120 4 or 16 */
    uint32_t port;               /* 124 */
    uint8_t host[16];            /* 128 network order */
    char room[32];               /* 144 NUL-terminated, empty = not known */
    int64_t silent_since_mono_ms; /* 176 no report has grown since, and sent bytes wait for one; 0 = none do */
    uint8_t reserved[72];        /* 184 */
};
#define RMQ_HA_PEER_IN_SYNC 1
#define RMQ_HA_PEER_COUNTS 2     /* the one connection that stands for its replica */

/* A slave's connection to its master; ha alone writes, control reads. */
struct rmq_ha_link {
    uint32_t state;              /* RMQ_HA_*; FREE: not connected */
    uint32_t attempts;           /* connections tried since start */
    uint64_t received_bytes;
    uint64_t master_offset;      /* end of the last transfer, or the offset of the heartbeat */
    int64_t last_read_mono_ms;
    int64_t last_write_mono_ms;
    uint64_t bytes_per_second;
    uint64_t reported_offset;
    uint8_t reserved[16];
};

/* control -> ha: one JSON object (ha/control_messages.py). */
struct rmq_ha_command {
    uint32_t length;
    char json[1020];
};


struct rmq_replication {
    uint32_t master_known;       /* control of a slave: consumers may be sent to a master */
    uint32_t reserved;
    struct rmq_ring commands;    /* rmq_ha_command: control -> ha */
    struct rmq_ha_peer peers[RMQ_HA_PEERS_MAX];
    struct rmq_ha_link link;
};
/* cdef-end */

_Static_assert(sizeof(struct rmq_ha_peer) == 256, "ha peer");
_Static_assert(sizeof(struct rmq_ha_link) == 72, "ha link");
_Static_assert(sizeof(struct rmq_ha_command) == 1024, "ha order");
#endif
