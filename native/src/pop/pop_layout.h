/* pop_layout.h: the memory of POP: what consumers hold of each queue.
 *
 * A window is what one group holds of one queue. `next_offset` is where the next pop reads on. Below it, every message is done
 * unless an entry names it. An entry is one pop of one queue: up to 64 queue offsets from `base_offset` on. Bit i of `present`:
 * the consumer was given base_offset + i. Bit i of `acked`: that message is done.
 *
 * The memory is a header page, pages of windows, of batches of orderly groups, of entries (rmq_pop_layout says where). It holds no pointer and no
 * number of a plane, so it outlives both. One process writes it, the worker `pop`. A death between any two stores leaves it
 * usable. [name] is the crash point (RMQ_CRASH) that stands there:
 *
 *   - A window counts once its `id` is stored [pop-window-filled, pop-window-made]. It ends by the store of 0 [pop-window-ended]; a
 *     start frees entries without a window [pop-start-freed].
 *   - A window that counts says that no mark has its id [pop-window-unmarked], until its first message is due [pop-window-marked].
 *     Without that word the id is not given again.
 *   - An entry counts once its `state` is not FREE. All other fields are stored before [pop-entry-filled]. FREE is stored to give it
 *     up [pop-entry-freed]. A change of the state is one store [pop-entry-turned].
 *   - A pop publishes its entries [pop-entry-published], then moves `next_offset` [pop-next-offset], then notes its time
 *     [pop-time-noted]. A start finds entries at or above `next_offset`: no consumer has got an answer with them. All of them are
 *     RETURNED then [pop-start-returned], before `next_offset` moves behind them.
 *   - An acknowledgement is one store to `acked` [pop-acked].
 *   - A message moves to a new entry when its invisible time changes, or when it is given again. The new entry is MOVING until the
 *     message is done in the old one [pop-move-old-done], and OPEN then [pop-changed, pop-given-again]. A start that finds it open in
 *     both leaves it to the old one, whose receipt the consumer has [pop-start-move-done, pop-start-moved].
 *   - A late acknowledgement stores `acked` [pop-acked], then `copied` [pop-copy-withdrawn]. If only the first is there, the copy
 *     comes, because no consumer has an answer.
 *   - A flushed copy stores `acked` of messages whose copies were popped [pop-flush-acked], then `copied` of the others
 *     [pop-flush-copied]. A start reads marks again from `copies_from` on. It has REVIVED what was without open messages
 *     [pop-start-revived].
 *   - A message is done with its copy: `acked`, then `copied` is cleared [pop-seen-acked, pop-seen-copied; pop-record-gone,
 *     pop-copy-gone]. With both bits it counts as withdrawn, and no copy comes.
 *   - A copy that was not stored may count an attempt [pop-copy-attempted], then clears `copied` of a withdrawn message
 *     [pop-copy-missed]. A start copies again what is open.
 *   - A check point of open messages goes into the log: IN_LOG of their entries is stored before [pop-entry-in-log]. With the bit
 *     and without the record, acknowledgements have records that a RocketMQ broker passes over.
 *   - A queue that was cut: its messages are done [pop-clamp-acked], they have no copies [pop-clamp-copied], and `next_offset` moves
 *     last [pop-clamp-next-offset]. The next start cuts as long as it has not moved.
 *   - A log that was cut: an entry is REVIVING [pop-cut-reviving] before its copies are forgotten [pop-cut-copied]. The cut is made
 *     again by a start.
 *   - A report of the consumer offset: `committed` [pop-offset-committed], then `reported_start` [pop-offset-reported]. It is made
 *     again without the second.
 *   - A damaged window ends alone [pop-start-window]. All windows end for a damaged entry, before it is freed.
 *   - A batch of an orderly group is filled [pop-order-filled], and counts once `order` of its window names it [pop-order-given].
 *     That ends the batch before it. No consumer has received it until its answer leaves: one store [pop-order-shown],
 *     directly before the answer. `next_offset` stays below the batch until its messages are acknowledged: the bit
 *     [pop-order-acked], then `next_offset`, which a start does again. A new time of a message is one store [pop-order-changed], and so is the word that no
 *     consumer has received the batch [pop-order-returned]. A batch ends by the store of 0 to `order`: when another one needs its
 *     slot [pop-order-ended], when the queue is cut below it [pop-clamp-order], or if it is damaged [pop-start-order]. Nothing is
 *     lost with it: the next pop begins at `next_offset`.
 *   - Marks of pages: pop_pages.h.
 */
#ifndef RMQ_POP_LAYOUT_H
#define RMQ_POP_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_POP_PAGE_BYTES 4096
#define RMQ_POP_MAGIC 0x31504f50514d5252ull
#define RMQ_POP_VERSION 2     /* 2: batches of orderly groups. Memory of another version is not used */
#define RMQ_POP_ENTRY_MESSAGES 64
#define RMQ_POP_WINDOW_IDS 1048576   /* a mark has 20 bits for a window; id 0 is never used */
#define RMQ_POP_SPAN_MAX 131072      /* offsets of one pop, from its start offset on */
#define RMQ_POP_INVISIBLE_MS_MAX 2592000000 /* 30 days */
#define RMQ_POP_ORDER_MESSAGES 32    /* of a batch: as many as an answer has */
#define RMQ_POP_ORDERS_MAX 65536     /* batches: a new one takes the place of one that blocks no queue */
#define RMQ_POP_ATTEMPT_BYTES_MAX 128

#define RMQ_POP_FREE 0
#define RMQ_POP_OPEN 1       /* a consumer has the messages until pop_time_ms + invisible_ms */
#define RMQ_POP_REVIVING 2   /* their time is over: copies are on their way to the retry topic, or not yet flushed */
#define RMQ_POP_REVIVED 3    /* no message is open. Copies wait in the retry topic, and an acknowledgement still withdraws one */
#define RMQ_POP_RETURNED 4   /* no consumer has received them: the next pop of the queue begins with them */
#define RMQ_POP_MOVING 5     /* an old entry may still have them. It counts as OPEN */

#define RMQ_POP_CHANGED 0x8000 /* bit of revive_queue: a change of the invisible time has made the entry, and no pop */
#define RMQ_POP_IN_LOG 0x80    /* bit of attempts: the log has a check point of the messages, which a RocketMQ broker would read */
#define RMQ_POP_ATTEMPTS_MAX 127

struct rmq_pop_entry {
    uint64_t base_offset;    /*  0 */
    uint64_t present;        /*  8 */
    uint64_t acked;          /* 16 */
    int64_t pop_time_ms;     /* 24 of the wall clock, as in the receipt */
    uint32_t invisible_ms;   /* 32 */
    uint32_t start_delta;    /* 36 base_offset less the start offset of the receipt */
    uint64_t copied;         /* 40 REVIVING, REVIVED. Bit i alone: a flushed copy waits in the retry topic. With bit i of `acked`:
                              * the acknowledgement was late, and a copy is passed over */
    uint32_t window;         /* 48 id */
    uint32_t client;         /* 52 hash of the connection that popped, 0 = unknown */
    uint16_t revive_queue;   /* 56 of the receipt; the highest bit is RMQ_POP_CHANGED */
    uint8_t state;           /* 58 */
    uint8_t attempts;        /* 59 to store the copies, that failed for a cause of the message's own; the highest bit is RMQ_POP_IN_LOG */
    uint32_t check;          /* 60 CRC-32 of 0..15, 24..39, 48..57; never 0. `present` never changes while an entry lives */
};

struct rmq_pop_window {
    uint32_t id;             /*  0 0 = unused. Stored last */
    uint32_t queue_id;       /*  4 */
    uint64_t birth;          /*  8 log offset from which the topic is the one of its name (ringmqTopicBirths.json), 0 = unknown */
    int64_t next_offset;     /* 16 */
    int64_t committed;       /* 24 the consumer offset that the worker reported last; -1 = none */
    int64_t last_pop_ms;     /* 32 of the wall clock */
    uint32_t check;          /* 40 CRC-32 of id, queue_id, birth; never 0 */
    uint32_t order;          /* 44 slot of the orderly group's batch, plus 1; 0 = none */
    uint64_t reported_start; /* 48 start_id of the plane whose table of offsets was told of `committed`; another one may be older */
    uint64_t unmarked_start; /* 56 start_id of the plane in which the id was given: no copy in the log has it. 0 = one may have.
                              * Another start_id counts as 0: a build that does not know this word may have run meanwhile */
};

/* The messages of a queue that a consumer of an orderly group got with one pop. They lie at or above next_offset of the window but
 * for those that are done. */
struct rmq_pop_order {
    uint64_t base_offset;    /*  0 of the first message */
    int64_t pop_time_ms;     /*  8 of the wall clock, as in the receipts */
    uint32_t window;         /* 16 id */
    uint32_t invisible_ms;   /* 20 */
    uint32_t start_delta;    /* 24 base_offset less the start offset of the receipts */
    uint16_t count;          /* 28 of messages */
    uint16_t attempt_bytes;  /* 30 0: the pop has named no attempt */
    uint32_t acked;          /* 32 bit i: message i is done */
    uint32_t returned;       /* 36 1: no consumer has received the batch, or not yet */
    uint32_t check;          /* 40 CRC-32 of 0..31, 48..175, 304..495; never 0 */
    uint32_t client;         /* 44 hash of the connection that popped, 0 = unknown */
    uint32_t deltas[RMQ_POP_ORDER_MESSAGES];     /*  48 offsets less base_offset, ascending */
    uint32_t visible_ms[RMQ_POP_ORDER_MESSAGES]; /* 176 behind the pop: the queue is blocked until then, or until the message is done */
    uint16_t consumed[RMQ_POP_ORDER_MESSAGES];   /* 304 pops that gave the message before; 65535: or more */
    uint8_t attempt[RMQ_POP_ATTEMPT_BYTES_MAX];  /* 368 */
    uint64_t reserved1[2];
};

/* The log at a snapshot. The memory says nothing of a log with other bytes. */
struct rmq_pop_log_place {
    uint64_t flushed_offset, end_offset;      /* flushed and append watermark */
    uint32_t flushed_bytes, flushed_crc;      /* CRC-32 of so many bytes of the log before flushed_offset, */
    uint32_t end_bytes, end_crc;              /* and of those before end_offset, which a power cut may take */
};

struct rmq_pop_header {
    uint64_t magic;          /*   0 stored last, when the memory is made */
    uint32_t version, windows_max;
    uint64_t entries_max;    /*  16 */
    uint64_t store_id;       /*  24 drawn when pop/ is made: a segment of another store is not used */
    uint64_t snapshot;       /*  32 number of the last snapshot that was begun. Its place is places[snapshot % 2], stored before */
    uint64_t copies_from;    /*  40 every copy that lies below it in the log is in the entries */
    uint64_t start_id;       /*  48 of the plane whose start has compared the memory with the log */
    uint64_t marks_from;     /*  56 marks of copies that lie below it in the log name other windows: ids were given anew */
    uint32_t page_bytes;     /*  64 */
    uint32_t clean;          /*  68 1 = the worker ended, and nothing has changed since */
    uint32_t failed_errno;   /*  72 a snapshot could not be written: no process tries again. 0 = none */
    uint32_t used_entries;   /*  76 of a snapshot: entries in use, plus 1. 0 = unknown. Nothing else tells of a page that is lost */
    struct rmq_pop_log_place places[2]; /* 80 */
    uint32_t check;          /* 144 of a snapshot: CRC-32 of the bytes before. Files alone have to agree with it */
    uint32_t reserved1;
};

/* Places of the parts, in bytes from the start. */
struct rmq_pop_layout {
    uint64_t windows_at, orders_at, entries_at, bytes;
    uint64_t mapped_bytes;   /* with a byte for each page behind it (pop_pages.h) */
    uint32_t windows_max, entries_max;
    uint32_t orders_max, reserved;
};
struct rmq_pop_layout rmq_pop_layout_of(uint32_t windows_max, uint32_t entries_max);
/* cdef-end */

_Static_assert(sizeof(struct rmq_pop_entry) == 64 && offsetof(struct rmq_pop_entry, check) == 60, "entry");
_Static_assert(sizeof(struct rmq_pop_window) == 64, "window");
_Static_assert(sizeof(struct rmq_pop_order) == 512 && offsetof(struct rmq_pop_order, attempt) == 368, "order");
_Static_assert(sizeof(struct rmq_pop_header) == 152 && offsetof(struct rmq_pop_header, places) == 80, "header");
#endif
