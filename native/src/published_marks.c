#include "published_marks.h"

#include "record.h"

int64_t rmq_published_marks(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start, uint64_t *marks,
                            size_t marks_max, uint64_t *at, int *reason)
{
    struct rmq_record_view view;
    size_t count = 0;
    *reason = RMQ_SCAN_END;
    for (*at = from; *at < end; *at += view.total_size) {
        int rc = rmq_record_parse(file + *at, end - *at, 0, &view);
        if (rc == RMQ_RECORD_OK && view.physical_offset != file_start + (int64_t)*at)
            rc = RMQ_SCAN_BAD_PLACE;
        if (rc != RMQ_RECORD_OK) {
            *reason = rc;
            break;
        }
        uint64_t mark = (uint64_t)view.prepared_transaction_offset;
        if (!mark || (view.sys_flag & RMQ_SYS_TRANSACTION_MASK) || (count && marks[count - 1] == mark))
            continue;
        if (count == marks_max) {
            *reason = RMQ_SCAN_FULL;
            break;
        }
        marks[count++] = mark;
    }
    return (int64_t)count;
}
