#include "codec/record_values.h"

#include <string.h>

#include "base/utf8.h"
#include "plane/layout.h"

int rmq_is_topic_name(const uint8_t *name, size_t length) {
    return length && length <= RMQ_NAME_MAX && name[0] != '.' && !memchr(name, '/', length) && !memchr(name, 0, length)
           && rmq_is_utf8(name, length);
}

int rmq_record_numbers(const struct rmq_record_view *view, int64_t position) {
    int32_t transaction = view->sys_flag & RMQ_SYS_TRANSACTION_MASK;
    if (view->physical_offset != position)
        return RMQ_VALUE_PHYSICAL_OFFSET;
    if (view->queue_id < 0 || view->queue_id > RMQ_QUEUE_ID_MAX)
        return RMQ_VALUE_QUEUE_ID;
    if (transaction == RMQ_SYS_TRANSACTION_PREPARED || transaction == RMQ_SYS_TRANSACTION_ROLLBACK)
        return RMQ_VALUES_POSSIBLE;
    return view->queue_offset < 0 || view->queue_offset > (int64_t)RMQ_QUEUE_OFFSET_MAX ? RMQ_VALUE_QUEUE_OFFSET : RMQ_VALUES_POSSIBLE;
}

int rmq_record_value(const uint8_t *record, const struct rmq_record_view *view, int64_t position) {
    int why = rmq_record_numbers(view, position);
    if (why)
        return why;
    return rmq_is_topic_name(record + view->topic_at, view->topic_length) ? RMQ_VALUES_POSSIBLE : RMQ_VALUE_TOPIC;
}
