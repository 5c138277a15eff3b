/* timer_files.h: TimerLog and TimerWheel as mapped files, which the worker `timer` alone writes. timer/timer_log.py and
 * timer/timer_wheel.py have the formats, timer/placement.py and timer/survey.py the same rules in Python.
 *
 * A unit is appended in four stores: its fields, its size, the last position of its slot, the count of its slot. A unit without
 * its size is none. A unit that its slot does not name yet is found by rmq_timer_revise.
 */
#ifndef RMQ_TIMER_FILES_H
#define RMQ_TIMER_FILES_H

#include "plane.h"

/* cdef-begin */
#define RMQ_TIMER_UNIT_BYTES 52
#define RMQ_TIMER_BLANK_BYTES 16
#define RMQ_TIMER_SLOTS 1209600
#define RMQ_TIMER_SLOT_BYTES 32
#define RMQ_TIMER_DEFAULT 1
#define RMQ_TIMER_ROLL 2
#define RMQ_TIMER_DELETE 4
#define RMQ_TIMER_NO_UNIT -1

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
    uint32_t reserved;
    const uint8_t *missing;      /* the first address whose page the disk could not give, NULL = none (timer_pages.h) */
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
    uint32_t reserved;
};

struct rmq_timer_place {
    int64_t slot_ms;
    uint32_t magic;
    uint32_t reserved;
};

/* The slot of a message, by the rule of timer/placement.py. write_ms: the store time of its record, on a step. */
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
/* The first slot with units in [from_ms, to_ms), -1 without one. */
int64_t rmq_timer_next_used(const struct rmq_timer_files *f, int64_t from_ms, int64_t to_ms);
/* Finds the end of the log from a file's begin on, and sets log_end. Each unit becomes the last one of its slot, the first one if
 * the slot had another time (TimerMessageStore.recoverAndRevise). Returns the position of the last unit, RMQ_TIMER_NO_UNIT. */
int64_t rmq_timer_revise(struct rmq_timer_files *f, int64_t from);
/* Takes the last unit of the log off, and off its slot. */
void rmq_timer_drop_last(struct rmq_timer_files *f, const struct rmq_timer_unit *unit);
/* Slots whose units lie behind the end of the log go back to their newest unit before it. Returns how many went. A power cut may
 * leave a wheel that is newer than the log. */
uint32_t rmq_timer_cut_slots(struct rmq_timer_files *f);
/* Times of the latest slots of units from `from` on, -1 without one. opened_ms: slots that were open when a unit came too late for
 * its own; such units have a delay of -1 ms, all other times are on steps. late_ms: slots that were due when the unit was written. */
void rmq_timer_latest(const struct rmq_timer_files *f, int64_t from, int64_t *opened_ms, int64_t *late_ms);
/* cdef-end */

_Static_assert(sizeof(struct rmq_timer_unit) == 56, "rmq_timer_unit");
#endif
