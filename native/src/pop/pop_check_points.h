/* pop_check_points.h: open messages as RocketMQ's check points: a record in the timer topic, or in the revive topic if its
 * time is over. `ringmq.pop.hand_over` calls it at a stop, and `ringmq.pop.pull_switch` while consumers go on. Twin:
 * ringmq/pop/check_points_twin.py.
 *
 * A check point has the open messages of one pop of one queue. Those that are done are left out of it, so it needs no record of
 * their acknowledgements. A message whose copy is with write counts as open: the copy may fail.
 *
 * A pass goes over all entries, some a call. A message may move meanwhile to an entry that the pass has gone by. So passes are
 * repeated until one that is made in one go finds nothing, or little.
 */
#ifndef RMQ_POP_CHECK_POINTS_H
#define RMQ_POP_CHECK_POINTS_H

#include "pop/pop_log_records.h"
#include "pop/pop_windows.h"

/* cdef-begin */
struct rmq_pop_points {
    struct rmq_pop_windows *windows;
    struct rmq_pop_log_room room;
    const struct rmq_pop_log_text *groups, *topics; /* by place of the window; length 0: the window has no check points */
    const int64_t *ends;             /* by place: messages at or above this offset have none */
    uint32_t places, entries;        /* lengths of these arrays, and of `made`. What lies behind has no check points */
    uint32_t *made;                  /* by entry: its `check`, if its pop has a check point. Another entry in its place differs */
    /* goes on from call to call */
    uint32_t next;                   /* entry. 0: a pass begins */
    uint64_t messages, records;      /* so far */
    int64_t due_ms;                  /* of the last one that is due */
    uint32_t does_not_fit;           /* 1 = the next pop has more than RMQ_POP_ENTRY_MESSAGES entries, or no room: no more are made */
};

uint32_t rmq_pop_points_entries(const struct rmq_pop_windows *w); /* places of entries that may be in use */
/* The open messages of the pop with this receipt go to `offsets`, at most `room`. Returns their number, also if it is above
 * `room`. `leave_out`: it has a check point that a RocketMQ broker will still read, so it gets no other one. */
uint32_t rmq_pop_points_known(struct rmq_pop_points *p, uint32_t place, int64_t start_offset, int64_t pop_time_ms, int leave_out,
                              int64_t *offsets, uint32_t room);
/* Makes requests of the next open messages, at most `room`, which is at least 2 * RMQ_POP_ENTRY_MESSAGES. It looks at `look` entries
 * at most. p->room.arena_at is behind the bytes of the last one. Returns their number, also 0 if p->does_not_fit is set. */
uint32_t rmq_pop_points_fill(struct rmq_pop_points *p, struct rmq_request *requests, uint32_t room, uint32_t look);
int rmq_pop_points_is_open(const struct rmq_pop_points *p, uint32_t place, int64_t offset); /* in any entry, without a copy */
int rmq_pop_points_is_over(const struct rmq_pop_points *p); /* the pass has looked at all entries */
/* Takes completions of the port. Returns their number. *end: raised to the end of the last record. *refused: cause of one that
 * was not stored. */
uint32_t rmq_pop_points_answers(struct rmq_plane *plane, uint32_t port, uint64_t *end, uint32_t *refused);
/* cdef-end */
#endif
