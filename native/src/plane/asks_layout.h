/* asks_layout.h: asks of one role to another. An answerer has one inbox, into which every asker puts its asks. It has a ring of
 * answers to each role that asks it. A new answerer is a row of the worker table: no other code names it. layout.h has the
 * protocol (2).
 */
#ifndef RMQ_ASKS_LAYOUT_H
#define RMQ_ASKS_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

#include "plane/ports_layout.h"
#include "plane/roles_layout.h"

/* cdef-begin */
/* reader -> control: an offset committed by a pull. */
struct rmq_offset_commit {
    uint32_t group_id;
    uint32_t queue_slot;
    int64_t offset;
};

/* An ask: a record in the inbox of an answerer (MPSC). Payload follows, the record is padded to 8 bytes.
 * `length` is claimed negative and stored positive last; a dead writer's claim is unblocked. */
struct rmq_inbox_record {
    int32_t length;              /* header + payload, unpadded; < 0: being written; then abs() is the claim */
    uint16_t type;               /* RMQ_INBOX_*; RMQ_INBOX_PAD fills the end of the ring */
    uint16_t role;               /* of the asker */
    uint32_t role_generation;
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* the asker's token, which the answer echoes; RMQ_NONE: the ask needs no answer */
    uint32_t frame_length;       /* COLD_FRAME: whole frame; the payload may hold less of it (send bodies) */
    uint16_t peer_port;
    uint8_t peer_v6;
    uint8_t listener;            /* 0 main, 1 VIP port */
    uint8_t peer_host[16];
    uint64_t received_mono_ns;   /* time at which the asker was asked itself; 0: unknown, the ask is never void */
};
#define RMQ_INBOX_PAD 0
#define RMQ_INBOX_COLD_FRAME 1   /* payload: frame from its 4-byte length on */
#define RMQ_INBOX_CLOSED 2       /* the connection had sent cold frames and is gone */
#define RMQ_INBOX_DROPPED 3      /* unblocked: its writer died */
#define RMQ_INBOX_HA 4           /* ha -> control: one JSON object (ha/control_messages.py) */
#define RMQ_INBOX_QUEUE 5        /* a slave's dispatch -> control: pending = queue id, payload = topic of a queue that is in no table;
                                  * frame_length 1: its records hold inner batches */
#define RMQ_INBOX_JUNK 6         /* payload: at most RMQ_JUNK_BYTES that are no frame; the connection is closed */
#define RMQ_INBOX_TOPICS 7       /* a service -> control: {"topics": [...]}, the topics to make if they are missing. Answer:
                                  * empty once the plane has them, else the reason */
#define RMQ_INBOX_CHECK 8        /* a service -> control: length of a producer group as u16, big-endian; the group; a oneway request,
                                  * for one client of the group. Answer: empty once it is on its way, else the reason */
#define RMQ_INBOX_RETRY 9        /* a service -> control: {"group", "unitMode", "dead"}: the group, its retry topic and, if `dead`,
                                  * its dead letter topic, to make what is missing. Answer: empty once the plane has what a client
                                  * may make, else the reason */
#define RMQ_INBOX_OFFSETS 10     /* a service -> control: {"group": ..., "offsets": {topic: offset of its queue 0}}, to be committed.
                                  * Answer: empty, or the reason of a refusal */
#define RMQ_INBOX_UNSENT 11      /* a reader -> an answerer: struct rmq_unsent */
#define RMQ_INBOX_HELD 12        /* struct rmq_asked_again and an ask that a dead answerer has held: it is asked once more */
#define RMQ_INBOX_POP 13         /* pop -> control: {"group", "topics": [...]}: the group, and topics of one queue that it needs: of
                                  * POP's retries, or of dead letters. Answer as of RETRY; a group without a consumer offset of a
                                  * topic gets 0 */
#define RMQ_INBOX_RESET 14       /* control -> a service that holds messages of groups: {"group", "topic", "offsets": {queue id: consumer
                                  * offset}, "untilNs"}: these queues begin anew there. Without offsets: does it serve? Answer: empty,
                                  * else the reason why nothing has changed. Behind untilNs (monotonic) nothing may change */
#define RMQ_INBOX_DELETED 15     /* control -> such a service: {"topics": [...], "groups": [...]} are deleted. Answer: empty, once it
                                  * holds nothing of them */
#define RMQ_INBOX_LEAVE 16       /* control -> such a service: {"group", "topic", "untilNs"}: members of the group pull the topic from
                                  * now on. Answer: empty, once the consumer offsets lie behind all messages that were given, else
                                  * the reason why nothing has changed. Behind untilNs (monotonic) nothing may change */
#define RMQ_INBOX_REPLY 17       /* a service -> control: length of a client id as u16, big-endian; the id; a request for that client.
                                  * Answer: empty once the client has answered 0, else the reason; within 10 s */
#define RMQ_JUNK_BYTES 16

/* An answer (answerer -> asker). Payload follows, padded to 8 bytes. */
struct rmq_verdict {
    uint32_t length;             /* header + payload, unpadded */
    uint16_t type;               /* RMQ_VERDICT_* */
    uint16_t last;               /* SEND: 1 = the frame ends with this chunk */
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* of the ask; RMQ_NONE for frames that the answerer sends on its own; HELD: the slot */
    uint32_t asker_generation;
    uint32_t answerer_generation; /* of its role: rmq_verdict_put */
    uint32_t serial;             /* the answerer's own number of the answer, which UNSENT names; HOLD and HELD: of the poll */
    uint16_t rule;               /* REDO: RMQ_REDO_* */
    uint16_t flags;              /* RMQ_VERDICT_TELLS, _HELD */
    uint32_t reserved;
};
#define RMQ_VERDICT_PAD 0
#define RMQ_VERDICT_SEND 1       /* payload: bytes for the connection; with last, `pending` is released */
#define RMQ_VERDICT_REDO 2       /* run the kept frame again, by `rule`: the reason it was cold is gone */
#define RMQ_VERDICT_DROP 3       /* oneway: release `pending`, nothing to send */
#define RMQ_VERDICT_CLOSE 4      /* close the connection */
#define RMQ_VERDICT_RECORDS 6    /* payload: struct rmq_records_head. One frame, part of which lies in the log; releases `pending` */
#define RMQ_VERDICT_HOLD 7       /* payload: struct rmq_hold, the ask, a frame. The ask waits in a slot; releases `pending` */
#define RMQ_VERDICT_PAYLOAD 5    /* to an asker without connections. payload: as both roles have agreed */

#define RMQ_VERDICT_TELLS 1      /* of `flags`, SEND with `last` and RECORDS: the answerer is told (UNSENT) if the answer is dropped */

#define RMQ_VERDICT_HELD 2       /* of `flags`: it is for a held poll. SEND with `last`, RECORDS, DROP, CLOSE end it; REDO: ask again */

/* The payload of HOLD begins with it. The ask as it was in the inbox, and the frame that answers it at the deadline, follow. The
 * reader gives that answer itself RMQ_HELD_GRACE_MS behind the deadline, if it still holds the poll. A poll whose slot is taken by
 * a new one is answered likewise. The reader may refuse to hold: then it answers at once, and UNSENT says so whether the verdict
 * tells or not. */
struct rmq_hold {
    uint32_t slot;               /* of the answerer's choice, one for each reader and poll: below RMQ_HELD_SLOTS */
    uint32_t ask_bytes;
    uint32_t answer_bytes;
    uint32_t reserved;
    int64_t deadline_ns;         /* of the monotonic clock */
};
#define RMQ_HELD_SLOTS 65536
#define RMQ_HELD_GRACE_MS 200

/* The payload of RMQ_INBOX_HELD begins with it. */
struct rmq_asked_again {
    int64_t deadline_ns;
};

/* The payload of UNSENT, reader -> answerer: an answer of which the client has received no byte. Head: connection and token of the
 * verdict. */
struct rmq_unsent {
    uint32_t answerer_generation; /* of the verdict, and so on */
    uint32_t asker_generation;   /* older than the one of the record: a read worker has died with the answer in its ring */
    uint32_t serial;
    uint16_t flags;
    uint16_t reason;             /* RMQ_UNSENT_* */
};
#define RMQ_UNSENT_GONE 1        /* the connection is closed, or the request needs no answer */
#define RMQ_UNSENT_STALE 2       /* the ask was given up or answered, or the reader is another one */
#define RMQ_UNSENT_RECORD 3      /* a record cannot be sent any more; the client has the other answer */
#define RMQ_UNSENT_BOUNDS 4      /* it exceeds the bounds of a pull; the client has the other answer */
#define RMQ_UNSENT_FULL 5        /* HOLD: the reader holds no more polls; the client has the answer of the deadline */

/* Rules of REDO (reader/redo_rules.c). */
#define RMQ_REDO_UNCHANGED 0
#define RMQ_REDO_DEAD_LETTER 1     /* a send to a retry topic goes to the group's dead letter topic instead */
#define RMQ_REDO_RULES 2

/* The payload of RECORDS: this head; the pieces of the frame, in their order; the bytes of those that are INLINE; another frame,
 * which the client gets instead if a record cannot be sent (retention has taken it, or the bounds of a pull are exceeded). */
struct rmq_records_head {
    uint32_t piece_count;        /* 1..RMQ_RECORD_PIECES_MAX */
    uint32_t fallback_bytes;     /* of the other frame */
};
/* The first piece is INLINE, because a frame begins with its length, which is that of all pieces less 4. */
struct rmq_record_piece {
    uint64_t position;           /* in the log, below the confirm offset: of whole records in one of its files, or of a record's body;
                                  * or RMQ_RECORD_INLINE */
    uint32_t size;
    uint32_t messages;           /* records in it, 1 for a body; 0: INLINE */
};
#define RMQ_RECORD_INLINE 0xffffffffffffffffull
#define RMQ_RECORD_PIECES_MAX 512

#define RMQ_ANSWERERS_MAX 8
#define RMQ_ANSWERER_CODES_MAX 30
#define RMQ_CONTROL_ANSWERER 0u   /* the first row: it gets the codes that no other row names */
#define RMQ_COLD_BODY_BYTES_MAX 4194304 /* of a frame that a read worker brings to an answerer */
#define RMQ_COLD_HEADER_BYTES_MAX 262144 /* properties have 32 KiB; JSON may write six characters for one */
/* Of a header with many, nested or odd fields for another answerer than control. Services decode them in Python, each some 1 us, and
 * no request to them needs one. */
#define RMQ_UNUSUAL_HEADER_BYTES_MAX 16384
/* That an ask waits for an answerer which is not serving. Clients wait 3 s by default. The Go client 2.1.2 keeps a message
 * whose send-back times out, and loses one whose send-back is refused, so a refusal must come later than that. */
#define RMQ_ASK_TIMEOUT_MS 4000

/* A row of the table of answerers. */
struct rmq_answerer {
    uint32_t role;               /* supervisor, once */
    uint32_t code_count;
    int32_t codes[RMQ_ANSWERER_CODES_MAX]; /* supervisor, once: requests of clients that read workers bring to it */
    uint64_t consumed_to;        /* answerer: end of the last record that it gave up, before that leaves the inbox */
    uint64_t start_position;     /* answerer, at its start: asks before it were its predecessor's */
    int64_t serving_since_ns;    /* answerer, at its start: an ask whose time was over by then is void */
    uint32_t start_generation;   /* answerer: of its role, behind the two words */
    uint32_t cold_max;           /* supervisor, once: requests of one read worker that it may have at a time; 0: an eighth of the
                                  * reader's pending entries, for control the half, which is the most */
    uint8_t pad[32];
    struct rmq_ring inbox;       /* byte ring of rmq_inbox_record: askers -> answerer */
    struct rmq_ring answers[RMQ_ROLES_MAX]; /* byte rings of rmq_verdict: answerer -> asker of that role; capacity 0: it never asks */
};

struct rmq_asks {
    uint32_t count;              /* rows in use, from the first on */
    uint8_t pad[60];
    struct rmq_answerer answerer[RMQ_ANSWERERS_MAX];
};

/* A row as the supervisor fills it. */
struct rmq_answerer_plan {
    uint64_t askers;             /* bit r: the role r asks it */
    uint32_t role;
    uint32_t inbox_bytes, answer_bytes; /* powers of two */
    uint32_t code_count;
    int32_t codes[RMQ_ANSWERER_CODES_MAX];
    uint32_t cold_max;
};
/* cdef-end */

_Static_assert(RMQ_ROLES_MAX <= 64, "askers has a bit for each role");
_Static_assert(sizeof(struct rmq_inbox_record) == 56, "inbox record");
_Static_assert(sizeof(struct rmq_verdict) == 40 && sizeof(struct rmq_unsent) == 16 && sizeof(struct rmq_hold) == 24, "verdict");
_Static_assert(sizeof(struct rmq_records_head) == 8 && sizeof(struct rmq_record_piece) == 16, "records");
_Static_assert(sizeof(struct rmq_answerer) % 64 == 0 && offsetof(struct rmq_answerer, inbox) % 64 == 0, "answerer");
#endif
