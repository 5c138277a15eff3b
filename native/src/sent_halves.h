/* sent_halves.h: half messages of producers among the records of the half queue. Twin: sent_half of
 * `ringmq.services.transactions.records`. */
#ifndef RMQ_SENT_HALVES_H
#define RMQ_SENT_HALVES_H

#include "queue_reader.h"
#include "record.h"

/* cdef-begin */
/* Reads records[*next..count), which are held for units of the half queue, up to the first one whose properties have the text
 * CHECK_IMMUNITY_TIME_IN_SECONDS: Python reads that one. Copies of halves, and bytes that are no record, are passed over. Sets
 * half-queue offset and born time of each half found, and `*next` behind the last record read. Returns the number of halves. */
uint32_t rmq_sent_halves(const struct rmq_held_record *records, const struct rmq_queue_unit *units, uint32_t count, uint32_t *next,
                         int64_t *queue_offsets, int64_t *born_ms);
/* cdef-end */

#endif
