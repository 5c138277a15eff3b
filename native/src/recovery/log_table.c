#include "recovery/log_table.h"

#include <errno.h>
#include <string.h>

#include "index/index.h"

/* Appends the hashes of one record's keys; -ENOSPC when they do not fit. */
static int64_t key_hashes(const uint8_t *topic, size_t topic_length, const struct rmq_dispatch_keys *keys,
                          int32_t sys_flag, int32_t *hashes, size_t room) {
    size_t count = 0;
    if ((sys_flag & RMQ_SYS_TRANSACTION_MASK) == RMQ_SYS_TRANSACTION_ROLLBACK)
        return 0;
    if (keys->uniq_key) {
        if (!room)
            return -ENOSPC;
        hashes[count++] = rmq_index_key_hash(topic, topic_length, keys->uniq_key, keys->uniq_key_length);
    }
    const uint8_t *at = keys->keys, *end = at ? at + keys->keys_length : at;
    while (at < end) {
        const uint8_t *stop = memchr(at, ' ', (size_t)(end - at));
        if (!stop)
            stop = end;
        if (stop > at) {
            if (count == room)
                return -ENOSPC;
            hashes[count++] = rmq_index_key_hash(topic, topic_length, at, (size_t)(stop - at));
        }
        at = stop + 1;
    }
    return (int64_t)count;
}

static struct rmq_log_row impossible_row(const uint8_t *record, const struct rmq_record_view *view, int field) {
    return (struct rmq_log_row){
        .position = view->position,
        .queue_offset = view->queue_offset,
        .store_time_ms = view->store_time_ms,
        .size = (int32_t)view->total_size,
        .queue_row = -1,
        .sys_flag = view->sys_flag,
        .properties_state = rmq_properties_state(record + view->properties_at, view->properties_length),
        .impossible = field,
    };
}

int64_t rmq_log_table(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start,
                      struct rmq_queue_table *queues, const struct rmq_delay_levels *levels, struct rmq_log_row *rows,
                      size_t rows_max, int32_t *hashes, size_t hashes_max, size_t *hashes_count, uint64_t *at,
                      int *reason) {
    struct rmq_record_view view;
    struct rmq_dispatch_keys keys;
    size_t count = 0;
    *hashes_count = 0;
    *at = from;
    for (;; count++) {
        uint64_t next;
        *reason = RMQ_SCAN_FULL;
        if (count == rows_max)
            break;
        if (!rmq_log_scan(file, from, end, file_start, 1, &view, 1, &next, reason))
            break;
        const uint8_t *record = file + from, *topic = record + view.topic_at;
        int impossible = rmq_record_value(record, &view, view.position);
        if (impossible) {
            rows[count] = impossible_row(record, &view, impossible);
            from = *at = next;
            continue;
        }
        struct rmq_queue_row *queue = rmq_queue_table_row(queues, topic, view.topic_length, view.queue_id);
        if (!queue)
            return -ENOMEM;
        rmq_dispatch_keys_find(record + view.properties_at, view.properties_length, &keys);
        int64_t found = key_hashes(topic, view.topic_length, &keys, view.sys_flag, hashes + *hashes_count,
                                   hashes_max - *hashes_count);
        *reason = RMQ_SCAN_FULL;
        if (found < 0)
            break;
        *hashes_count += (size_t)found;
        rows[count] = (struct rmq_log_row){
            .position = view.position,
            .queue_offset = view.queue_offset,
            .tags_code = rmq_tags_code(topic, view.topic_length, &keys, view.store_time_ms, levels),
            .store_time_ms = view.store_time_ms,
            .size = (int32_t)view.total_size,
            .queue_row = (int32_t)queue->row_number,
            .sys_flag = view.sys_flag,
            .properties_state = rmq_properties_state(record + view.properties_at, view.properties_length),
            .message_count = rmq_message_count(&keys, view.sys_flag, queue->is_batch),
            .key_count = (int32_t)found,
        };
        from = *at = next;
    }
    return (int64_t)count;
}
