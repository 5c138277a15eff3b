/* timer_slot.h: the messages of one slot in memory, ordered by the millisecond of their delivery. timer/slot_content.py is the
 * twin. While the worker catches up, several slots of the wheel are one slot here.
 *
 * A message takes 8 bytes: its millisecond in the slot, and the number of its unit. The record has the rest. Of more than
 * `messages_max` messages that walks have found, the slot keeps the earliest ones and counts the others, which the next walk finds.
 * Messages that arrive later, behind the units of the first walk, are always kept.
 */
#ifndef RMQ_TIMER_SLOT_H
#define RMQ_TIMER_SLOT_H

#include "timer/timer_files.h"
#include "timer/timer_record.h"

/* cdef-begin */
#define RMQ_TIMER_DELETES_MAX 524288 /* of one table, 16 MiB (timer_deletes.h) */
#define RMQ_TIMER_NEAR_MS 4194304 /* messages that are later than this are ordered by seconds, then by minutes */

struct rmq_timer_slot;

/* NULL = no memory. `units_end`: number behind the last unit that walks find. `secret`: see rmq_timer_record_read. */
struct rmq_timer_slot *rmq_timer_slot_open(int64_t slot_ms, uint32_t messages_max, uint64_t units_end, const uint64_t *secret);
void rmq_timer_slot_close(struct rmq_timer_slot *slot);
/* Keys of deletes beyond `keys_max` go into files without a name in `folder`, which must live as long as the slot. NULL, the default:
 * they stay in memory. Belongs before the first delete. */
void rmq_timer_slot_limit_deletes(struct rmq_timer_slot *slot, uint32_t keys_max, const char *folder);

/* Adds a message or a delete. 0, or -ENOMEM. */
int rmq_timer_slot_add(struct rmq_timer_slot *slot, uint64_t unit, uint32_t magic, const struct rmq_timer_record *record);
/* Another walk begins: it takes the messages that the walk before has left out. */
void rmq_timer_slot_walk_again(struct rmq_timer_slot *slot);
int rmq_timer_slot_is_walked_again(const struct rmq_timer_slot *slot);
/* Adds what a walk has found: messages that an earlier walk has taken are passed over. */
int rmq_timer_slot_found(struct rmq_timer_slot *slot, uint64_t unit, uint32_t magic, const struct rmq_timer_record *record);
const uint64_t *rmq_timer_slot_secret(const struct rmq_timer_slot *slot);
int64_t rmq_timer_slot_time(const struct rmq_timer_slot *slot);
/* Time of the first slot of the wheel that is not part of this one. */
int64_t rmq_timer_slot_end(const struct rmq_timer_slot *slot);
void rmq_timer_slot_extend(struct rmq_timer_slot *slot, int64_t end_ms);
/* Number behind the last unit that walks find. */
uint64_t rmq_timer_slot_units_end(const struct rmq_timer_slot *slot);

/* Moves due messages out, at most `room`, the earliest first: keys of rmq_timer_slot_unit. Their number. */
uint32_t rmq_timer_slot_take(struct rmq_timer_slot *slot, int64_t now_ms, uint64_t *keys, uint32_t room);
/* Messages that were taken and not submitted. */
int rmq_timer_slot_return(struct rmq_timer_slot *slot, const uint64_t *keys, uint32_t count);
uint64_t rmq_timer_slot_unit(uint64_t key);
int64_t rmq_timer_slot_exact_ms(const struct rmq_timer_slot *slot, uint64_t key);
/* 1 = a delete of the slot names this key. */
int rmq_timer_slot_deletes(const struct rmq_timer_slot *slot, const uint64_t *key);
int rmq_timer_slot_has_deletes(const struct rmq_timer_slot *slot);

/* Time of the next delivery, -1 if no message waits in memory, or if those that are left out come first. */
int64_t rmq_timer_slot_next_ms(const struct rmq_timer_slot *slot);
uint64_t rmq_timer_slot_waiting(const struct rmq_timer_slot *slot);
/* Messages that wait and are not in memory. */
uint64_t rmq_timer_slot_left_out(const struct rmq_timer_slot *slot);
/* 1 = some do, and all that walks have kept are taken. */
int rmq_timer_slot_needs_walk(const struct rmq_timer_slot *slot);
/* cdef-end */

#endif
