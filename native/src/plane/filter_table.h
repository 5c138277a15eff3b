/* filter_table.h: the table of compiled conditions in the plane. Control puts and clears, read workers find and copy. */
#ifndef RMQ_FILTER_TABLE_H
#define RMQ_FILTER_TABLE_H

#include "plane/plane.h"

/* cdef-begin */
/* Replaces what the slot holds. Returns the version, which is odd and new in this slot, or 0: too long, or no such slot. */
uint32_t rmq_filter_put(struct rmq_plane *plane, uint32_t slot, const char *text, uint32_t length, const char *program,
                        uint32_t bytes);
/* Withdraws all programs: a new control does not know which of them stand. */
void rmq_filters_clear(struct rmq_plane *plane);
/* The slot of an expression, and its version. RMQ_NONE: it has none. */
uint32_t rmq_filter_find(struct rmq_plane *plane, const char *text, uint32_t length, uint32_t *version);
/* Copies a program of that version to RMQ_FILTER_PROGRAM_MAX bytes at `to`. Its length, or 0: the slot has another one. */
uint32_t rmq_filter_copy(struct rmq_plane *plane, uint32_t slot, uint32_t version, void *to);
/* cdef-end */
#endif
