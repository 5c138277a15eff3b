/* pop_windows.h: what consumers hold of each queue, decided. pop_layout.h has the memory.
 *
 * One thread calls. Nothing here reads a clock, a queue, or the log. Twin: ringmq/pop/window_twin.py.
 *
 * A window has a place, the index of its slot, as long as it lives. Results of copies name the window by its id, as marks do: the
 * window may have ended meanwhile, and another one may have its place.
 */
#ifndef RMQ_POP_WINDOWS_H
#define RMQ_POP_WINDOWS_H
#include <stdint.h>

#include "pop/pop_layout.h"
#include "pop/pop_pages.h"

/* cdef-begin */
struct rmq_pop_windows;

struct rmq_pop_counts {
    uint32_t windows, entries;
    uint64_t open;               /* messages that are not done */
    uint64_t returned;           /* of them: in RETURNED entries */
    uint64_t reviving, revived;  /* entries */
    uint32_t orders;             /* batches of orderly groups, with those that block no queue */
};

/* Reads the memory, and makes hashes of receipts and of offsets, due times. NULL = no memory.
 * `now_ms`: wall clock, `mono_ms`: monotonic. An entry is due at the latest one invisible time later, whatever the wall clock says.
 * Damaged slots (neither empty nor valid) are counted in *damaged and emptied. After a damaged entry all windows end, because no
 * other part of the memory tells which messages it named: the next pops begin at the consumer offsets. */
struct rmq_pop_windows *rmq_pop_windows_open(struct rmq_pop_pages *pages, struct rmq_pop_layout layout, int64_t now_ms,
                                             int64_t mono_ms, uint64_t *damaged);
void rmq_pop_windows_close(struct rmq_pop_windows *w);
const struct rmq_pop_counts *rmq_pop_counts_of(const struct rmq_pop_windows *w);

/* 0, -EINVAL for an id that is 0, too large or in use, -ENOSPC: no slot is free. */
int rmq_pop_window_make(struct rmq_pop_windows *w, uint32_t id, uint32_t queue_id, uint64_t birth, int64_t next_offset, uint32_t *place);
/* Ends the window and its entries. Returns their number, 0 if no window is there. */
uint32_t rmq_pop_window_drop(struct rmq_pop_windows *w, uint32_t place);
uint32_t rmq_pop_window_place(struct rmq_pop_windows *w, uint32_t id); /* RMQ_NONE: there is none */
/* To read. NULL: no window is there. */
const struct rmq_pop_window *rmq_pop_window_at(struct rmq_pop_windows *w, uint32_t place);
/* Lowest queue offset that is not done: of an entry, else next_offset. Across a gap of some 100,000 offsets it takes several calls,
 * and is too low until then. */
int64_t rmq_pop_first_open(struct rmq_pop_windows *w, uint32_t place);
/* The same of messages that are not below `from`. */
int64_t rmq_pop_first_open_from(struct rmq_pop_windows *w, uint32_t place, int64_t from);
uint32_t rmq_pop_open_messages(struct rmq_pop_windows *w, uint32_t place);
uint32_t rmq_pop_held_messages(struct rmq_pop_windows *w, uint32_t place); /* of them: not returned, so consumers have them */
uint32_t rmq_pop_entries_of(const struct rmq_pop_windows *w, uint32_t place);
/* Moves next_offset forward over messages that no filter of the group wants, or that are deleted. */
void rmq_pop_skip_to(struct rmq_pop_windows *w, uint32_t place, int64_t next_offset);
/* Keeps the consumer offset that the table of this plane has, or gets by a report. */
void rmq_pop_set_committed(struct rmq_pop_windows *w, uint32_t place, int64_t committed, uint64_t start_id);

/* No mark in the log has the window's id, which is new in this plane. The first due message of the window ends that. */
void rmq_pop_set_unmarked(struct rmq_pop_windows *w, uint32_t place, uint64_t start_id);

/* A pop of one queue. */
struct rmq_pop_give {
    int64_t pop_time_ms;     /* of the wall clock. rmq_pop_time_for makes the receipt unique */
    int64_t mono_ms;         /* the same moment of the monotonic clock */
    int64_t start_offset;    /* of the receipts; at most the first offset, and less than 2^32 below it */
    int64_t next_offset;     /* behind the last unit that was looked at */
    uint32_t invisible_ms;   /* at most RMQ_POP_INVISIBLE_MS_MAX */
    uint32_t client;
    uint16_t revive_queue;
    uint16_t in_log;         /* 1 = the log has a check point of the messages */
};
/* The first pop time from `pop_time_ms` on at which none of the windows has a pop with that start offset. */
int64_t rmq_pop_time_for(struct rmq_pop_windows *w, const uint32_t *places, const int64_t *starts, uint32_t count, int64_t pop_time_ms);
/* Entries for these queue offsets (ascending from next_offset of the window on, at least one), then next_offset. REVIVED entries give
 * way. 0, or -ENOSPC: no entry is free, nothing changed. */
int rmq_pop_window_give(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const int64_t *offsets, uint32_t count);
/* Offsets that were returned, at most `room`, ascending, less than RMQ_POP_SPAN_MAX behind the first; they stay returned until
 * `give_again`. A copy among them was taken before: rmq_pop_take_copy is not asked again. */
uint32_t rmq_pop_returned(struct rmq_pop_windows *w, uint32_t place, int64_t *offsets, uint32_t room);
/* The same as give for offsets of rmq_pop_returned: next_offset stays. Start offset: the first of them. */
int rmq_pop_give_again(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const int64_t *offsets, uint32_t count);

/* No pop begins with what was returned before this offset: these messages get copies in the retry topic now. */
void rmq_pop_leave_returned(struct rmq_pop_windows *w, uint32_t place, int64_t before);

#define RMQ_POP_DONE 1       /* the message is done by this call */
#define RMQ_POP_KNOWN 2      /* it was before, or the pop did not give it */
#define RMQ_POP_UNKNOWN 3    /* no entry has this receipt */
/* Acknowledges offset + i for each bit i of `bits`: `offset` is a message's own, or of a word of a bit map. Returns RMQ_POP_*;
 * *done: messages that are done by it. */
int rmq_pop_ack(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset, uint64_t bits,
                uint32_t *done);
/* Gives one message another time: an entry of its own (start offset: the message's), then the old one is done. DONE, UNKNOWN,
 * -ENOSPC, or KNOWN: the message is done, or its time was over and its copy is on the way. Nothing has changed then. */
int rmq_pop_change(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset,
                   const struct rmq_pop_give *give);
/* The pop time of the entry that a change with this client, time and revive queue has made for the message, if it is open there.
 * -1: there is none. */
int64_t rmq_pop_changed_at(struct rmq_pop_windows *w, uint32_t place, int64_t offset, const struct rmq_pop_give *give);
/* A check point of the pop's open messages goes into the log: its entries are RMQ_POP_IN_LOG from now on. */
void rmq_pop_note_in_log(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms);
/* Of the messages that an acknowledgement names, as rmq_pop_ack, the number of those that are open by a check point in the log.
 * A message with a copy is none: its record is stored with the copy. */
uint32_t rmq_pop_in_log(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int64_t offset,
                        uint64_t bits);
/* The answer with this pop was not sent: its open messages are returned, a batch of an orderly group blocks no longer. 1, or 0 if
 * there is no such pop. */
int rmq_pop_unsent(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms);

/* A message whose time is over. */
struct rmq_pop_due {
    uint32_t window;         /* id */
    uint32_t place;
    int64_t queue_offset;
    int64_t pop_time_ms;
    uint32_t attempts;       /* copies of this pop that could not be stored */
    uint32_t reserved;
};
/* Messages whose time is over, at most `room`, which is at least RMQ_POP_ENTRY_MESSAGES: all of an entry or none. Their entries are
 * REVIVING then. Each message gets one of the results below. A start calls `copied` for all marks before. */
uint32_t rmq_pop_due(struct rmq_pop_windows *w, int64_t mono_ms, struct rmq_pop_due *due, uint32_t room);
/* No entry is due before this monotonic time, which may be too early: INT64_MAX = none. */
int64_t rmq_pop_next_due_ms(const struct rmq_pop_windows *w);
/* A copy is stored up to `end` of the log, be it in the retry topic or among the dead letters. A start says so for each mark.
 * Copies below the flushed offset are in the entries once they are named here and `flushed` was called: copies_from of the header. */
void rmq_pop_copied(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset, uint64_t end);
/* The copy cannot be stored now: the message is due again at `mono_ms`, or when the other copies of its pop are flushed.
 * `is_counted`: the message itself is the cause, which makes later tries rarer. */
void rmq_pop_copy_failed(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset, int64_t mono_ms, int is_counted);
/* The message has no record any more: it is done. */
void rmq_pop_copy_gone(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset);
/* The log is flushed up to there. Copies below it count. Returns the number of entries that are REVIVED or free by it. */
uint32_t rmq_pop_flushed(struct rmq_pop_windows *w, uint64_t flushed_offset);
/* A pop has read a copy whose mark names window id and queue offset. 1: a consumer may get it. 0: the message was acknowledged
 * late, and the copy is passed over. It changes nothing. */
int rmq_pop_take_copy(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset);
/* next_offset of the retry queue has passed the copy. Without this call the entry stays until it gives way or 10 minutes are over. */
void rmq_pop_copy_seen(struct rmq_pop_windows *w, uint32_t window_id, int64_t queue_offset);
/* Gives up REVIVED entries, the oldest first, until `entries` are free or none is left. */
void rmq_pop_forget_revived(struct rmq_pop_windows *w, uint32_t entries);
uint32_t rmq_pop_entries_free(const struct rmq_pop_windows *w);

/* Drops what lies at or above the end of the queue. The main process calls it before `write` starts. Returns messages dropped. */
uint32_t rmq_pop_clamp(struct rmq_pop_windows *w, uint32_t place, int64_t end_offset);
/* cdef-end */
#endif
