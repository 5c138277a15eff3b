/* due_units.h: which of the first units of a schedule queue are due. `ringmq.services.delay.schedule.due_units` is the twin. */
#ifndef RMQ_DUE_UNITS_H
#define RMQ_DUE_UNITS_H

#include "queue/queue_reader.h"

/* cdef-begin */
/* The number of units at the front that are due at `now_ms`. The tags code of a unit is its time of delivery. If that lies further
 * ahead than `delay_ms`, the present delay of the level, a record is due `delay_ms` after its store time: the delay was shortened.
 * A clock that was set back changes nothing, because the store time is ahead, too. *next_due_ms: of the first unit that is not due;
 * -1 if all are. records[i] holds the record of units[i]. */
uint32_t rmq_due_units(const struct rmq_queue_unit *units, const struct rmq_held_record *records, uint32_t count, int64_t now_ms,
                       int64_t delay_ms, int64_t *next_due_ms);
/* cdef-end */

#endif
