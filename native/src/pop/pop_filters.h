/* pop_filters.h: the expressions of pops, compiled. C finds them by their text, `ringmq.pop.filters` puts those that are missing.
 */
#ifndef RMQ_POP_FILTERS_H
#define RMQ_POP_FILTERS_H

#include "filter/filter_program.h"
#include "plane/tables_layout.h"

/* cdef-begin */
#define RMQ_POP_FILTERS_MAX 1024
#define RMQ_POP_FILTERS_BYTES_MAX 16777216 /* of all texts and programs */

struct rmq_pop_filters;

struct rmq_pop_filter {
    struct rmq_subscription_copy wanted; /* kind ALL, TAGS, FILTER (the program), or COLD: the expression is refused */
    struct rmq_filter_program *program;  /* of FILTER, verified */
    uint8_t *text;                       /* type, NUL, expression */
    uint32_t text_length, bytes;
};

/* `secret`: of its hash. NULL = no memory. */
struct rmq_pop_filters *rmq_pop_filters_open(const uint64_t *secret);
void rmq_pop_filters_close(struct rmq_pop_filters *filters);
/* NULL: it is not known. It stays until the next put. */
const struct rmq_pop_filter *rmq_pop_filter_find(const struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length);
/* Puts an expression that is not known. The oldest ones go if there is no place for it. A program is copied and verified. 0,
 * -EINVAL: the program is not sound, or -ENOMEM. */
int rmq_pop_filter_put(struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length,
                       const struct rmq_subscription_copy *wanted, const void *program, uint32_t program_bytes);
uint32_t rmq_pop_filters_count(const struct rmq_pop_filters *filters);
/* cdef-end */
#endif
