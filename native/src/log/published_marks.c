#include "log/published_marks.h"

#include "codec/record.h"
#include "plane/ports_layout.h"

_Static_assert(RMQ_ROLES_MAX <= 128, "a mark is not negative, and its range names any role");
_Static_assert(RMQ_ROLE_SUPERVISOR == RMQ_MARK_RANGE_STAGED, "no service has the range of staged writes");

/* A staged write's range is that of log offsets, too, which committed messages carry. Copies of committed messages keep the
 * transaction bits of their source. */
static int is_commit_of_range(uint32_t range, const struct rmq_record_view *view)
{
    return range == RMQ_MARK_RANGE_STAGED && (view->sys_flag & RMQ_SYS_TRANSACTION_MASK);
}

uint64_t rmq_published_step(const uint8_t *file, uint64_t at, uint64_t end, int64_t file_start, struct rmq_record_view *view)
{
    int rc = rmq_record_parse(file + at, end - at, 0, view);
    if (rc == RMQ_RECORD_OK && view->physical_offset == file_start + (int64_t)at)
        return view->total_size;
    view->prepared_transaction_offset = 0;
    view->sys_flag = 0;
    return rc == RMQ_RECORD_BLANK && view->total_size == end - at ? view->total_size : 1;
}

int64_t rmq_published_marks(uint32_t range, const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                            uint64_t *marks, uint32_t *records, size_t marks_max, uint64_t *at)
{
    struct rmq_record_view view;
    size_t count = 0;
    uint64_t bytes;
    for (*at = from; *at < limit; *at += bytes) {
        bytes = rmq_published_step(file, *at, end, file_start, &view);
        uint64_t mark = (uint64_t)view.prepared_transaction_offset;
        if (!mark || rmq_mark_range(mark) != range || is_commit_of_range(range, &view))
            continue;
        if (count && marks[count - 1] == mark) {
            records[count - 1]++;
            continue;
        }
        if (count == marks_max)
            break;
        marks[count] = mark;
        records[count++] = 1;
    }
    return (int64_t)count;
}

int64_t rmq_committed_halves(const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                             uint64_t *halves, uint64_t *commits, size_t halves_max, uint64_t *at)
{
    struct rmq_record_view view;
    size_t count = 0;
    uint64_t bytes;
    for (*at = from; *at < limit; *at += bytes) {
        bytes = rmq_published_step(file, *at, end, file_start, &view);
        int is_commit = (view.sys_flag & RMQ_SYS_TRANSACTION_MASK) == RMQ_SYS_TRANSACTION_COMMIT;
        if (view.prepared_transaction_offset < 0 || !is_commit)
            continue;
        if (count == halves_max)
            break;
        commits[count] = (uint64_t)view.physical_offset;
        halves[count++] = (uint64_t)view.prepared_transaction_offset;
    }
    return (int64_t)count;
}
