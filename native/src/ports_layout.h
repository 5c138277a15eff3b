/* ports_layout.h: rings, the requests and completions that travel in them, and the journal of write. */
#ifndef RMQ_PORTS_LAYOUT_H
#define RMQ_PORTS_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_READERS_MAX 16
#define RMQ_PRODUCERS_MAX 17 /* request rings: readers 0..15, then control (index 16) */
#define RMQ_CONTROL_PRODUCER 16

/* A request to append, 128 bytes. Positions are bytes from the start of the producer's arena. The bytes they
 * point at stay untouched until the completion of `pending` has been taken. */
struct rmq_request {
    uint64_t body_at;
    uint64_t properties_at;      /* as to be stored, ends in 02 unless empty; batch: the header's properties */
    uint64_t extra_at;           /* a UNIQ_KEY pair made by the reader when the client sent none */
    uint32_t body_length;
    uint16_t properties_length;
    uint16_t extra_length;
    uint32_t pending;            /* producer's own index, echoed in the completion */
    uint32_t producer_generation;
    uint32_t topic_id;
    uint32_t queue_slot;
    uint32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    int64_t born_time_ms;
    int64_t prepared_transaction_offset; /* control may mark what it publishes (published_marks.h); others 0 */
    uint8_t born_host[16];
    uint32_t born_port;
    uint16_t kind;               /* RMQ_APPEND_* */
    uint16_t flags;              /* RMQ_APPEND_FLAG_* */
    int64_t received_mono_ns;    /* 0: nobody counts its time */
    uint8_t reserved[16];
};
#define RMQ_APPEND_SINGLE 1
#define RMQ_APPEND_BATCH 2       /* body = batch elements; write stores each element's physical offset in its bytes 4..11 */
#define RMQ_APPEND_FLAG_NO_WAIT 1   /* WAIT=false: answered at append under every policy */
#define RMQ_APPEND_FLAG_BORN_V6 2

/* The answer to one request, 48 bytes. */
struct rmq_completion {
    uint64_t commit_log_offset;  /* first record */
    uint64_t commit_log_end;
    uint64_t queue_offset;       /* first record */
    uint32_t pending;
    uint32_t producer_generation;
    int16_t code;                /* RocketMQ response code: 0, 10, 14, 1, 13, 2 */
    uint16_t cause;              /* RMQ_FAULT_* or RMQ_CAUSE_*: for the remark */
    int32_t cause_errno;
    uint32_t appended_us;        /* since received; 0 where nobody counts */
    uint32_t kept_us;            /* flushed and replicated, as far as the request waits for it */
};
#define RMQ_CAUSE_MESSAGE_SIZE 64
#define RMQ_CAUSE_BATCH_ELEMENT 65 /* malformed batch body */
#define RMQ_CAUSE_FLUSH_TIMEOUT 66
#define RMQ_CAUSE_SEGMENT_LATE 67  /* next segment not ready in time */
#define RMQ_CAUSE_QUEUE_SLOT 68
#define RMQ_CAUSE_BATCH_PAIRS 69   /* properties of a batch element that recovery would take for torn */
#define RMQ_CAUSE_BATCH_LATER 70   /* a batch element asks for delay, timer or transaction */
#define RMQ_CAUSE_IN_SYNC_REPLICAS 71 /* too few replicas: nothing was appended */
#define RMQ_CAUSE_SLAVE_LOST 72    /* appended; the slaves that it waited for are gone */
#define RMQ_CAUSE_SLAVE_TIMEOUT 73 /* appended; no report in slaveTimeout */
#define RMQ_CAUSE_HELD 74          /* write_hold */

/* A parked request: answered by the completer when flushed_offset (sync_flush) and replicated_offset (sync_replication)
 * have reached completion.commit_log_end, or when its time for one of the two is over. 80 bytes.
 * Its answer has a fixed place in the producer's `completed` ring, so that a completer that died between publishing
 * an answer and giving up the entry cannot answer twice. */
struct rmq_parked {
    struct rmq_completion completion;
    int64_t parked_mono_ms;
    int64_t received_mono_ns;
    uint64_t completed_position; /* position in completed[producer] */
    uint32_t producer;
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

/* Redo journal of `write`: entry [generation & 1] is complete when journal_generation == generation. */
struct rmq_journal_entry {
    uint64_t generation;
    uint64_t append_offset;
    uint64_t store_time_ms;
    uint64_t request_tail[RMQ_PRODUCERS_MAX];
    uint64_t completion_head[RMQ_PRODUCERS_MAX];
    uint64_t parked_head;
    uint64_t appended_messages;
    uint64_t parked_count[RMQ_PRODUCERS_MAX]; /* entries ever parked per producer: the next completed_position */
    uint64_t reserved[4];
};
struct rmq_journal {
    uint64_t generation;
    uint8_t pad0[56];
    uint64_t intent_high; /* no byte of the log at or above it has been touched since `generation` */
    uint8_t pad1[56];
    struct rmq_journal_entry entry[2];
};
/* cdef-end */

_Static_assert(sizeof(struct rmq_request) == 128, "request");
_Static_assert(sizeof(struct rmq_completion) == 48, "completion");
_Static_assert(sizeof(struct rmq_parked) == 80, "parked");
_Static_assert(sizeof(struct rmq_ring) == 192, "ring");
#endif
