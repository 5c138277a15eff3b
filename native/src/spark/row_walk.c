#include "spark/row_walk.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/record_prefetch.h"
#include "queue/consume_queue.h"

#define UNITS_AHEAD 8               /* records whose cache lines are prefetched */
#define TAIL_BYTES (2 * RMQ_LINE_BYTES)
#define BYTES_AHEAD 4096            /* of a log that is read as a whole */
#define FAR_RECORD_BYTES 512        /* below, the hardware's own prefetching reaches the next record in time */

/* Asks for the lines up to `to`; the hardware alone starts again at each record. Returns how far they are asked for. */
static uint64_t ask_up_to(const uint8_t *data, uint64_t asked, uint64_t to) {
    for (; asked < to; asked += RMQ_LINE_BYTES)
        __builtin_prefetch(data + asked);
    return asked;
}

static int is_held_back(int32_t sys_flag) {
    int32_t transaction = sys_flag & RMQ_SYS_TRANSACTION_MASK;
    return transaction == RMQ_SYS_TRANSACTION_PREPARED || transaction == RMQ_SYS_TRANSACTION_ROLLBACK;
}

static int is_in_time(const struct rmq_wanted_rows *wanted, const struct rmq_record_view *view) {
    return view->store_time_ms >= wanted->begin_ms && view->store_time_ms < wanted->end_ms;
}

/* An inner batch counts when any of its messages may: they have offsets from the record's on. */
static int is_wanted(const struct rmq_wanted_rows *wanted, const uint8_t *record, const struct rmq_record_view *view) {
    if (is_held_back(view->sys_flag) || !is_in_time(wanted, view))
        return 0;
    uint32_t queue = rmq_name_find(&wanted->queues, record + view->topic_at, view->topic_length, view->queue_id);
    if (queue == RMQ_NAME_NONE)
        return 0;
    const struct rmq_wanted_queue *span = &wanted->spans[queue];
    return view->queue_offset < span->end && view->position >= span->log_begin &&
           (view->queue_offset >= span->begin || view->sys_flag & RMQ_SYS_INNER_BATCH);
}

static int put_record(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, const uint8_t *record,
                      const struct rmq_record_view *view) {
    struct rmq_row_source source = {
        .record = record,
        .view = view,
        .body = record + view->body_at,
        .properties = record + view->properties_at,
        .queue_offset = view->queue_offset,
        .body_length = view->body_length,
        .properties_length = view->properties_length,
    };
    if (rows->count == rows->rows_max)
        return RMQ_SCAN_FULL;
    if (wanted->check_crc && view->body_length && rmq_crc32(source.body, view->body_length) != view->body_crc)
        return RMQ_RECORD_BAD_CRC;
    if (view->sys_flag & RMQ_SYS_INNER_BATCH || (view->sys_flag & RMQ_SYS_COMPRESSED && rows->value.offsets))
        return RMQ_ROW_FALLBACK;
    return rmq_row_put(rows, &source);
}

void rmq_rows_from_log(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, const uint8_t *data,
                       uint64_t from, uint64_t end, int64_t data_start, struct rmq_walk_stop *stop) {
    struct rmq_record_view *view = &stop->view;
    uint64_t asked = from;
    int reason = RMQ_SCAN_END;
    while (from < end) {
        const uint8_t *record = data + from;
        reason = rmq_record_parse(record, end - from, 0, view);
        if (reason != RMQ_RECORD_OK)
            break;
        uint64_t next = from + view->total_size, size = view->total_size;
        if (size >= FAR_RECORD_BYTES && rows->value.offsets)
            asked = ask_up_to(data, asked > next ? asked : next, end - next < BYTES_AHEAD ? end : next + BYTES_AHEAD);
        else if (size >= FAR_RECORD_BYTES && end - next >= size)
            rmq_prefetch_record(data + next, (int64_t)size, TAIL_BYTES); /* as long as this one, at a guess */
        view->position = data_start == RMQ_WALK_ANYWHERE ? view->physical_offset : data_start + (int64_t)from;
        if (view->physical_offset != view->position) {
            reason = RMQ_WALK_BAD_PLACE;
            break;
        }
        if (is_wanted(wanted, record, view)) {
            reason = put_record(rows, wanted, record, view);
            if (reason != RMQ_RECORD_OK)
                break;
        }
        from += view->total_size;
        reason = RMQ_SCAN_END;
    }
    stop->at = from;
    stop->reason = reason;
}

/* ---- units --------------------------------------------------------------------------------------------------- */

struct unit {
    int64_t position;
    int64_t size;
};

static struct unit unit_at(const uint8_t *units, uint64_t index) {
    const uint8_t *at = units + index * RMQ_CQ_UNIT_BYTES;
    return (struct unit){(int64_t)rmq_get64(at), (int32_t)rmq_get32(at + 8)};
}

/* A filler (position 0, size 2^31 - 1) stands for offsets that never had a record. */
static int is_written(struct unit unit) {
    return unit.position >= 0 && unit.size > 0 && !(unit.position == 0 && unit.size == INT32_MAX);
}

static int is_inside(struct unit unit, int64_t data_start, uint64_t data_bytes) {
    return unit.position >= data_start && unit.position - data_start <= (int64_t)data_bytes - unit.size;
}

static int is_of_queue(const struct rmq_name *name, int64_t queue_offset, const uint8_t *record,
                       const struct rmq_record_view *view) {
    return view->queue_id == name->number && view->queue_offset == queue_offset && view->topic_length == name->length &&
           !memcmp(record + view->topic_at, name->bytes, name->length);
}

static int put_unit(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, const struct rmq_name *name,
                    int64_t queue_offset, struct unit unit, const uint8_t *record, struct rmq_record_view *view) {
    int result = rmq_record_parse(record, (size_t)unit.size, 0, view);
    if (result != RMQ_RECORD_OK)
        return result;
    view->position = unit.position;
    if (view->total_size != unit.size || view->physical_offset != unit.position ||
        !is_of_queue(name, queue_offset, record, view))
        return RMQ_WALK_FOREIGN_QUEUE;
    if (is_held_back(view->sys_flag) || !is_in_time(wanted, view))
        return RMQ_RECORD_OK;
    return put_record(rows, wanted, record, view);
}

/* Number of units, at most `limit`, that are written without a gap. */
static uint64_t written_units(const uint8_t *units, uint64_t limit) {
    uint64_t count = 0;
    while (count < limit && is_written(unit_at(units, count)))
        count++;
    return count;
}

/* `count` times the same text. */
static void repeat_text(struct rmq_text_column *column, uint64_t row, uint64_t count, const struct rmq_name *text) {
    int32_t used = column->offsets[row];
    uint64_t total = count * text->length, done = text->length;
    for (uint64_t i = 1; i <= count; i++)
        column->offsets[row + i] = used + (int32_t)(i * text->length);
    if (!total)
        return;
    memcpy(column->bytes + used, text->bytes, text->length);
    for (; done < total; done *= 2)
        memcpy(column->bytes + used + done, column->bytes + used, done < total - done ? done : total - done);
}

/* Rows from units and their queue alone, column by column, as many as fit. The stop counts units. */
static void put_units_alone(struct rmq_arrow_rows *rows, const struct rmq_name *name, const uint8_t *units,
                            uint64_t from, uint64_t count, int64_t unit_offset, struct rmq_walk_stop *stop) {
    uint64_t row = rows->count, room = rows->rows_max - row;
    if (rows->topic.offsets && name->length) {
        uint64_t texts = (rows->topic.size - (uint64_t)rows->topic.offsets[row]) / name->length;
        room = texts < room ? texts : room;
    }
    const uint8_t *first = units + from * RMQ_CQ_UNIT_BYTES;
    uint64_t left = count - from, written = written_units(first, left <= room ? left : room + 1);
    uint64_t taken = written < room ? written : room;
    if (rows->topic.offsets)
        repeat_text(&rows->topic, row, taken, name);
    for (uint64_t i = 0; rows->partition && i < taken; i++)
        rows->partition[row + i] = name->number;
    for (uint64_t i = 0; rows->offset && i < taken; i++)
        rows->offset[row + i] = unit_offset + (int64_t)(from + i);
    for (uint64_t i = 0; rows->commit_log_offset && i < taken; i++)
        rows->commit_log_offset[row + i] = unit_at(first, i).position;
    rows->count += taken;
    stop->at = from + taken;
    stop->reason = taken == left ? RMQ_SCAN_END : taken < written ? RMQ_SCAN_FULL : RMQ_WALK_NO_UNIT;
}

void rmq_rows_from_units(struct rmq_arrow_rows *rows, const struct rmq_wanted_rows *wanted, uint32_t queue,
                         const uint8_t *units, uint64_t from, uint64_t count, int64_t unit_offset, const uint8_t *data,
                         uint64_t data_bytes, int64_t data_start, struct rmq_walk_stop *stop) {
    const struct rmq_name *name = &wanted->queues.names[queue];
    int reason = RMQ_SCAN_END;
    if (!data) {
        put_units_alone(rows, name, units, from, count, unit_offset, stop);
        return;
    }
    for (; from < count; from++) {
        struct unit unit = unit_at(units, from);
        int64_t queue_offset = unit_offset + (int64_t)from;
        if (!is_written(unit)) {
            reason = RMQ_WALK_NO_UNIT;
            break;
        }
        if (!is_inside(unit, data_start, data_bytes)) {
            reason = RMQ_WALK_OUTSIDE;
        } else {
            struct unit ahead = unit_at(units, from + UNITS_AHEAD < count ? from + UNITS_AHEAD : from);
            if (is_written(ahead) && is_inside(ahead, data_start, data_bytes))
                rmq_prefetch_record(data + (ahead.position - data_start), ahead.size, TAIL_BYTES);
            const uint8_t *record = data + (unit.position - data_start);
            reason = put_unit(rows, wanted, name, queue_offset, unit, record, &stop->view);
        }
        if (reason != RMQ_RECORD_OK)
            break;
        reason = RMQ_SCAN_END;
    }
    stop->at = from;
    stop->reason = reason;
}
