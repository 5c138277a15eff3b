/* pop_copy_records.h: copies of entries that are under way or not yet flushed: a record for each entry that has one. */
#ifndef RMQ_POP_COPY_RECORDS_H
#define RMQ_POP_COPY_RECORDS_H
#include <stdint.h>

#include "plane/tables_layout.h"

/* Bits are those of the entry. */
struct rmq_pop_record {
    uint32_t entry;
    uint32_t serial;             /* no other record had it for a long time; 0 = unused */
    uint32_t next;               /* of unused ones */
    uint32_t has_failed;
    uint64_t flying;             /* copies under way */
    uint64_t stored;             /* and not flushed */
    uint64_t seen;               /* a pop has passed the copy */
    int64_t due_ms;              /* of the messages whose copies have failed */
};

struct rmq_pop_stored {
    uint32_t record, serial;
    uint64_t bits;
    uint64_t end;                /* of the copy, in the log */
};

/* The stored copies stand in the order of the log, so a flush takes those before it, and no other. */
struct rmq_pop_copy_records {
    struct rmq_pop_record *all;
    uint32_t max, free, serial;
    struct rmq_pop_stored *stored; /* a ring of stored_max, a power of two */
    uint64_t stored_from, stored_to, stored_max;
};

/* 1, or 0: there is no memory for one more record and one more stored copy. */
int rmq_pop_copy_records_ready(struct rmq_pop_copy_records *records);
/* After rmq_pop_copy_records_ready. Returns its number. */
uint32_t rmq_pop_record_make(struct rmq_pop_copy_records *records, uint32_t entry, uint64_t flying);
void rmq_pop_record_drop(struct rmq_pop_copy_records *records, uint32_t number);
/* After rmq_pop_copy_records_ready. A copy is stored up to `end`. */
void rmq_pop_record_store(struct rmq_pop_copy_records *records, uint32_t number, uint64_t bit, uint64_t end);
/* The next record with copies below `flushed`, and their bits, which are stored no longer. RMQ_NONE: there is none. */
uint32_t rmq_pop_record_flush(struct rmq_pop_copy_records *records, uint64_t flushed, uint64_t *bits);
#endif
