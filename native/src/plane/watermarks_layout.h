/* watermarks_layout.h: the page with the ends of the appended, flushed, dispatched and confirmed log, and the faults that stop
 * them. Processes outside the broker may map it.
 */
#ifndef RMQ_WATERMARKS_LAYOUT_H
#define RMQ_WATERMARKS_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
/* confirm_policy: bits of the words that limit the log for consumers. */
#define RMQ_CONFIRM_APPENDED 0 /* ASYNC_FLUSH */
#define RMQ_CONFIRM_FLUSHED 1  /* SYNC_FLUSH */
#define RMQ_CONFIRM_LIMITED 2  /* confirm_limit too: replicas have to hold it, or a slave's master has to have said so */

/* store_fault (flush), dispatch_fault (dispatch): why the store refuses writes; 0 = it does not. */
#define RMQ_FAULT_NONE 0
#define RMQ_FAULT_FSYNC 1        /* an fsync failed: stays until an operator restarts */
#define RMQ_FAULT_DISK_FULL 2    /* goes away when there is room again */
#define RMQ_FAULT_CREATE_FILE 3  /* the next segment could not be made */
#define RMQ_FAULT_QUEUE_IO 5     /* dispatch could not write a consume queue or index; a successor tries again */
#define RMQ_FAULT_QUEUE_SYNC 6   /* fsync of a queue or index file failed: stays until an operator restarts */

/* stop_requested: the phase of a clean stop, 0 = none. A role stops once its own phase has begun and it has finished the work
 * of earlier phases. */
#define RMQ_STOP_READ 1
#define RMQ_STOP_POP 2 /* it reports its last consumer offsets, which control then saves */
#define RMQ_STOP_CONTROL 3
#define RMQ_STOP_WRITE 4
#define RMQ_STOP_FLUSH 5
#define RMQ_STOP_DISPATCH 6
#define RMQ_STOP_HA 7 /* a master's ha; a slave's ends in the phase of write, because it does write's work */
#define RMQ_STOP_SLAVES_MS 3000 /* a stop waits no longer for slaves, whatever slaveTimeout says */

/* replication_state. For any value but OK, write refuses a send that waits for replicas before it is appended. The completer
 * answers all requests behind replicated_offset at once with this response code. */
#define RMQ_REPLICATION_OK 0
#define RMQ_REPLICATION_LOST 11    /* SLAVE_NOT_AVAILABLE: too few replicas are connected */
#define RMQ_REPLICATION_STALLED 12 /* FLUSH_SLAVE_TIMEOUT: connected, and silent with data outstanding */

/* write_hold: why every send is refused until an operator, or a configured rule, has chosen. */
#define RMQ_HOLD_NONE 0
#define RMQ_HOLD_LONGER_SLAVE 1 /* a slave's log is longer than this master's, or differs from it */

/* tenure: the side of this broker in its group, epoch << 8 | state. 0 = none is published yet. Requests that a master alone may
 * do are taken in the state MASTER alone. In SLAVE and TAKING the newest records and tables are those of another master. */
#define RMQ_TENURE_SLAVE 1    /* ha appends the records of a master */
#define RMQ_TENURE_TAKING 2   /* on its way to MASTER: no worker appends */
#define RMQ_TENURE_MASTER 3   /* write appends the records of clients */
#define RMQ_TENURE_YIELDING 4 /* on its way to SLAVE: write stores what it has taken, and takes no more */
#define RMQ_TENURE_STATE_BITS 8

/* The page that outsiders may map: 4096 bytes, one word per cache line.
 *   0 magic "RMQWATER"  8 version  12 confirm_policy  16 start_id  24 owner_pid  32 store_dev  40 store_ino
 *  64 append_offset (write)      128 flushed_offset (flush)     192 dispatched_offset (dispatch)
 * 256 min_offset (flush)         320 replicated_offset (ha)     384 store_fault, store_fault_errno (flush)
 * 448 dispatch_fault, dispatch_fault_errno (dispatch)           512 stop_requested (supervisor): RMQ_STOP_*
 * 576 confirm_limit (ha)         640 replication_state, in_sync_replicas (ha)
 * 704 write_hold (control): RMQ_HOLD_*
 * 768 tenure (supervisor, before any worker starts; then control): epoch << 8 | RMQ_TENURE_*
 * A reader from outside trusts it only while byte 0 of <store>/lock is locked and store_dev/ino match. */
struct rmq_watermarks {
    uint64_t magic;
    uint32_t version;
    uint32_t confirm_policy;
    uint64_t start_id;
    uint32_t owner_pid;
    uint32_t reserved0;
    uint64_t store_dev;
    uint64_t store_ino;
    uint8_t pad0[16];
    uint64_t append_offset;
    uint8_t pad1[56];
    uint64_t flushed_offset;
    uint8_t pad2[56];
    uint64_t dispatched_offset;
    uint8_t pad3[56];
    uint64_t min_offset;
    uint8_t pad4[56];
    uint64_t replicated_offset;
    uint8_t pad5[56];
    uint32_t store_fault;
    int32_t store_fault_errno;
    uint8_t pad6[56];
    uint32_t dispatch_fault;
    int32_t dispatch_fault_errno;
    uint8_t pad7[56];
    uint32_t stop_requested;
    uint8_t pad8[60];
    uint64_t confirm_limit;      /* with RMQ_CONFIRM_LIMITED; ~0 = no limit */
    uint8_t pad9[56];
    uint32_t replication_state;  /* RMQ_REPLICATION_*: rule of write and the completer for sends that wait for replicas */
    uint32_t in_sync_replicas;   /* the master counted */
    uint8_t pad10[56];
    uint32_t write_hold;
    uint8_t pad11[60];
    uint64_t tenure;
    uint8_t pad12[56];
    uint8_t rest[3264];
};
/* cdef-end */

#define RMQ_WATERMARKS_MAGIC 0x5245544157514d52ull /* "RMQWATER" */

_Static_assert(sizeof(struct rmq_watermarks) == 4096, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, append_offset) == 64, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, flushed_offset) == 128, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, dispatched_offset) == 192, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, min_offset) == 256, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, store_fault) == 384, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, stop_requested) == 512, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, confirm_limit) == 576, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, replication_state) == 640, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, write_hold) == 704, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, tenure) == 768, "watermark page");
#endif
