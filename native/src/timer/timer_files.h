/* timer_files.h: TimerLog and TimerWheel as mapped files, which the worker `timer` alone writes. timer/timer_log.py and
 * timer/timer_wheel.py have the formats, timer/placement.py and timer/survey.py the same rules in Python.
 *
 * A unit is appended in four stores: its fields, its size, the last position of its slot, the count of its slot. A unit without
 * its size is none. A unit that its slot does not name yet is found by rmq_timer_scan.
 *
 * The reserved field of a unit, which stock writes as 0 and does not read, holds a seal: a checksum of the other fields. A unit with
 * a wrong seal is none. A start reads the log in order and learns the chain of each slot from it; the wheel is written for stock and
 * for metrics, and compared at the next start. So a unit that the disk has changed is known before its slot is delivered.
 */
#ifndef RMQ_TIMER_FILES_H
#define RMQ_TIMER_FILES_H

#include "plane/plane.h"

/* cdef-begin */
#define RMQ_TIMER_UNIT_BYTES 52
#define RMQ_TIMER_BLANK_BYTES 16
#define RMQ_TIMER_SLOTS 1209600
#define RMQ_TIMER_SLOT_BYTES 32
#define RMQ_TIMER_DEFAULT 1
#define RMQ_TIMER_ROLL 2
#define RMQ_TIMER_DELETE 4
#define RMQ_TIMER_NO_UNIT -1
#define RMQ_TIMER_TIME_MAX_MS 253402300799999 /* the end of the year 9999 */

/* A slot as the log has it: its last unit, and its messages less deletes. */
struct rmq_timer_chain {
    int64_t last;                /* RMQ_TIMER_NO_UNIT: it has lost its units */
    uint32_t round;              /* of the wheel, from 1 on; 0 = none */
    int32_t count;
};

struct rmq_timer_files {
    uint8_t *wheel;              /* the whole file */
    uint8_t *const *log;         /* the files from log_begin on, `file_count` of them, each of file_bytes */
    uint64_t file_bytes;
    uint64_t log_begin;          /* position of the first file */
    uint64_t log_end;            /* position behind the last unit */
    uint64_t log_room;           /* position up to which the newest file has blocks on disk */
    uint32_t file_count;
    uint32_t precision_ms;
    uint32_t window_slots;       /* timerRollWindowSlot */
    uint32_t coarsest_ms;        /* the largest precision that any waiting record was admitted by */
    const uint8_t *missing;      /* the first address whose page the disk could not give, NULL = none (timer_pages.h) */
    struct rmq_timer_chain *chains; /* RMQ_TIMER_SLOTS of them, in memory */
    uint64_t damaged;            /* position + 1 of the first unit that is not as it was written, 0 = none was met */
};

struct rmq_timer_unit {
    int64_t position;
    int64_t previous;            /* position of the previous unit of the slot, RMQ_TIMER_NO_UNIT for its first */
    int64_t enqueue_ms;
    int64_t slot_ms;
    int64_t commit_log_offset;
    uint32_t magic;
    int32_t size;                /* bytes of the record */
    int32_t topic_hash;
    uint32_t is_sealed;          /* 0: written by stock, or by a version without seals */
};

struct rmq_timer_place {
    int64_t slot_ms;
    uint32_t magic;
    uint32_t reserved;
};

/* The slot of a message that is due in the step behind out_ms, by the rule of timer/placement.py. write_ms: the store time of its record, on a step. */
struct rmq_timer_place rmq_timer_place(const struct rmq_timer_files *f, int64_t out_ms, int64_t write_ms, int64_t open_ms,
                                       uint32_t is_delete);
/* Appends the unit and makes it the last of its slot; fills position and previous. 0 = nothing was done: the newest file is full
 * (rmq_timer_is_full) or has no more blocks. */
int rmq_timer_append(struct rmq_timer_files *f, struct rmq_timer_unit *unit);
/* 1 = the newest file takes no more unit. It has its blank then, and log_end is the end of the file. */
int rmq_timer_is_full(struct rmq_timer_files *f);
/* The unit at a position. 0 = there is none. */
int rmq_timer_unit_at(const struct rmq_timer_files *f, int64_t position, struct rmq_timer_unit *unit);
/* The unit of a record, by the offset of the record: units of the log are in the order of their records. 0 = none is found. */
int rmq_timer_unit_of(const struct rmq_timer_files *f, int64_t commit_log_offset, struct rmq_timer_unit *unit);
/* Units are numbered over all files of the log. */
uint64_t rmq_timer_number(const struct rmq_timer_files *f, int64_t position);
int64_t rmq_timer_position(const struct rmq_timer_files *f, uint64_t number);
/* Position of the last unit of a slot, RMQ_TIMER_NO_UNIT without one. */
int64_t rmq_timer_last(const struct rmq_timer_files *f, int64_t slot_ms);
/* Count of the slot: messages less deletes. */
int32_t rmq_timer_count(const struct rmq_timer_files *f, int64_t slot_ms);
/* The precision of the wheel, by the time of the newest unit that a slot names, 0 if no slot has one. A change of precision by stock
 * leaves slots of the old one. */
uint32_t rmq_timer_wheel_precision(const struct rmq_timer_files *f);
/* The first slot with units in [from_ms, to_ms), -1 without one. */
int64_t rmq_timer_next_used(const struct rmq_timer_files *f, int64_t from_ms, int64_t to_ms);
/* A start reads the log in order, in pieces. */
struct rmq_timer_scan {
    int64_t begin;               /* of a file. Chains of slots from open_ms on have no unit before it. */
    int64_t sound_until;         /* units before it were on disk. Behind it the first bytes that are no unit are the end. */
    int64_t open_ms;
    uint64_t is_of_stock;        /* 1 = a stock broker had the wheel since: its recovery leaves counts of slots behind */
    int64_t position;            /* of the next unit; at the end the log's end */
    int64_t cut;                 /* the first unit of a slot from open_ms on whose chain leads to before the log's begin */
    uint64_t units;
    uint64_t unsealed;
    uint32_t is_over;
    uint32_t is_damaged;         /* 1 = the unit at `position`, before sound_until, is not as it was written */
};

/* Sets the fields behind is_of_stock. */
void rmq_timer_scan_begin(struct rmq_timer_scan *scan);
/* Reads at most `limit` units, and makes each the last one of its chain. The chains are zeros before. Sets log_end at the end. */
void rmq_timer_scan(struct rmq_timer_files *f, struct rmq_timer_scan *scan, uint64_t limit);

/* The wheel compared with the chains, behind a scan: slots from open_ms on. */
struct rmq_timer_wheel_check {
    uint32_t differs;            /* slots whose positions are not those of their chain, of units that were on disk */
    uint32_t miscounted;         /* others, whose count is not that of their chain, though no stock broker has written it */
    int64_t first_ms;            /* time of the first of both */
    int64_t lost;                /* last unit of a slot before the log's begin, RMQ_TIMER_NO_UNIT = none */
    int64_t contradicts;         /* a unit without a seal that belongs to another slot than the wheel says, or RMQ_TIMER_NO_UNIT */
};
/* `mends`: slots that differ are written again, also those that a death has left behind the log. */
void rmq_timer_check_wheel(struct rmq_timer_files *f, const struct rmq_timer_scan *scan, int mends,
                           struct rmq_timer_wheel_check *found);
/* Takes the last unit of the log off, and off its slot. */
void rmq_timer_drop_last(struct rmq_timer_files *f, const struct rmq_timer_unit *unit);
/* Times of the latest slots of units from `from` on, -1 without one. opened_ms: slots that were open when a unit came too late for
 * its own; such units have a delay of -1 ms, all other times are on steps. late_ms: slots that were due when the unit was written. */
void rmq_timer_latest(const struct rmq_timer_files *f, int64_t from, int64_t *opened_ms, int64_t *late_ms);
/* cdef-end */

_Static_assert(sizeof(struct rmq_timer_unit) == 56, "rmq_timer_unit");
#endif
