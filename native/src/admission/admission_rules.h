/* admission_rules.h: publishing a set of admission rules, and taking it. */
#ifndef RMQ_ADMISSION_RULES_H
#define RMQ_ADMISSION_RULES_H

#include "plane/plane.h"

/* cdef-begin */
/* Replaces the whole set. 0, or -EINVAL for a rule that no reader could follow; then the old set stays. Only control. */
int rmq_rules_publish(struct rmq_plane *plane, const struct rmq_admission_rules *rules);
/* Copies the current set unless *version is its version already. */
void rmq_rules_take(struct rmq_plane *plane, struct rmq_admission_rules *rules, uint64_t *version);
/* cdef-end */
#endif
