/* inbox_layout.h: what others tell control, and what control answers. */
#ifndef RMQ_INBOX_LAYOUT_H
#define RMQ_INBOX_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
/* reader -> control: an offset committed by a pull. */
struct rmq_offset_commit {
    uint32_t group_id;
    uint32_t queue_slot;
    int64_t offset;
};

/* Record in control's inbox (MPSC). Payload follows, the record is padded to 8 bytes.
 * `length` is claimed negative and stored positive last; a dead writer's claim is unblocked. */
struct rmq_inbox_record {
    int32_t length;              /* header + payload, unpadded; < 0: being written; then abs() is the claim */
    uint16_t type;               /* RMQ_INBOX_*; RMQ_INBOX_PAD fills the end of the ring */
    uint16_t role;               /* writer */
    uint32_t role_generation;
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* COLD_FRAME: the reader keeps the frame until the verdict names it */
    uint32_t frame_length;       /* COLD_FRAME: whole frame; the payload may hold less of it (send bodies) */
    uint16_t peer_port;
    uint8_t peer_v6;
    uint8_t listener;            /* 0 main, 1 VIP port */
    uint8_t peer_host[16];
    uint64_t received_mono_ns;
};
#define RMQ_INBOX_PAD 0
#define RMQ_INBOX_COLD_FRAME 1   /* payload: frame from its 4-byte length on */
#define RMQ_INBOX_CLOSED 2       /* the connection had sent cold frames and is gone */
#define RMQ_INBOX_DROPPED 3      /* unblocked: its writer died */
#define RMQ_INBOX_HA 4           /* ha -> control: one JSON object (ha/orders.py) */
#define RMQ_INBOX_QUEUE 5        /* a slave's dispatch -> control: pending = id, payload = topic of a queue that is in no table;
                                  * frame_length 1: its records hold inner batches */
#define RMQ_INBOX_JUNK 6         /* payload: at most RMQ_JUNK_BYTES that are no frame; the connection is closed */
#define RMQ_JUNK_BYTES 16

/* Record in a verdict ring (control -> reader), payload follows, padded to 8 bytes. */
struct rmq_verdict {
    uint32_t length;             /* header + payload, unpadded */
    uint16_t type;               /* RMQ_VERDICT_* */
    uint16_t last;               /* SEND: 1 = the frame ends with this chunk */
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* RMQ_NONE for frames that control sends on its own */
    uint32_t reader_generation;
    uint64_t reserved;
};
#define RMQ_VERDICT_PAD 0
#define RMQ_VERDICT_SEND 1       /* payload: bytes for the connection; with last, `pending` is released */
#define RMQ_VERDICT_REDO 2       /* run the kept frame again: the reason it was cold is gone */
#define RMQ_VERDICT_DROP 3       /* oneway: release `pending`, nothing to send */
#define RMQ_VERDICT_CLOSE 4      /* close the connection */
/* cdef-end */

_Static_assert(sizeof(struct rmq_inbox_record) == 56, "inbox record");
_Static_assert(sizeof(struct rmq_verdict) == 32, "verdict");
#endif
