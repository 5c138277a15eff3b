/* pop_index.h: the window of a group's queue, by the numbers that both have in the plane. Private memory of pop, made anew at each
 * start. Twin: a dict (ringmq/pop/window_names.py keeps one beside it).
 */
#ifndef RMQ_POP_INDEX_H
#define RMQ_POP_INDEX_H

#include "pop/pop_windows.h"

/* cdef-begin */
struct rmq_pop_index;

/* `secret`: of its hash. NULL = no memory. */
struct rmq_pop_index *rmq_pop_index_open(const uint64_t *secret, uint32_t windows_max, uint32_t groups_max);
void rmq_pop_index_close(struct rmq_pop_index *index);
/* Sets the window of the pair. 0, or -ENOSPC: there are windows_max pairs, or no such place or group. */
int rmq_pop_index_put(struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot, uint32_t place, uint32_t window_id);
void rmq_pop_index_forget(struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot);
/* The place of its window, or RMQ_NONE. The caller checks that the window there still has this id. */
uint32_t rmq_pop_index_find(const struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot, uint32_t *window_id);
/* The group and the queue slot of the window at a place, RMQ_NONE: none is there. */
uint32_t rmq_pop_index_group(const struct rmq_pop_index *index, uint32_t place);
uint32_t rmq_pop_index_queue(const struct rmq_pop_index *index, uint32_t place);
/* The places of a group's windows: the first, and the next behind one; RMQ_NONE: there is none. */
uint32_t rmq_pop_index_first(const struct rmq_pop_index *index, uint32_t group_id);
uint32_t rmq_pop_index_next(const struct rmq_pop_index *index, uint32_t place);
/* Looks at `room` places at most, from *at on, which moves. Returns the first one whose window, topic or group is gone, RMQ_NONE:
 * none is. *at is 0 behind the last place. */
uint32_t rmq_pop_index_gone(const struct rmq_pop_index *index, struct rmq_plane *plane, struct rmq_pop_windows *windows, uint32_t *at,
                            uint32_t room);
/* cdef-end */
#endif
