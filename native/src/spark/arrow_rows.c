#include "spark/arrow_rows.h"

#include <string.h>

#include "base/utf8.h"
#include "codec/property_pairs.h"

#define PAIRS_COMPARED_MAX 64       /* names of a row are compared each with each */
#define OFFSET_ID_BYTES_MAX 56      /* hex of 16-byte host, port and offset */

/* ---- room --------------------------------------------------------------------------------------------------- */

static int text_has_room(const struct rmq_text_column *column, uint64_t count, uint64_t length) {
    return !column->offsets || column->size - (uint64_t)column->offsets[count] >= length;
}

/* A pair has three bytes at least: one of its name, the separator, one of its value. */
static int pairs_have_room(const struct rmq_pair_column *column, uint64_t count, uint32_t length) {
    if (!column->offsets)
        return 1;
    uint64_t used = (uint64_t)column->offsets[count];
    return column->pairs_max - used >= length / 3 + 1 && text_has_room(&column->name, used, length) &&
           text_has_room(&column->value, used, length);
}

static int has_room(const struct rmq_arrow_rows *rows, const struct rmq_row_source *source) {
    uint64_t count = rows->count;
    uint32_t length = source->properties_length;
    return count < rows->rows_max && text_has_room(&rows->value, count, source->body_length) &&
           text_has_room(&rows->topic, count, source->view->topic_length) && text_has_room(&rows->key, count, length) &&
           text_has_room(&rows->tags, count, length) &&
           text_has_room(&rows->msg_id, count, length + OFFSET_ID_BYTES_MAX) &&
           pairs_have_room(&rows->headers, count, length) && pairs_have_room(&rows->properties, count, length);
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static void put_text(struct rmq_text_column *column, uint64_t row, const uint8_t *bytes, uint32_t length) {
    int32_t used = column->offsets[row];
    if (length)
        memcpy(column->bytes + used, bytes, length);
    column->offsets[row + 1] = used + (int32_t)length;
}

/* A property: null where it is absent, as empty values count as absent. */
static void put_property(struct rmq_text_column *column, uint64_t row, struct rmq_text value) {
    if (!column->offsets)
        return;
    put_text(column, row, value.at, value.length);
    if (value.length)
        column->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
    else
        column->nulls++;
}

static uint8_t *put_hex(uint8_t *to, const uint8_t *bytes, size_t length) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < length; i++) {
        *to++ = (uint8_t)digits[bytes[i] >> 4];
        *to++ = (uint8_t)digits[bytes[i] & 15];
    }
    return to;
}

/* UNIQ_KEY, or where the record is stored (MessageDecoder.createMessageId). */
static void put_message_id(struct rmq_text_column *column, uint64_t row, const struct rmq_row_source *source,
                           struct rmq_text uniq_key) {
    if (uniq_key.length) {
        put_text(column, row, uniq_key.at, uniq_key.length);
        return;
    }
    uint8_t text[OFFSET_ID_BYTES_MAX];
    size_t host_bytes = source->view->sys_flag & RMQ_SYS_STORE_HOST_V6 ? 20 : 8;
    uint64_t position = __builtin_bswap64((uint64_t)source->view->position);
    uint8_t *end = put_hex(text, source->record + source->view->store_host_at, host_bytes);
    end = put_hex(end, (const uint8_t *)&position, sizeof position);
    put_text(column, row, text, (uint32_t)(end - text));
}

/* ---- properties ---------------------------------------------------------------------------------------------- */

struct found_keys {
    struct rmq_text keys;
    struct rmq_text tags;
    struct rmq_text uniq_key;
};

static void find_keys(const uint8_t *at, const uint8_t *end, struct found_keys *out) {
    memset(out, 0, sizeof *out);
    while (at < end) {
        const uint8_t *stop = memchr(at, RMQ_PAIR_END, (size_t)(end - at));
        if (!stop)
            stop = end;
        size_t length = (size_t)(stop - at);
        if (length > 5 && at[4] == RMQ_NAME_VALUE) {
            struct rmq_text value = {at + 5, (uint32_t)(length - 5)};
            if (!memcmp(at, "KEYS", 4))
                out->keys = value;
            else if (!memcmp(at, "TAGS", 4))
                out->tags = value;
        } else if (length > 9 && at[8] == RMQ_NAME_VALUE && !memcmp(at, "UNIQ_KEY", 8)) {
            out->uniq_key = (struct rmq_text){at + 9, (uint32_t)(length - 9)};
        }
        at = stop < end ? stop + 1 : end;
    }
}

static int is_same_name(struct rmq_text a, struct rmq_text b) {
    return a.length == b.length && !memcmp(a.at, b.at, a.length);
}

/* The row's pairs in the order of their names' first occurrence, of equal names the last value; -1: too many. */
static int distinct_pairs(const struct rmq_row_source *source, struct rmq_pair *pairs) {
    const uint8_t *at = source->properties, *end = at + source->properties_length;
    struct rmq_pair pair;
    int count = 0;
    while (rmq_next_pair(&at, end, &pair)) {
        int i = 0;
        while (i < count && !is_same_name(pairs[i].name, pair.name))
            i++;
        if (i == PAIRS_COMPARED_MAX)
            return -1;
        pairs[i] = pair;
        count += i == count;
    }
    return count;
}

static uint64_t put_pair(struct rmq_pair_column *column, uint64_t at, const struct rmq_pair *pair) {
    put_text(&column->name, at, pair->name.at, pair->name.length);
    put_text(&column->value, at, pair->value.at, pair->value.length);
    return at + 1;
}

static int is_header(const struct rmq_arrow_rows *rows, const struct rmq_pair *pair) {
    return rmq_name_find(&rows->system_names, pair->name.at, pair->name.length, 0) == RMQ_NAME_NONE;
}

/* From `pairs`, or if NULL from the source, whose names are distinct. */
static void put_pairs(struct rmq_arrow_rows *rows, struct rmq_pair_column *column, const struct rmq_row_source *source,
                      const struct rmq_pair *pairs, int pair_count) {
    int headers_only = column == &rows->headers;
    uint64_t row = rows->count, first = (uint64_t)column->offsets[row], at = first;
    if (pairs) {
        for (int i = 0; i < pair_count; i++)
            if (!headers_only || is_header(rows, &pairs[i]))
                at = put_pair(column, at, &pairs[i]);
    } else {
        const uint8_t *from = source->properties, *end = from + source->properties_length;
        struct rmq_pair pair;
        while (rmq_next_pair(&from, end, &pair))
            if (!headers_only || is_header(rows, &pair))
                at = put_pair(column, at, &pair);
    }
    column->offsets[row + 1] = (int32_t)at;
    if (!column->validity)
        return;
    if (at > first)
        column->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
    else
        column->nulls++;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static int wants_text(const struct rmq_arrow_rows *rows) {
    return rows->tags.offsets || rows->msg_id.offsets || rows->headers.offsets || rows->properties.offsets;
}

static void put_numbers(const struct rmq_arrow_rows *rows, const struct rmq_row_source *source) {
    const struct rmq_record_view *view = source->view;
    uint64_t row = rows->count;
    if (rows->partition)
        rows->partition[row] = view->queue_id;
    if (rows->offset)
        rows->offset[row] = source->queue_offset;
    if (rows->timestamp_us)
        rows->timestamp_us[row] = (int64_t)((uint64_t)view->store_time_ms * 1000);
    if (rows->born_timestamp_us)
        rows->born_timestamp_us[row] = (int64_t)((uint64_t)view->born_time_ms * 1000);
    if (rows->sys_flag)
        rows->sys_flag[row] = view->sys_flag;
    if (rows->commit_log_offset)
        rows->commit_log_offset[row] = view->position;
}

int rmq_row_put(struct rmq_arrow_rows *rows, const struct rmq_row_source *source) {
    struct rmq_pair pairs[PAIRS_COMPARED_MAX];
    int pair_count = 0, wants_pairs = rows->headers.offsets || rows->properties.offsets;
    uint64_t row = rows->count;
    if (!has_room(rows, source))
        return RMQ_SCAN_FULL;
    if (!source->is_clean) {
        if (wants_text(rows) && !rmq_is_utf8(source->properties, source->properties_length))
            return RMQ_ROW_FALLBACK;
        if (wants_pairs && (pair_count = distinct_pairs(source, pairs)) < 0)
            return RMQ_ROW_FALLBACK;
    }
    put_numbers(rows, source);
    if (rows->value.offsets)
        put_text(&rows->value, row, source->body, source->body_length);
    if (rows->topic.offsets)
        put_text(&rows->topic, row, source->record + source->view->topic_at, source->view->topic_length);
    if (rows->key.offsets || rows->tags.offsets || rows->msg_id.offsets) {
        struct found_keys found;
        find_keys(source->properties, source->properties + source->properties_length, &found);
        put_property(&rows->key, row, found.keys);
        put_property(&rows->tags, row, found.tags);
        if (rows->msg_id.offsets)
            put_message_id(&rows->msg_id, row, source, found.uniq_key);
    }
    const struct rmq_pair *compared = source->is_clean ? NULL : pairs;
    if (rows->headers.offsets)
        put_pairs(rows, &rows->headers, source, compared, pair_count);
    if (rows->properties.offsets)
        put_pairs(rows, &rows->properties, source, compared, pair_count);
    rows->count++;
    return RMQ_RECORD_OK;
}
