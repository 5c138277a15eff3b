/* pull_stats.h: what each group took of each queue, counted by the worker that answered: a read worker, or pop. Entries fill up from the
 * first, cells find them; ids are never used again, so entries stay. A reader that was started again goes on counting.
 */
#ifndef RMQ_PULL_STATS_H
#define RMQ_PULL_STATS_H
#include "plane/plane.h"

/* cdef-begin */
/* A pull of the group on the queue was answered or is held: with `messages`, perhaps none, and where the next begins. */
void rmq_pull_stats_add(struct rmq_plane *plane, uint32_t port, uint32_t group_id, uint32_t queue_slot, uint32_t messages,
                      uint32_t bytes, uint64_t next_offset, int64_t now_ms);
/* A group that takes single messages has so many that are not done, and the next pop begins at `next_offset`. */
void rmq_pull_stats_set_open(struct rmq_plane *plane, uint32_t port, uint32_t group_id, uint32_t queue_slot, uint64_t open,
                             uint64_t next_offset);
/* The next offset of the group's latest pull of the queue, over all readers; -1 = no pull is known.
 * Any process may ask. Twin: PullStatsIndex.next_offsets in broker/exporter/pull_stats.py. */
int64_t rmq_pull_stats_next_offset(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);
/* Messages of the queue that the group has popped and that are not done, as of the last second. -1 = the group has pulled last, or
 * nothing is known. Any process may ask. */
int64_t rmq_pull_stats_open(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);
/* Messages of the queue that pops have given to the group: pulls do not count. Any process may ask. */
uint64_t rmq_pull_stats_popped(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);
/* cdef-end */
#endif
