/* Fuzz driver for record.c, index.c, consume_queue.c, log_recovery.c and log_table.c; built with sanitizers.
 *
 *   fuzz_store SEED ROUNDS
 *
 * Every buffer is a fresh allocation of its exact size, so that one byte read too far is reported. Exits with status 0,
 * or aborts at the first broken rule.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/consume_queue.h"
#include "index/index.h"
#include "recovery/log_recovery.h"
#include "recovery/log_table.h"
#include "codec/record.h"

#define CHECK(rule) \
    do { \
        if (!(rule)) { \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #rule); \
            abort(); \
        } \
    } while (0)

static uint64_t seed;

static uint32_t chance(uint32_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return below ? (uint32_t)(seed >> 20) % below : 0;
}

static uint8_t *junk(size_t size) {
    uint8_t *bytes = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(chance(4) ? chance(256) : chance(4));
    return bytes;
}

/* Properties made of few different bytes, so that pairs, gaps and known names do occur. */
static uint8_t *properties(uint32_t *length) {
    static const char *const pieces[] = {"TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_NUM", "\x01", "\x02", " ", "a",
                                         "\xc3\xbc", "\xf0\x9f\x98\x80", "\xed\xa0\x80", "\xff", "7", "-1"};
    char text[512] = "";
    for (uint32_t i = chance(24); i > 0; i--)
        strcat(text, pieces[chance(sizeof pieces / sizeof *pieces)]);
    *length = (uint32_t)strlen(text);
    uint8_t *bytes = malloc(*length ? *length : 1);
    memcpy(bytes, text, *length);
    return bytes;
}

static uint8_t *random_record(int64_t position, int64_t *size) {
    struct rmq_record_in in = {.queue_offset = chance(1000), .physical_offset = position, .store_time_ms = 1 + chance(99999)};
    uint8_t *pieces[RMQ_PROPERTY_PIECES];
    in.body_length = chance(10) ? chance(300) : chance(40000);
    in.topic_length = chance(20) ? chance(20) : chance(300);
    uint8_t *body = junk(in.body_length), *topic = junk(in.topic_length);
    in.body = body;
    in.topic = topic;
    in.queue_id = (int32_t)chance(4);
    in.sys_flag = (int32_t)chance(256);
    for (int i = 0; i < RMQ_PROPERTY_PIECES; i++)
        in.properties[i] = pieces[i] = properties(&in.properties_length[i]);
    *size = rmq_record_size(&in);
    CHECK(*size >= RMQ_RECORD_FIXED_BYTES);
    uint8_t *record = malloc((size_t)*size);
    CHECK(rmq_record_encode(record, (size_t)*size - 1, &in) < 0);
    CHECK(rmq_record_encode(record, (size_t)*size, &in) == *size);
    free(body);
    free(topic);
    for (int i = 0; i < RMQ_PROPERTY_PIECES; i++)
        free(pieces[i]);
    return record;
}

static void use_view(const uint8_t *at, size_t left, const struct rmq_record_view *view) {
    static const struct rmq_delay_levels levels = {.count = 2, .delay_ms = {1000, 2000}};
    struct rmq_dispatch_keys keys;
    CHECK((uint64_t)view->body_at + view->body_length <= left);
    CHECK((uint64_t)view->topic_at + view->topic_length <= left);
    CHECK((uint64_t)view->properties_at + view->properties_length <= left);
    const uint8_t *text = at + view->properties_at;
    rmq_dispatch_keys_find(text, view->properties_length, &keys);
    CHECK(!keys.tags || (keys.tags >= text && keys.tags + keys.tags_length <= text + view->properties_length));
    rmq_properties_state(text, view->properties_length);
    rmq_tags_code(at + view->topic_at, view->topic_length, &keys, view->store_time_ms, &levels);
    CHECK(rmq_message_count(&keys, view->sys_flag, 1) >= 1);
}

static void fuzz_record(void) {
    int64_t size;
    struct rmq_record_view view;
    uint8_t *record = random_record(0, &size);
    CHECK(rmq_record_parse(record, (size_t)size, 1, &view) == RMQ_RECORD_OK && view.total_size == size);
    use_view(record, (size_t)size, &view);
    size_t cut = chance((uint32_t)size);
    uint8_t *part = malloc(cut ? cut : 1);
    memcpy(part, record, cut);
    CHECK(rmq_record_parse(part, cut, 1, &view) != RMQ_RECORD_OK);
    free(part);
    for (uint32_t i = 1 + chance(8); i > 0; i--)
        record[chance(2) ? chance((uint32_t)size) : chance(100) % (uint32_t)size] = (uint8_t)chance(256);
    if (rmq_record_parse(record, (size_t)size, (int)chance(2), &view) == RMQ_RECORD_OK)
        use_view(record, (size_t)size, &view);
    free(record);
    size_t length = chance(200);
    uint8_t *bytes = junk(length);
    if (length >= 8 && chance(2))
        memcpy(bytes, (uint8_t[]){0, 0, 0, (uint8_t)length, 0xDA, 0xA3, 0x20, chance(2) ? 0xA7 : 0xAB}, 8);
    if (rmq_record_parse(bytes, length, 0, &view) == RMQ_RECORD_OK)
        use_view(bytes, length, &view);
    rmq_java_hash(bytes, length);
    free(bytes);
}

static void fuzz_log(void) {
    enum { FILE_BYTES = 65536 };
    uint8_t *file = calloc(1, FILE_BYTES);
    uint64_t end = 0;
    int64_t size, records = 0;
    for (;;) {
        uint8_t *record = random_record((int64_t)end, &size);
        int fits = end + (uint64_t)size + RMQ_BLANK_BYTES <= FILE_BYTES;
        if (fits)
            memcpy(file + end, record, (size_t)size);
        free(record);
        if (!fits)
            break;
        end += (uint64_t)size;
        records++;
    }
    int damaged = chance(2) != 0;
    for (uint32_t i = damaged ? 1 + chance(20) : 0; i > 0; i--)
        file[chance(FILE_BYTES)] = (uint8_t)chance(256);
    struct rmq_queue_table *table = rmq_queue_table_new((const uint64_t[2]){1, 2});
    struct rmq_log_recovery state;
    rmq_log_recovery_init(&state, table);
    int64_t at = rmq_log_recovery_scan(&state, file, 0, FILE_BYTES, 0, 1);
    CHECK(at >= 0 && at <= FILE_BYTES);
    rmq_log_recovery_finish(&state, (int)chance(2));
    struct rmq_log_row rows[64];
    int32_t hashes[64];
    size_t hashes_count;
    uint64_t from = 0;
    int64_t met = 0;
    int reason;
    for (;;) {
        int64_t got = rmq_log_table(file, from, FILE_BYTES, 0, table, NULL, rows, 64, hashes, 64, &hashes_count, &from,
                                    &reason);
        CHECK(got >= 0 && hashes_count <= 64);
        met += got;
        if (reason != RMQ_SCAN_FULL || !got)
            break;
    }
    CHECK(reason == RMQ_SCAN_FULL || from == (uint64_t)at);
    if (!damaged)
        CHECK(at == (int64_t)end && (reason == RMQ_SCAN_FULL || met == records));
    rmq_queue_table_free(table);
    free(file);
}

static void fuzz_index(void) {
    uint32_t slots = 1 + chance(20), entries = 2 + chance(60);
    size_t bytes = (size_t)rmq_index_file_size(slots, entries);
    struct rmq_index file, next;
    uint8_t *base = calloc(1, bytes), *second = calloc(1, bytes);
    CHECK(rmq_index_attach(&file, base, bytes, slots, entries, 1) == 0);
    CHECK(rmq_index_attach(&next, second, bytes - 1, slots, entries, 1) < 0);
    CHECK(rmq_index_attach(&next, second, bytes, slots, entries, 1) == 0);
    int64_t offset = 0, found[16];
    uint32_t put = 0;
    while (!rmq_index_is_full(&file)) {
        offset += chance(100);
        CHECK(rmq_index_put(&file, (int32_t)chance(50), offset, 1000 + offset) == 1);
        put++;
        if (chance(10) == 0) {
            int64_t cut = offset - chance(300);
            put -= (uint32_t)rmq_index_truncate(&file, cut);
            CHECK(rmq_index_check(&file) == 0);
            offset = cut > 0 ? cut : 0;
        }
    }
    CHECK(put == entries - 1 && rmq_index_check(&file) == 0);
    CHECK(rmq_index_put(&file, 1, offset + 1, 1) < 0);
    rmq_index_prefill(&next, &file);
    for (uint32_t i = chance(2) ? chance(200) : 0; i > 0; i--)
        base[chance((uint32_t)bytes)] = (uint8_t)chance(256);
    CHECK(rmq_index_attach(&file, base, bytes, slots, entries, 1) == 0);
    for (int32_t hash = -1; hash < 60; hash++)
        CHECK(rmq_index_query(&file, hash, 0, INT64_MAX, found, 16) <= 16);
    rmq_index_check(&file);
    rmq_index_replayed(&next, &file, (int64_t)chance(5000));
    if (!rmq_index_is_full(&file))
        rmq_index_put(&file, (int32_t)chance(1000), INT64_MAX, (int64_t)chance(1000));
    rmq_index_truncate(&file, (int64_t)chance(5000));
    int32_t hash, seconds, previous;
    rmq_index_entry(&file, (int32_t)chance(100) - 5, &hash, &offset, &seconds, &previous);
    free(base);
    free(second);
}

static void fuzz_units(void) {
    size_t count = chance(50);
    uint8_t *bytes = junk(count * RMQ_CQ_UNIT_BYTES);
    struct rmq_cq_unit *units = malloc((count + 1) * sizeof *units);
    int64_t end;
    int64_t valid = rmq_cq_valid_units(bytes, count, &end), decoded = 0;
    while (decoded < (int64_t)count && rmq_cq_decode(bytes + decoded * RMQ_CQ_UNIT_BYTES, &units[decoded]))
        decoded++;
    CHECK(valid == decoded);
    CHECK(rmq_cq_units_below(bytes, count, chance(1000)) <= valid);
    uint8_t *again = malloc(count * RMQ_CQ_UNIT_BYTES + 1);
    rmq_cq_encode(again, units, (size_t)valid);
    CHECK(!memcmp(again, bytes, (size_t)valid * RMQ_CQ_UNIT_BYTES));
    free(again);
    free(units);
    free(bytes);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 2654435761u + 1 : 1;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    for (long i = 0; i < rounds; i++) {
        fuzz_record();
        fuzz_units();
        fuzz_index();
        if (i % 8 == 0)
            fuzz_log();
    }
    return 0;
}
