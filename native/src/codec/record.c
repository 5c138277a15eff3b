#include "codec/record.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <libdeflate.h>

#include "base/bytes.h"
#include "base/number_text.h"
#include "codec/property_pairs.h"

enum {
    BODY_BYTES_MAX = INT32_MAX - 65536 - 65536,
    COPY_CHUNK = 16384,             /* CRC and copy alternate in pieces that stay in the first-level cache */
};

uint32_t rmq_crc32(const void *bytes, size_t length) {
    return libdeflate_crc32(0, bytes, length) & 0x7fffffffu;
}

/* ---- Java string hash ---------------------------------------------------------------------------------- */

static inline int is_continuation(uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

/* Decodes one character at `at`, at least one byte left. Sets up to two UTF-16 units, returns bytes consumed.
 * Malformed input yields one U+FFFD for as many bytes as java.lang.String takes together. */
static size_t utf16_units(const uint8_t *at, size_t left, uint32_t units[2], int *count) {
    uint8_t lead = at[0];
    *count = 1;
    units[0] = 0xFFFD;
    if (lead < 0x80) {
        units[0] = lead;
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        if (left < 2 || !is_continuation(at[1]))
            return 1;
        units[0] = (uint32_t)(lead & 0x1F) << 6 | (at[1] & 0x3F);
        return 2;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (left < 2 || !is_continuation(at[1]) || (lead == 0xE0 && at[1] < 0xA0))
            return 1;
        if (left < 3 || !is_continuation(at[2]))
            return 2;
        uint32_t unit = (uint32_t)(lead & 0x0F) << 12 | (uint32_t)(at[1] & 0x3F) << 6 | (at[2] & 0x3F);
        if (unit < 0xD800 || unit > 0xDFFF)
            units[0] = unit;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (left < 2 || !is_continuation(at[1]) || (lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F))
            return 1;
        if (left < 3 || !is_continuation(at[2]))
            return 2;
        if (left < 4 || !is_continuation(at[3]))
            return 3;
        uint32_t point = (uint32_t)(lead & 0x07) << 18 | (uint32_t)(at[1] & 0x3F) << 12
                         | (uint32_t)(at[2] & 0x3F) << 6 | (at[3] & 0x3F);
        point -= 0x10000;
        units[0] = 0xD800 + (point >> 10);
        units[1] = 0xDC00 + (point & 0x3FF);
        *count = 2;
        return 4;
    }
    return 1;
}

int32_t rmq_java_hash_from(int32_t seed, const uint8_t *utf8, size_t length) {
    uint32_t hash = (uint32_t)seed;
    size_t i = 0;
    while (i < length) {
        if (length - i >= 4) {
            uint32_t four;
            memcpy(&four, utf8 + i, sizeof four);
            if (!(four & 0x80808080u)) {
                hash = hash * 923521u + utf8[i] * 29791u + utf8[i + 1] * 961u + utf8[i + 2] * 31u + utf8[i + 3];
                i += 4;
                continue;
            }
        }
        uint32_t units[2];
        int count;
        i += utf16_units(utf8 + i, length - i, units, &count);
        hash = hash * 31u + units[0];
        if (count == 2)
            hash = hash * 31u + units[1];
    }
    return (int32_t)hash;
}

int32_t rmq_java_hash(const uint8_t *utf8, size_t length) {
    return rmq_java_hash_from(0, utf8, length);
}

/* ---- encode ---------------------------------------------------------------------------------------------- */

static uint64_t properties_size(const struct rmq_record_in *in) {
    uint64_t size = 0;
    for (int i = 0; i < RMQ_PROPERTY_PIECES; i++) {
        uint32_t length = in->properties_length[i];
        if (length)
            size += (uint64_t)length + (in->properties[i][length - 1] != RMQ_PAIR_END);
    }
    return size;
}

static uint32_t host_size(int32_t sys_flag, int32_t bit) {
    return sys_flag & bit ? 20 : 8;
}

static int64_t size_with(const struct rmq_record_in *in, uint64_t properties_length) {
    if (properties_length > RMQ_PROPERTIES_BYTES_MAX || in->topic_length > INT16_MAX || in->body_length > BODY_BYTES_MAX)
        return -EMSGSIZE;
    return (int64_t)RMQ_RECORD_FIXED_BYTES - 16 + host_size(in->sys_flag, RMQ_SYS_BORN_HOST_V6)
           + host_size(in->sys_flag, RMQ_SYS_STORE_HOST_V6) + (in->topic_length > INT8_MAX) + in->body_length
           + in->topic_length + (int64_t)properties_length;
}

int64_t rmq_record_size(const struct rmq_record_in *in) {
    return size_with(in, properties_size(in));
}

static uint8_t *put_host(uint8_t *to, const uint8_t *address, int32_t port, uint32_t size) {
    memcpy(to, address, size - 4);
    rmq_put32(to + size - 4, (uint32_t)port);
    return to + size;
}

static uint32_t copy_with_crc(uint8_t *to, const uint8_t *from, size_t length) {
    uint32_t crc = 0;
    for (size_t done = 0; done < length;) {
        size_t chunk = length - done < COPY_CHUNK ? length - done : COPY_CHUNK;
        crc = libdeflate_crc32(crc, from + done, chunk);
        memcpy(to + done, from + done, chunk);
        done += chunk;
    }
    return crc & 0x7fffffffu;
}

int64_t rmq_record_encode(uint8_t *to, size_t room, const struct rmq_record_in *in) {
    uint64_t properties_length = properties_size(in);
    int64_t size = size_with(in, properties_length);
    if (size < 0)
        return size;
    if ((uint64_t)size > room)
        return -ENOSPC;
    int v2 = in->topic_length > INT8_MAX;
    rmq_put32(to, (uint32_t)size);
    rmq_put32(to + 4, v2 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1);
    rmq_put32(to + 12, (uint32_t)in->queue_id);
    rmq_put32(to + 16, (uint32_t)in->flag);
    rmq_put64(to + 20, (uint64_t)in->queue_offset);
    rmq_put64(to + 28, (uint64_t)in->physical_offset);
    rmq_put32(to + 36, (uint32_t)in->sys_flag);
    rmq_put64(to + 40, (uint64_t)in->born_time_ms);
    uint8_t *at = put_host(to + 48, in->born_host, in->born_port, host_size(in->sys_flag, RMQ_SYS_BORN_HOST_V6));
    rmq_put64(at, (uint64_t)in->store_time_ms);
    at = put_host(at + 8, in->store_host, in->store_port, host_size(in->sys_flag, RMQ_SYS_STORE_HOST_V6));
    rmq_put32(at, (uint32_t)in->reconsume_times);
    rmq_put64(at + 4, (uint64_t)in->prepared_transaction_offset);
    rmq_put32(at + 12, in->body_length);
    at += 16;
    rmq_put32(to + 8, copy_with_crc(at, in->body, in->body_length));
    at += in->body_length;
    if (v2) {
        rmq_put16(at, (uint16_t)in->topic_length);
        at += 2;
    } else {
        *at++ = (uint8_t)in->topic_length;
    }
    if (in->topic_length)
        memcpy(at, in->topic, in->topic_length);
    at += in->topic_length;
    rmq_put16(at, (uint16_t)properties_length);
    at += 2;
    for (int i = 0; i < RMQ_PROPERTY_PIECES; i++) {
        uint32_t length = in->properties_length[i];
        if (!length)
            continue;
        memcpy(at, in->properties[i], length);
        at += length;
        if (at[-1] != RMQ_PAIR_END)
            *at++ = RMQ_PAIR_END;
    }
    return size;
}

int64_t rmq_blank_encode(uint8_t *to, size_t remaining) {
    if (remaining < RMQ_BLANK_BYTES || remaining > INT32_MAX)
        return -EINVAL;
    rmq_put32(to, (uint32_t)remaining);
    rmq_put32(to + 4, RMQ_MAGIC_BLANK);
    return RMQ_BLANK_BYTES;
}

/* ---- parse ----------------------------------------------------------------------------------------------- */

/* Fills the lengths behind the hosts; returns 0 or RMQ_RECORD_MALFORMED. `at` counts from the record start. */
static int parse_tail(const uint8_t *record, size_t bound, size_t at, struct rmq_record_view *out) {
    size_t topic_prefix = out->magic == RMQ_MAGIC_V2 ? 2 : 1;
    if (bound - at < 16)
        return RMQ_RECORD_MALFORMED;
    out->reconsume_times = (int32_t)rmq_get32(record + at);
    out->prepared_transaction_offset = (int64_t)rmq_get64(record + at + 4);
    uint32_t body_length = rmq_get32(record + at + 12);
    at += 16;
    if (body_length > bound - at)
        return RMQ_RECORD_MALFORMED;
    out->body_at = (uint32_t)at;
    out->body_length = body_length;
    at += body_length;
    if (bound - at < topic_prefix)
        return RMQ_RECORD_MALFORMED;
    uint32_t topic_length = topic_prefix == 2 ? rmq_get16(record + at) : record[at];
    if (topic_length > (topic_prefix == 2 ? INT16_MAX : INT8_MAX))
        return RMQ_RECORD_MALFORMED;
    at += topic_prefix;
    if (topic_length > bound - at || bound - at - topic_length < 2)
        return RMQ_RECORD_MALFORMED;
    out->topic_at = (uint32_t)at;
    out->topic_length = topic_length;
    at += topic_length;
    uint32_t properties_length = rmq_get16(record + at);
    at += 2;
    if (properties_length > INT16_MAX || properties_length > bound - at)
        return RMQ_RECORD_MALFORMED;
    out->properties_at = (uint32_t)at;
    out->properties_length = properties_length;
    return 0;
}

int rmq_record_parse(const uint8_t *at, size_t left, int check_crc, struct rmq_record_view *out) {
    memset(out, 0, sizeof *out);
    if (left <= 4)
        return RMQ_RECORD_SHORT;
    uint32_t total_size = rmq_get32(at);
    if (total_size > INT32_MAX)
        return RMQ_RECORD_MALFORMED;
    if (total_size > left || left < RMQ_BLANK_BYTES)
        return RMQ_RECORD_SHORT;
    out->total_size = total_size;
    out->magic = rmq_get32(at + 4);
    if (out->magic == RMQ_MAGIC_BLANK)
        return RMQ_RECORD_BLANK;
    if (out->magic != RMQ_MAGIC_V1 && out->magic != RMQ_MAGIC_V2)
        return RMQ_RECORD_BAD_MAGIC;
    if (left < 48 + 8)
        return RMQ_RECORD_MALFORMED;
    out->body_crc = rmq_get32(at + 8);
    out->queue_id = (int32_t)rmq_get32(at + 12);
    out->flag = (int32_t)rmq_get32(at + 16);
    out->queue_offset = (int64_t)rmq_get64(at + 20);
    out->physical_offset = (int64_t)rmq_get64(at + 28);
    out->sys_flag = (int32_t)rmq_get32(at + 36);
    out->born_time_ms = (int64_t)rmq_get64(at + 40);
    out->born_host_at = 48;
    size_t store_time_at = 48 + host_size(out->sys_flag, RMQ_SYS_BORN_HOST_V6);
    size_t reconsume_at = store_time_at + 8 + host_size(out->sys_flag, RMQ_SYS_STORE_HOST_V6);
    if (left < reconsume_at)
        return RMQ_RECORD_MALFORMED;
    out->store_time_ms = (int64_t)rmq_get64(at + store_time_at);
    out->store_host_at = (uint32_t)store_time_at + 8;
    int result = parse_tail(at, left, reconsume_at, out);
    if (result)
        return result;
    if (check_crc && out->body_length && rmq_crc32(at + out->body_at, out->body_length) != out->body_crc)
        return RMQ_RECORD_BAD_CRC;
    if (out->properties_at + out->properties_length != total_size)
        return RMQ_RECORD_BAD_LENGTH;
    return RMQ_RECORD_OK;
}

int64_t rmq_log_scan(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start, int check_crc,
                     struct rmq_record_view *rows, size_t rows_max, uint64_t *at, int *reason) {
    size_t count = 0;
    *reason = RMQ_SCAN_END;
    while (from < end) {
        if (count == rows_max) {
            *reason = RMQ_SCAN_FULL;
            break;
        }
        struct rmq_record_view *row = &rows[count];
        int result = rmq_record_parse(file + from, end - from, check_crc, row);
        if (result != RMQ_RECORD_OK) {
            *reason = result;
            break;
        }
        row->position = file_start + (int64_t)from;
        from += row->total_size;
        count++;
    }
    *at = from;
    return (int64_t)count;
}

int64_t rmq_log_next_record(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start) {
    static const uint8_t magic[3] = {0xDA, 0xA3, 0x20}; /* of both versions */
    struct rmq_record_view view;
    for (uint64_t at = from + 5; at < end;) {
        const uint8_t *found = memmem(file + at, end - at, magic, sizeof magic);
        if (!found)
            break;
        uint64_t place = (uint64_t)(found - file) - 4;
        if (rmq_record_parse(file + place, end - place, 0, &view) == RMQ_RECORD_OK &&
            view.physical_offset == file_start + (int64_t)place)
            return (int64_t)place;
        at = place + 5;
    }
    return -1;
}

/* ---- properties ------------------------------------------------------------------------------------------ */

void rmq_dispatch_keys_find(const uint8_t *properties, size_t length, struct rmq_dispatch_keys *out) {
    const uint8_t *at = properties, *end = properties + length;
    struct rmq_pair pair;
    memset(out, 0, sizeof *out);
    while (rmq_next_pair(&at, end, &pair)) {
        if (rmq_text_is(pair.name, "TAGS", 4)) {
            out->tags = pair.value.at;
            out->tags_length = pair.value.length;
        } else if (rmq_text_is(pair.name, "KEYS", 4)) {
            out->keys = pair.value.at;
            out->keys_length = pair.value.length;
        } else if (rmq_text_is(pair.name, "UNIQ_KEY", 8)) {
            out->uniq_key = pair.value.at;
            out->uniq_key_length = pair.value.length;
        } else if (rmq_text_is(pair.name, "DELAY", 5)) {
            out->delay_level = pair.value.at;
            out->delay_level_length = pair.value.length;
        } else if (rmq_text_is(pair.name, "INNER_NUM", 9)) {
            out->inner_num = pair.value.at;
            out->inner_num_length = pair.value.length;
        }
    }
}

int rmq_properties_state(const uint8_t *properties, size_t length) {
    if (!length)
        return RMQ_PROPERTIES_WHOLE;
    if (memchr(properties, 0, length))
        return RMQ_PROPERTIES_NUL;
    if (properties[length - 1] != RMQ_PAIR_END)
        return RMQ_PROPERTIES_UNENDED;
    const uint8_t *at = properties, *end = properties + length;
    while (at < end) {
        const uint8_t *stop = memchr(at, RMQ_PAIR_END, (size_t)(end - at));
        if (!memchr(at, RMQ_NAME_VALUE, (size_t)(stop - at)))
            return RMQ_PROPERTIES_UNPAIRED;
        at = stop + 1;
    }
    return RMQ_PROPERTIES_WHOLE;
}

int64_t rmq_tags_code(const uint8_t *topic, size_t topic_length, const struct rmq_dispatch_keys *keys,
                      int64_t store_time_ms, const struct rmq_delay_levels *levels) {
    static const char schedule_topic[] = "SCHEDULE_TOPIC_XXXX";
    if (keys->delay_level && levels && topic_length == sizeof schedule_topic - 1
        && !memcmp(topic, schedule_topic, topic_length)) {
        int32_t level = rmq_small_number(keys->delay_level, keys->delay_level_length);
        if (level > levels->count)
            level = levels->count;
        if (level > 0)
            return store_time_ms + (level <= 64 ? levels->delay_ms[level - 1] : 1000);
    }
    return keys->tags ? rmq_java_hash(keys->tags, keys->tags_length) : 0;
}

int32_t rmq_message_count(const struct rmq_dispatch_keys *keys, int32_t sys_flag, int is_batch_queue) {
    if (!(sys_flag & RMQ_SYS_INNER_BATCH) && !is_batch_queue)
        return 1;
    int32_t count = keys->inner_num ? rmq_small_number(keys->inner_num, keys->inner_num_length) : 1;
    return count < 1 ? 1 : count;
}
