/* pop_log_cut.h: what the memory of POP forgets when the log is cut. Twin: forget_copies in tests/pop/memory_kit.py. */
#ifndef RMQ_POP_LOG_CUT_H
#define RMQ_POP_LOG_CUT_H
#include "pop/pop_pages.h"

/* cdef-begin */
/* The cut may take copies in retry topics, and no entry tells where they lie. So messages that rest on a copy are open again, and
 * due. Those that were acknowledged stay done. Returns the number of entries. */
uint32_t rmq_pop_forget_copies(struct rmq_pop_pages *pages, struct rmq_pop_layout layout);
/* cdef-end */
#endif
