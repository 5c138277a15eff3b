/* ports_layout.h: the table of ports, their requests and completions, and the journal of write.
 *
 * A port is a source of requests to write. It belongs to one role: a read worker or a service. The supervisor fills the table
 * before any worker starts. Its rows never change while the plane lives. Only this file, port.c and ipc/ports.py know the
 * owner of each port.
 */
#ifndef RMQ_PORTS_LAYOUT_H
#define RMQ_PORTS_LAYOUT_H
#include <stdint.h>

#include "plane/metrics_layout.h"
#include "plane/roles_layout.h"

/* cdef-begin */
#define RMQ_PORTS_MAX 32 /* write_batch.h has a bit for each */
#define RMQ_PORT_WEIGHT_MAX 64

/* The mark of a published record names the source record of a service, on disk too. It is in the field that holds the offset of
 * the half message in a transaction's records (prepared_transaction_offset). Clients cannot set it: read workers store 0. It is a
 * number of three parts, so that no service takes another's records for its own:
 *
 *   bits 56 to 62   the range: the role of the service, which the log keeps. A role number is never given to another service.
 *   bits s to 55    the lane: the number of the service's source
 *   bits 0 to s-1   the queue offset, in that source, of the record that was published again
 *
 * The range says where s is (rmq_mark_split): 48, so that a service has 256 lanes, and 36 for POP, whose lanes are 2^20 windows
 * over queues. A range never gets another split, because its marks are on disk.
 * Range 0 is that of staged writes: (number of the commit + 1) << 16 | chunk. */
#define RMQ_MARK_RANGE_SHIFT 56
#define RMQ_MARK_LANE_SHIFT 48
#define RMQ_MARK_POP_SHIFT 36
#define RMQ_MARK_RANGE_STAGED 0

/* A request to append, 128 bytes. Positions are bytes from the start of the port's arena. The bytes they
 * point at stay untouched until the completion of `token` has been taken. */
struct rmq_request {
    uint64_t body_at;
    uint64_t properties_at;      /* as to be stored, ends in 02 unless empty; batch: the header's properties */
    uint64_t extra_at;           /* pairs of the broker: a UNIQ_KEY when the client sent none, those of a rule */
    uint32_t body_length;
    uint16_t properties_length;
    uint16_t extra_length;
    uint64_t token;              /* chosen by the port's owner, echoed in the completion */
    uint32_t generation;         /* of the port when it was submitted */
    uint32_t topic_id;
    uint32_t queue_slot;
    uint32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    uint32_t reserved0;
    int64_t born_time_ms;
    int64_t prepared_transaction_offset; /* or the mark of a record that a service publishes; others 0 */
    uint8_t born_host[16];
    uint32_t born_port;
    uint16_t kind;               /* RMQ_APPEND_* */
    uint16_t flags;              /* RMQ_APPEND_FLAG_* */
    int64_t received_mono_ns;    /* 0: its time is not counted */
    uint8_t reserved1[8];
};
#define RMQ_APPEND_SINGLE 1
#define RMQ_APPEND_BATCH 2       /* body = batch elements; write stores each element's physical offset in its bytes 4..11 */
#define RMQ_APPEND_FLAG_NO_WAIT 1   /* WAIT=false: answered at append under every policy */
#define RMQ_APPEND_FLAG_BORN_V6 2
#define RMQ_APPEND_FLAG_COPY 4      /* the copy of a record: nothing is added to its properties */
#define RMQ_APPEND_FLAG_WITH_NEXT 8 /* tied to its successor in the ring: a chain is stored as a whole or not at all. layout.h, 3 */
#define RMQ_CHAIN_MAX 64            /* requests of a chain; no more than parked_max of its port */

/* The answer to one request, 48 bytes. */
struct rmq_completion {
    uint64_t commit_log_offset;  /* first record */
    uint64_t queue_offset;       /* first record */
    uint64_t token;
    uint32_t generation;
    uint32_t bytes;              /* of its records: they end at commit_log_offset + bytes; 0 = refused */
    int16_t code;                /* RocketMQ response code: 0, 10, 14, 1, 13, 2 */
    uint16_t cause;              /* RMQ_FAULT_* or RMQ_CAUSE_*: for the remark */
    int32_t cause_errno;
    uint32_t appended_us;        /* since received; 0 if the time is not counted */
    uint32_t durable_us;         /* flushed and replicated, as far as the request waits for it */
};
#define RMQ_CAUSE_MESSAGE_SIZE 64
#define RMQ_CAUSE_BATCH_ELEMENT 65 /* malformed batch body */
#define RMQ_CAUSE_FLUSH_TIMEOUT 66
#define RMQ_CAUSE_SEGMENT_LATE 67  /* next segment not ready in time */
#define RMQ_CAUSE_QUEUE_SLOT 68
#define RMQ_CAUSE_BATCH_PAIRS 69   /* properties of a batch element that recovery would take for torn */
#define RMQ_CAUSE_BATCH_ALONE 70   /* a batch element asks for delay or transaction: only single messages may */
#define RMQ_CAUSE_IN_SYNC_REPLICAS 71 /* too few replicas: nothing was appended */
#define RMQ_CAUSE_SLAVE_LOST 72    /* appended; the slaves that it waited for are gone */
#define RMQ_CAUSE_SLAVE_TIMEOUT 73 /* appended; no report in slaveTimeout */
#define RMQ_CAUSE_HELD 74          /* write_hold */
#define RMQ_CAUSE_BEHIND_REFUSED 75 /* an ordered port has not acknowledged the refusal of an earlier request */
#define RMQ_CAUSE_CHAIN_REFUSED 76 /* another request of its chain was refused, and has the cause */
#define RMQ_CAUSE_CHAIN_BROKEN 77  /* first of a chain that is too long, or whose end was not published with it */
#define RMQ_CAUSE_CHAIN_BYTES 78   /* the request with which a chain has more bytes than a chain may have */
#define RMQ_CAUSE_NO_MASTER 79     /* this broker is no master: nothing was appended */
#define RMQ_CAUSE_YIELDED 80       /* appended; the broker gives its side up before disk or replicas had it */

/* A parked request. The completer answers it when flushed_offset (sync_flush) and replicated_offset (sync_replication) have
 * reached the end of its records, or at a time-out of one of the two. 80 bytes. layout.h, 4. */
struct rmq_parked {
    struct rmq_completion completion;
    int64_t parked_mono_ms;
    int64_t received_mono_ns;
    uint64_t completed_position; /* position in the port's `completed` */
    uint32_t port;
    uint32_t reserved;
};

/* Positions of an SPSC ring. `head` = next to be written (producer), `tail` = next to be read (consumer);
 * both only grow, the slot is position & (capacity - 1). */
struct rmq_ring {
    uint64_t head;
    uint8_t pad0[56];
    uint64_t tail;
    uint8_t pad1[56];
    uint32_t capacity; /* slots or bytes, a power of two; set once */
    uint32_t slot_bytes;
    uint64_t slots_at; /* from the start of the plane */
    uint8_t pad2[48];
};

/* A row of the table. Words of one writer share a cache line. */
struct rmq_port {
    uint32_t role;               /*   0 supervisor, once: its owner */
    uint32_t flags;              /*   4 RMQ_PORT_* */
    uint32_t weight;             /*   8 its share of a batch of write, beside the weights of the others that have requests */
    uint32_t parked_max;         /*  12 of its requests that may wait for the disk or for replicas at a time */
    uint64_t arena_bytes;        /*  16 */
    uint64_t parked_flags_at;    /*  24 u8 [queue_capacity]: 1 = the owner wants the queue's arrivals (owner); 0 = takes none */
    uint64_t pull_stats_at;      /*  32 struct rmq_pull_stats [RMQ_PULL_STATS_CAPACITY]; 0: none */
    uint64_t pull_stats_cells_at; /*  40 u32 entry + 1, 0 = free [RMQ_PULL_STATS_CELLS] */
    uint8_t pad0[16];
    uint32_t generation;         /*  64 owner: of its role, when it claimed the port. Older requests are dropped */
    uint32_t awaits;             /*  68 owner: pulls that wait for arrivals now; 0: they may come a nap of dispatch later */
    uint64_t acknowledged;       /*  72 owner of an ordered port: position from which requests follow a refusal that it has seen */
    uint64_t slow_dropped;       /*  80 owner: slow requests that found their ring full */
    uint64_t junk_dropped;       /*  88 owner: connections closed for junk that control did not hear of */
    uint64_t stands;             /*  96 owner: the tenure in which it submits no requests (journal.h) */
    uint8_t pad1[24];
    struct rmq_pull_stats_table pull_stats; /* owner */
    struct rmq_ring request;     /* rmq_request: owner -> write */
    struct rmq_ring appended;    /* rmq_completion: write -> owner */
    struct rmq_ring completed;   /* rmq_completion: flush (completer) -> owner */
    struct rmq_ring arrived;     /* u32 queue slots: dispatch -> owner; capacity 0: none */
    struct rmq_ring commit;      /* rmq_offset_commit: owner -> control. RMQ_PORT_COMMITS; else capacity 0 */
    struct rmq_ring slow;        /* rmq_slow_request: owner -> control; full: dropped. RMQ_PORT_CONNECTIONS; else capacity 0 */
};
#define RMQ_PORT_ORDERED 1       /* a refusal refuses everything behind it until its owner has acknowledged it */
#define RMQ_PORT_ARRIVALS 2      /* dispatch notifies it of flagged queues that have grown. They start a dormant owner, which
                                  * checks its queues first: earlier arrivals are not notified. No flags: nothing starts it */
#define RMQ_PORT_CONNECTIONS 4   /* a read worker's, which has ARRIVALS and COMMITS, too */
#define RMQ_PORT_COMMITS 8       /* its owner reports consumer offsets to control (rmq_port_commit) */
#define RMQ_PORT_PULL_STATS 16   /* its owner counts what groups take (metrics/pull_stats.h), as each read worker does */

/* A row as the supervisor fills it. */
struct rmq_port_plan {
    uint32_t role, flags, weight, parked_max;
    uint32_t request_slots;      /* a power of two; bounds the requests in flight */
    uint32_t reserved;
    uint64_t arena_bytes;
};

/* Redo journal of `write`: entry [generation & 1] is complete when journal.generation == generation. */
struct rmq_journal_port {
    uint64_t request_tail;
    uint64_t completion_head;
    uint64_t parked_count;       /* entries ever parked: the next completed_position */
    uint64_t refused_at;         /* of an ordered port: position + 1 of a refusal that its owner has to acknowledge; 0 = none.
                                  * Of another port: position behind the last broken chain, all of which is refused */
};
struct rmq_journal_entry {
    uint64_t generation;
    uint64_t append_offset;
    uint64_t store_time_ms;
    uint64_t parked_head;
    uint64_t appended_messages;
    uint64_t reserved[3];
    struct rmq_journal_port port[RMQ_PORTS_MAX]; /* the first `count` of the table are written */
};
struct rmq_journal {
    uint64_t generation;
    uint8_t pad0[56];
    uint64_t intent_high; /* no byte of the log at or above it has been touched since `generation` */
    uint8_t pad1[56];
    uint32_t owner;       /* RMQ_ROLE_WRITE or RMQ_ROLE_HA: the one that changes the journal, and that names the next one (journal.h) */
    uint32_t reserved;
    uint64_t opened;      /* owner: the tenure in which it has opened the log; 0 = it has not */
    uint64_t may_open;    /* control: the tenure TAKING in which write may open the log, because all queues have entries */
    uint8_t pad2[40];
    struct rmq_journal_entry entry[2];
};

struct rmq_ports {
    uint32_t count;              /* rows in use, from the first on */
    uint32_t awaits_parked;      /* write: 1 = it sleeps until requests that wait for disk or replicas are answered */
    uint8_t pad[56];
    struct rmq_ring parked;      /* rmq_parked: write -> flush */
    struct rmq_journal journal;
    struct rmq_port port[RMQ_PORTS_MAX];
};
/* cdef-end */

/* The parts of a mark. Twin: mark_of and parts_of_mark in ipc/ports.py. */
static inline uint32_t rmq_mark_split(uint64_t range) { return range == RMQ_ROLE_POP ? RMQ_MARK_POP_SHIFT : RMQ_MARK_LANE_SHIFT; }

static inline uint64_t rmq_mark_range(uint64_t mark) { return mark >> RMQ_MARK_RANGE_SHIFT; }

static inline uint64_t rmq_mark_lane(uint64_t mark)
{
    return (mark & ((UINT64_C(1) << RMQ_MARK_RANGE_SHIFT) - 1)) >> rmq_mark_split(rmq_mark_range(mark));
}

static inline uint64_t rmq_mark_offset(uint64_t mark) { return mark & ((UINT64_C(1) << rmq_mark_split(rmq_mark_range(mark))) - 1); }

_Static_assert(sizeof(struct rmq_request) == 128, "request");
_Static_assert(sizeof(struct rmq_completion) == 48, "completion");
_Static_assert(sizeof(struct rmq_parked) == 80, "parked");
_Static_assert(sizeof(struct rmq_ring) == 192, "ring");
_Static_assert(sizeof(struct rmq_port) % 64 == 0, "port");
#endif
