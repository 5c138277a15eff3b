#include "recovery/log_recovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/name_hash.h"
#include "queue/consume_queue.h"

enum { FIRST_BUCKETS = 256 };

struct rmq_queue_table *rmq_queue_table_new(const uint64_t *secret) {
    struct rmq_queue_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    memcpy(table->secret, secret, sizeof table->secret);
    table->buckets_size = FIRST_BUCKETS;
    table->buckets = calloc(FIRST_BUCKETS, sizeof *table->buckets);
    table->rows = calloc(FIRST_BUCKETS / 2, sizeof *table->rows);
    if (!table->buckets || !table->rows) {
        rmq_queue_table_free(table);
        return NULL;
    }
    return table;
}

void rmq_queue_table_free(struct rmq_queue_table *table) {
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->rows[i]);
    free(table->rows);
    free(table->buckets);
    free(table);
}

int64_t rmq_queue_table_size(const struct rmq_queue_table *table) {
    return (int64_t)table->count;
}

struct rmq_queue_row *rmq_queue_table_at(const struct rmq_queue_table *table, int64_t index) {
    return index >= 0 && (size_t)index < table->count ? table->rows[index] : NULL;
}

static uint32_t hash_of(const struct rmq_queue_table *table, const uint8_t *topic, size_t length, int32_t queue_id) {
    return rmq_numbered_name_hash(table->secret, topic, (uint32_t)length, queue_id);
}

static int is_row(const struct rmq_queue_row *row, const uint8_t *topic, size_t length, int32_t queue_id) {
    return row->queue_id == queue_id && row->topic_length == length && !memcmp(row->topic, topic, length);
}

static int grow(struct rmq_queue_table *table) {
    size_t size = table->buckets_size * 2;
    uint32_t *buckets = calloc(size, sizeof *buckets);
    struct rmq_queue_row **rows = realloc(table->rows, size / 2 * sizeof *rows);
    if (rows)
        table->rows = rows;
    if (!buckets || !rows) {
        free(buckets);
        return -ENOMEM;
    }
    for (size_t i = 0; i < table->count; i++) {
        const struct rmq_queue_row *row = rows[i];
        size_t bucket = hash_of(table, row->topic, row->topic_length, row->queue_id) & (size - 1);
        while (buckets[bucket])
            bucket = (bucket + 1) & (size - 1);
        buckets[bucket] = (uint32_t)i + 1;
    }
    free(table->buckets);
    table->buckets = buckets;
    table->buckets_size = size;
    return 0;
}

/* The bucket of the row, or the free one where it belongs. */
static size_t bucket_of(const struct rmq_queue_table *table, const uint8_t *topic, size_t length, int32_t queue_id) {
    size_t bucket = hash_of(table, topic, length, queue_id) & (table->buckets_size - 1);
    while (table->buckets[bucket] && !is_row(table->rows[table->buckets[bucket] - 1], topic, length, queue_id))
        bucket = (bucket + 1) & (table->buckets_size - 1);
    return bucket;
}

struct rmq_queue_row *rmq_queue_table_row(struct rmq_queue_table *table, const uint8_t *topic, size_t topic_length,
                                          int32_t queue_id) {
    if (table->recent && is_row(table->recent, topic, topic_length, queue_id))
        return table->recent;
    size_t bucket = bucket_of(table, topic, topic_length, queue_id);
    if (table->buckets[bucket])
        return table->recent = table->rows[table->buckets[bucket] - 1];
    if (table->count == table->buckets_size / 2) {
        if (grow(table))
            return NULL;
        return rmq_queue_table_row(table, topic, topic_length, queue_id);
    }
    struct rmq_queue_row *row = calloc(1, sizeof *row + topic_length + 1);
    if (!row)
        return NULL;
    if (topic_length)
        memcpy(row + 1, topic, topic_length);
    row->topic = (const uint8_t *)(row + 1);
    row->topic_length = (uint32_t)topic_length;
    row->queue_id = queue_id;
    row->queue_end = row->log_first = row->log_next = row->missing_from = row->again_from = row->seen_first = -1;
    uint32_t any = table->buckets[bucket_of(table, topic, topic_length, RMQ_ANY_QUEUE)];
    if (any)
        row->queue_end = table->rows[any - 1]->queue_end;
    row->row_number = (uint32_t)table->count;
    table->rows[table->count++] = row;
    table->buckets[bucket] = (uint32_t)table->count;
    return table->recent = row;
}

void rmq_log_recovery_init(struct rmq_log_recovery *state, struct rmq_queue_table *table) {
    memset(state, 0, sizeof *state);
    state->table = table;
    state->last_offset = -1;
}

static void note_impossible(struct rmq_log_recovery *state, int field) {
    if (!state->impossible++) {
        state->impossible_offset = state->last_offset;
        state->impossible_field = field;
    }
}

/* Counts the record held back for its queue. One far behind the end of the queue is not of it: dispatch leaves it out, too. */
static void count(struct rmq_log_recovery *state, struct rmq_queue_row *row) {
    int64_t queue_offset = state->held_queue_offset, next = queue_offset + state->held_count;
    int64_t known = row->log_next > row->queue_max ? row->log_next : row->queue_max;
    if (row->again_from >= 0 && queue_offset == row->again_next) {
        row->log_first = 0;
        row->missing_from = row->again_from;
        row->log_next = row->again_next;
    } else if (row->log_next > 0 && !queue_offset) {
        row->again_from = state->last_offset;
        row->again_next = next;
        return;
    } else if (state->gap_max && known > 0 && queue_offset - known > state->gap_max) {
        note_impossible(state, RMQ_VALUE_QUEUE_PLACE);
        return;
    }
    row->again_from = -1;
    if (row->log_next < 0) {
        row->log_first = queue_offset;
        row->missing_from = state->last_offset;
    }
    if (next > row->log_next)
        row->log_next = next;
}

void rmq_log_recovery_finish(struct rmq_log_recovery *state, int keep) {
    struct rmq_queue_row *row = state->held_row;
    if (keep && row && state->held_count && state->last_offset >= row->queue_end
        && (row->queue_end < 0 || state->held_queue_offset >= row->queue_max))
        count(state, row);
    if (!keep && state->last_offset >= 0)
        state->records--;
    state->held_count = 0;
    state->held_row = NULL;
}

/* Adds a record that has a unit to the digest of its queue. At queue offset 0 a newer topic of the name begins. */
static void digest_unit(struct rmq_queue_row *row, const uint8_t *record, const struct rmq_record_view *view) {
    if (row->is_batch || view->position < row->topic_from || view->queue_offset >= row->queue_max)
        return;
    if (row->seen_first < 0 || !view->queue_offset) {
        row->seen_first = view->queue_offset;
        row->seen_digest = 0;
        row->is_uneven = 0;
    } else if (view->queue_offset != row->seen_next) {
        row->is_uneven = 1;
    }
    row->seen_next = view->queue_offset + 1;
    if (row->is_uneven)
        return;
    int64_t tags_code = 0;
    if (!row->without_tags) {
        struct rmq_dispatch_keys keys;
        rmq_dispatch_keys_find(record + view->properties_at, view->properties_length, &keys);
        tags_code = rmq_tags_code(record + view->topic_at, view->topic_length, &keys, view->store_time_ms, NULL);
    }
    row->seen_digest = rmq_cq_digest_unit(row->seen_digest, view->position, (int32_t)view->total_size, tags_code);
}

/* Holds the record back; prepared and rollback records have no queue offset. */
static int hold(struct rmq_log_recovery *state, const uint8_t *record, const struct rmq_record_view *view) {
    int32_t transaction = view->sys_flag & RMQ_SYS_TRANSACTION_MASK;
    state->last_offset = view->position;
    state->last_size = view->total_size;
    state->last_store_time_ms = view->store_time_ms;
    state->records++;
    int impossible = rmq_record_value(record, view, view->position);
    if (impossible)
        note_impossible(state, impossible);
    if (impossible || transaction == RMQ_SYS_TRANSACTION_PREPARED || transaction == RMQ_SYS_TRANSACTION_ROLLBACK)
        return 0;
    struct rmq_queue_row *row =
        rmq_queue_table_row(state->table, record + view->topic_at, view->topic_length, view->queue_id);
    if (!row)
        return -ENOMEM;
    digest_unit(row, record, view);
    state->held_row = row;
    state->held_queue_offset = view->queue_offset;
    state->held_count = 1;
    if (row->is_batch || view->sys_flag & RMQ_SYS_INNER_BATCH) {
        struct rmq_dispatch_keys keys;
        rmq_dispatch_keys_find(record + view->properties_at, view->properties_length, &keys);
        state->held_count = rmq_message_count(&keys, view->sys_flag, row->is_batch);
    }
    return 0;
}

/* 1 if the record at `from` was whole once and only its body has another CRC now. Counts it. */
static int pass_bad_body(struct rmq_log_recovery *state, const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start,
                         struct rmq_record_view *view) {
    int64_t offset = file_start + (int64_t)from;
    if (rmq_record_parse(file + from, end - from, 0, view) != RMQ_RECORD_OK)
        return 0;
    if (offset >= state->whole_until && view->store_time_ms >= state->whole_before_ms)
        return 0;
    view->position = offset;
    if (state->bad_bodies < RMQ_BAD_BODIES_NAMED)
        state->bad_body_offsets[state->bad_bodies] = offset;
    state->bad_bodies++;
    return 1;
}

int64_t rmq_log_recovery_scan(struct rmq_log_recovery *state, const uint8_t *file, uint64_t from, uint64_t end,
                              int64_t file_start, int check_crc) {
    struct rmq_record_view view;
    uint64_t last = UINT64_MAX;
    for (;;) {
        uint64_t at;
        int reason;
        int64_t got = rmq_log_scan(file, from, end, file_start, check_crc, &view, 1, &at, &reason);
        if (!got && reason == RMQ_RECORD_BAD_CRC && pass_bad_body(state, file, from, end, file_start, &view)) {
            at = from + view.total_size;
        } else if (!got) {
            state->reason = reason;
            break;
        }
        rmq_log_recovery_finish(state, 1);
        if (hold(state, file + from, &view))
            return -ENOMEM;
        last = from;
        from = at;
    }
    if (last != UINT64_MAX && rmq_record_parse(file + last, end - last, 0, &view) == RMQ_RECORD_OK)
        state->last_properties_state = rmq_properties_state(file + last + view.properties_at, view.properties_length);
    return (int64_t)from;
}
