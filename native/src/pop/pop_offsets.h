/* pop_offsets.h: consumer offsets of windows. pop reports the lowest message that is not done, control stores it in the table of
 * offsets, and an offset there that pop has not reported is somebody else's word: a client, or an operator.
 *
 * The offset never goes back because of messages that are open before it. Members of the group that pull have passed them, so
 * they come by the retry topic: those that were returned at once, the others at their time.
 *
 * At a start of the broker the table may be older than the windows: its file is saved every few seconds, and the windows outlive
 * every process. So a smaller offset is reported again until this plane's table has the window's (reported_start). From then on a
 * smaller or deleted one is somebody's word, and a table without room for the pair is told again.
 *
 * An offset beyond the end of the queue counts as the end, which is reported in its place. Else new messages would be passed
 * over.
 * Twin: ringmq/pop/offsets_twin.py.
 */
#ifndef RMQ_POP_OFFSETS_H
#define RMQ_POP_OFFSETS_H

#include "plane/port.h"
#include "pop/pop_windows.h"

/* cdef-begin */
#define RMQ_POP_OFFSETS_CHANGED 64   /* windows of one call whose offset somebody has set back */

struct rmq_pop_offset {
    uint32_t window;                 /* id; 0: no window is at this place */
    uint32_t group_id, queue_slot;
    uint32_t told_open;              /* the counts of the port have these: open messages plus 1, */
    int64_t told_next;               /* and next_offset; 0, 0: they have none */
};

struct rmq_pop_offsets {
    struct rmq_pop_windows *windows;
    struct rmq_plane *plane;
    uint32_t port;
    uint32_t count;                  /* places that may have a window: [0, count) */
    uint32_t next;                   /* place at which the next call goes on */
    uint32_t may_compare;            /* 1: nothing was on its way to the table when this pass began */
    uint32_t changed_count;
    uint32_t reserved;
    uint64_t start_id;               /* of the plane */
    uint64_t reported;               /* since the start */
    struct rmq_pop_offset *at;       /* by place */
    uint32_t changed[RMQ_POP_OFFSETS_CHANGED]; /* places. Python ends these windows, and may begin others */
};

/* Begins a pass over all windows. */
void rmq_pop_offsets_begin(struct rmq_pop_offsets *o);
/* Looks at `room` places at most. Tells metrics what is open in each window (metrics/pull_stats.h). 1: the pass goes on at the
 * next call. 0: it has ended. -ENOSPC: the ring of commits is full, or there are too many changed ones; the pass goes on later. */
int rmq_pop_offsets_look(struct rmq_pop_offsets *o, uint32_t room);
/* 1: control has stored all that was reported. */
int rmq_pop_offsets_are_stored(const struct rmq_pop_offsets *o);
/* cdef-end */
#endif
