/* timer_pages.h: pages of TimerLog and TimerWheel that cannot be read from the disk.
 *
 * An I/O error of a mapped page comes as SIGBUS, and so does a file that was cut. The page and those behind it in its file become
 * zeros, so that the access ends, and `missing` names the page. Then the files hold no truth: the caller deletes them before it
 * acts on what it has read.
 */
#ifndef RMQ_TIMER_PAGES_H
#define RMQ_TIMER_PAGES_H

#include "timer/timer_files.h"

/* cdef-begin */
/* From now on missing pages of these files end no process. Those of one call only: a process has one wheel. 0 or -errno. */
int rmq_timer_pages_cover(struct rmq_timer_files *f);
/* Belongs before the files are unmapped. */
void rmq_timer_pages_uncover(const struct rmq_timer_files *f);
/* cdef-end */

#endif
