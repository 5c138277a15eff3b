/* ha_receiver.h: the ha role of a slave. Its master's stream -> records in the mapped CommitLog -> reports.
 *
 * Body bytes are received straight into their page. append_offset, which all processes read, moves only to the end of the last
 * WHOLE record (the blank at a file's end counts as one, once the next file exists). The bytes of a partial record are behind
 * it, below journal.intent_high. They are wiped when the connection ends, or by the next rmq_receiver_open. Reports carry
 * append_offset, under SYNC_FLUSH its flushed part. A fault of the store ends the connection and all reports.
 *
 * The stream (spec ha.md 2.1): master -> slave i64 offset, i32 n, n bytes of the log. n = 0 is a heartbeat. A transfer never
 * crosses a file end. Slave -> master i64. A violation of these rules ends the connection and leaves append_offset unchanged;
 * their plain twin is ringmq.ha.stream_reader. The kernel stores the bytes into pages, so a missing page is an error code and
 * not a SIGBUS.
 *
 * What stays true (struct rmq_receiver):
 * - append <= received <= intent_high: a successor finds every byte that this process may have put behind the log.
 * - `append` is append_offset but while records are passed. This process alone moves that word, and the journal.
 * - flushed_offset is at most `append`: no report says more than the log has.
 * - No byte of a master changes these. Its lies end the connection (RMQ_LINK_*).
 */
#ifndef RMQ_HA_RECEIVER_H
#define RMQ_HA_RECEIVER_H

#include "plane/plane.h"

/* cdef-begin */
#define RMQ_RUN_LINK 4 /* ha of a slave: the connection has ended, look at rmq_receiver_state */

/* Reasons for the end of the connection. `offset`: the log offset concerned. */
#define RMQ_LINK_EOF 1          /* the master closed it */
#define RMQ_LINK_ERROR 2        /* error: errno of the socket */
#define RMQ_LINK_SILENT 3       /* no byte came for ha_housekeeping_ms */
#define RMQ_LINK_STARTS_AT 4    /* the first transfer begins at `offset` and not where it was asked for */
#define RMQ_LINK_GAP 5          /* a later transfer begins at `offset` and not where the one before ended */
#define RMQ_LINK_SIZE 6         /* a transfer of a negative size, or of more than RMQ_RECEIVE_TRANSFER_MAX */
#define RMQ_LINK_FILE_END 7     /* a transfer across the end of a log file */
#define RMQ_LINK_RECORD 8       /* the bytes at `offset` are no record */
#define RMQ_LINK_STORE 9        /* the store has a fault, or its pages cannot be written: error */
#define RMQ_RECEIVE_TRANSFER_MAX 4194304 /* the read buffer of a stock slave */

/* counters of role HA in struct rmq_role, of a slave */
#define RMQ_RECEIVE_TRANSFERS 0
#define RMQ_RECEIVE_BYTES 1
#define RMQ_RECEIVE_RECORDS 2
#define RMQ_RECEIVE_REPORTS 3
#define RMQ_RECEIVE_ROLLS 4
#define RMQ_RECEIVE_SEGMENT_WAITS 5
#define RMQ_RECEIVE_WIPED_BYTES 6
#define RMQ_RECEIVE_SLEEPS 7
#define RMQ_RECEIVE_BAD_BODIES 8 /* its shell's: received records whose body has a wrong CRC */

struct rmq_receiver_state {
    uint64_t received_offset;  /* end of the received bytes; beyond append_offset: part of a record */
    uint64_t offset;           /* of the reason */
    uint32_t reason;           /* RMQ_LINK_*, of the connection that ended last */
    int32_t error;
    uint32_t connected;
    uint32_t waits_for_segment;
};

struct rmq_receiver;

/* Wipes the bytes that a dead predecessor has left behind append_offset. The file of append_offset must exist. NULL with *error
 * = -errno on failure. */
struct rmq_receiver *rmq_receiver_open(struct rmq_plane *plane, int *error);
/* Closes each connection that comes to this listener from now on, at once: only a master sends its log. It stays the caller's.
 * Returns 0 or -errno. */
int rmq_receiver_listen(struct rmq_receiver *receiver, int listen_fd);
/* Takes over a connected socket, in place of the one before: the first report is sent as soon as everything appended may
 * be reported. */
void rmq_receiver_attach(struct rmq_receiver *receiver, int fd);
/* Ends the connection, if there is one, and wipes the record that was arriving; RMQ_LINK_STORE when that failed. */
void rmq_receiver_detach(struct rmq_receiver *receiver);
/* RMQ_RUN_BUDGET (also when control has given an order), RMQ_RUN_LINK, RMQ_RUN_STOPPED, RMQ_RUN_YIELDED, or -errno. */
int rmq_receiver_run(struct rmq_receiver *receiver, int64_t budget_ns);
void rmq_receiver_state(const struct rmq_receiver *receiver, struct rmq_receiver_state *out);
/* Sets the offset up to which consumers may read (RMQ_CONFIRM_LIMITED). ~0 = the whole log. Wakes dispatch. */
void rmq_receiver_limit(struct rmq_receiver *receiver, uint64_t confirm_limit);
void rmq_receiver_close(struct rmq_receiver *receiver);
/* cdef-end */
#endif
