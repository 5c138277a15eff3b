/* overdue.h: closes connections whose time is over: answers that are not read, silence, half frames. */
#ifndef RMQ_OVERDUE_H
#define RMQ_OVERDUE_H

#include "reader/closings.h"

void rmq_overdue_close(struct rmq_closings *closings);
#endif
