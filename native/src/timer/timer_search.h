/* timer_search.h: finds the slot of the message that a delete names by its key alone. Twin: place_delete of timer/placement.py.
 *
 * A delete works in the slot of its target, for stock as well. One that names another time finds its target by the IndexFile, under
 * `rmq_sys_wheel_timer#UNIQ_KEY`. Dispatch puts the index entries of a record before it publishes the record's unit, so what was
 * stored before a delete is found. Clients choose keys, so each search looks at a bounded number of entries and records.
 */
#ifndef RMQ_TIMER_SEARCH_H
#define RMQ_TIMER_SEARCH_H

#include "index/index.h"
#include "queue/queue_reader.h"
#include "timer/timer_files.h"
#include "timer/timer_record.h"

/* cdef-begin */
#define RMQ_TIMER_SEARCH_STEPS 512  /* index entries that one search looks at, over all files */
#define RMQ_TIMER_SEARCH_RECORDS 64 /* records with the key's hash that it looks at, the newest ones */

struct rmq_timer_index {
    const struct rmq_index *files; /* the newest first */
    uint32_t file_count;
    uint32_t is_listed;          /* 0 = the caller has to list the files before the next search */
    struct rmq_queue_reader *reader;
    const uint64_t *secret;      /* see rmq_timer_record_read */
    int64_t begin_ms;            /* messages that wait were stored after it */
    int64_t until_ns;            /* monotonic time at which the searches of this turn end */
    int64_t all_below;           /* a delete before this queue offset is searched for, however old it is */
};

/* Changes the place of a delete, whose record is at `offset` of the log, to the slot of the message that it names. A message in the
 * delete's own slot comes first, then the newest one. The open slot ends at open_end_ms. 1 = there is such a message, 0 = none, or an error of
 * rmq_queue_reader_record: ask again later. */
int rmq_timer_find_target(const struct rmq_timer_files *f, const struct rmq_timer_index *index, const struct rmq_timer_record *of,
                          int64_t offset, int64_t open_ms, int64_t open_end_ms, struct rmq_timer_place *place);
/* cdef-end */

#endif
