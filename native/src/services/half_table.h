/* half_table.h: the table of open half messages: 40 bytes each, in one piece of memory. `ringmq.services.transactions.half_table`
 * owns it. Twin of the reading: `half_record` of `ringmq.services.transactions.records`.
 *
 * Rows are in the order of `first`. New halves have the largest one, so a look-up is a binary search. A start stages all records of
 * the half queue, in the order of the queue, and settles them: then the rows are in order, one for each open half.
 */
#ifndef RMQ_HALF_TABLE_H
#define RMQ_HALF_TABLE_H

#include "admission/half_shares.h"
#include "queue/queue_reader.h"

/* cdef-begin */
/* States of a half in the table. */
#define RMQ_HALF_ENDED 0
#define RMQ_HALF_OPEN 1
#define RMQ_HALF_SENT 2          /* in a chain of transaction_ends.h */
#define RMQ_HALF_HELD 3          /* Python works on it */
#define RMQ_HALF_REPLACED 4      /* while staged rows are settled: an older copy of an open half, that no op record lists */

#define RMQ_HALF_NO_IMMUNITY -1

struct rmq_half_row {
    int64_t first;               /* half-queue offset of the producer's message: it names the transaction */
    int64_t newest;              /* half-queue offset of its newest copy */
    int64_t born_ms;
    int32_t immunity_s;          /* CHECK_IMMUNITY_TIME_IN_SECONDS, or RMQ_HALF_NO_IMMUNITY */
    uint16_t checks;
    uint8_t state;               /* RMQ_HALF_* */
    uint8_t is_stock_copy;       /* a copy of a stock broker, which does not name its first half */
    struct rmq_half_keys keys;
};

struct rmq_half_table {
    struct rmq_half_row *rows;   /* of malloc */
    uint64_t count, capacity;
    uint64_t open;               /* rows that have not ended */
    uint64_t stock_copies;       /* staged */
    uint32_t role;               /* of the marks of copies */
    uint32_t reserved;
    uint64_t secret[2];
    struct rmq_half_shares *shares; /* counts open rows; NULL: not counted, and while rows are staged */
};

/* The queue offsets [low, low + count) that op records list: done[offset - low] is 1. */
struct rmq_done_halves {
    int64_t low;
    uint64_t count;
    const uint8_t *done;
};

/* The `first` of a half message with these fields. A mark that names a later half is damaged, and counts as none. */
int64_t rmq_half_first(uint32_t role, int64_t prepared_transaction_offset, int64_t queue_offset);
/* Adds a row. 0, -EINVAL if its `first` is not the largest, -ENOMEM. */
int rmq_half_table_add(struct rmq_half_table *t, const struct rmq_half_row *row);
/* Adds the halves of producers among `count` records of the half queue; copies and damaged records are passed over.
 * As rmq_half_table_add. After an error the halves before it are in the table. */
int rmq_half_table_arrive(struct rmq_half_table *t, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                          uint32_t count);
/* Adds a row without order. 0 or -ENOMEM. A half of a producer that is done gets none. */
int rmq_half_table_stage_row(struct rmq_half_table *t, const struct rmq_half_row *row, const struct rmq_done_halves *done);
/* Stages the records, those of copies too. Queue offsets of damaged records go to `damaged`. Returns their number or -ENOMEM. */
int rmq_half_table_stage(struct rmq_half_table *t, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                         uint32_t count, const struct rmq_done_halves *done, int64_t *damaged);
/* Brings the staged rows into order, the last row of each half decides. Returns the number of REPLACED rows. */
uint64_t rmq_half_table_settle(struct rmq_half_table *t);
/* Takes the REPLACED rows out, and those that have ended. `newest` of each REPLACED one goes to `replaced`. */
void rmq_half_table_take_replaced(struct rmq_half_table *t, int64_t *replaced);
/* Counts all open rows in `shares`, in place of those that are counted there, and each change from now on. 0 or -ENOMEM. */
int rmq_half_table_share(struct rmq_half_table *t, struct rmq_half_shares *shares);
/* The place of an open half, -1 if it is not open; and of the first row with at least this `first`, `count` if there is none. */
int64_t rmq_half_table_place(const struct rmq_half_table *t, int64_t first);
uint64_t rmq_half_table_from(const struct rmq_half_table *t, int64_t first);
/* The half at this place has ended. */
void rmq_half_table_end(struct rmq_half_table *t, uint64_t place);
/* Takes the rows of ended halves out. */
void rmq_half_table_compact(struct rmq_half_table *t);
/* The smallest `newest` of an open half, -1 if none is open. */
int64_t rmq_half_table_lowest(const struct rmq_half_table *t);
void rmq_half_table_free(struct rmq_half_table *t);
/* cdef-end */

#endif
