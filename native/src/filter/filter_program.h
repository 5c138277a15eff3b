/* filter_program.h: a compiled SQL92 condition (filter_layout.h), checked once and run over the properties of records.
 *
 * filters/evaluator.py is the twin of the evaluation. `rmq_filter_verify` accepts only programs that read inside their own
 * bytes, keep to their stack and jump forward to an instruction, so a run needs no such checks and ends.
 */
#ifndef RMQ_FILTER_PROGRAM_H
#define RMQ_FILTER_PROGRAM_H

#include "plane/filter_layout.h"

/* cdef-begin */
#define RMQ_FILTER_FALSE 0
#define RMQ_FILTER_TRUE 1
#define RMQ_FILTER_UNKNOWN 2
#define RMQ_FILTER_THROWS 3      /* Java would throw: no match */

/* 0, or -EINVAL: the `room` bytes at `program`, which is aligned to 8, hold no sound program. */
int rmq_filter_verify(const struct rmq_filter_program *program, uint64_t room);
/* Runs a verified program: RMQ_FILTER_*. Adds about the number of bytes looked at to *work. */
int rmq_filter_evaluate(const struct rmq_filter_program *program, const uint8_t *properties, uint32_t length, uint64_t *work);
/* Finds the properties of a stored record of `size` bytes. 0 = its inner lengths lead out of it. */
int rmq_filter_properties(const uint8_t *record, uint32_t size, const uint8_t **properties, uint32_t *length);
/* cdef-end */
#endif
