/* pop_reach.h: how far the windows of POP reach, read without the state that a worker builds. Twin: reach_of in
 * tests/pop/test_start.py.
 *
 * A start of the broker asks it of every store. With a million entries it takes some 20 ms, and the worker's read a second.
 */
#ifndef RMQ_POP_REACH_H
#define RMQ_POP_REACH_H
#include "pop/pop_pages.h"

/* cdef-begin */
/* Places of the windows, and behind each its reach: next_offset, or the offset behind the last open message or copy of its entries,
 * to which the worker moves next_offset. `room`: of both arrays; windows_max is enough. *entries: those in use. Returns the number
 * of windows, or -ENOMEM. Nothing is checked: damaged slots give any numbers. */
int64_t rmq_pop_reach(const struct rmq_pop_pages *pages, struct rmq_pop_layout layout, uint32_t *places, int64_t *reach, uint32_t room,
                      uint32_t *entries);
/* cdef-end */
#endif
