#include "columns.h"

static void place(const uint8_t *record, const uint8_t *value, uint32_t length, uint32_t *at, uint32_t *size) {
    *at = value && length ? (uint32_t)(value - record) : 0;
    *size = value ? length : 0;
}

void rmq_rows_keys(const uint8_t *file, int64_t file_start, const struct rmq_record_view *rows, size_t count,
                   struct rmq_row_keys *out) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = file + (rows[i].position - file_start);
        struct rmq_dispatch_keys keys;
        rmq_dispatch_keys_find(record + rows[i].properties_at, rows[i].properties_length, &keys);
        place(record, keys.tags, keys.tags_length, &out[i].tags_at, &out[i].tags_length);
        place(record, keys.keys, keys.keys_length, &out[i].keys_at, &out[i].keys_length);
        place(record, keys.uniq_key, keys.uniq_key_length, &out[i].uniq_key_at, &out[i].uniq_key_length);
    }
}
