#include "queue/consume_queue.h"

#include "base/bytes.h"

void rmq_cq_encode(uint8_t *to, const struct rmq_cq_unit *units, size_t count) {
    for (size_t i = 0; i < count; i++, to += RMQ_CQ_UNIT_BYTES) {
        rmq_put64(to, (uint64_t)units[i].commit_log_offset);
        rmq_put32(to + 8, (uint32_t)units[i].size);
        rmq_put64(to + 12, (uint64_t)units[i].tags_code);
    }
}

int rmq_cq_decode(const uint8_t *at, struct rmq_cq_unit *out) {
    out->size = (int32_t)__builtin_bswap32(__atomic_load_n((const uint32_t *)(const void *)(at + 8), __ATOMIC_ACQUIRE));
    out->commit_log_offset = (int64_t)rmq_get64(at);
    out->tags_code = (int64_t)rmq_get64(at + 12);
    out->reserved = 0;
    return out->size > 0 && out->commit_log_offset >= 0;
}

int64_t rmq_cq_valid_units(const uint8_t *at, size_t count, int64_t *end_offset) {
    struct rmq_cq_unit unit;
    size_t i = 0;
    *end_offset = -1;
    while (i < count && rmq_cq_decode(at + i * RMQ_CQ_UNIT_BYTES, &unit)) {
        if (!rmq_cq_is_filler(&unit))
            *end_offset = (int64_t)((uint64_t)unit.commit_log_offset + (uint64_t)unit.size);
        i++;
    }
    return (int64_t)i;
}

int64_t rmq_cq_sound_units(const uint8_t *at, size_t count, int64_t log_end, int64_t *end_offset) {
    struct rmq_cq_unit unit;
    size_t i = 0;
    for (; i < count && rmq_cq_decode(at + i * RMQ_CQ_UNIT_BYTES, &unit); i++) {
        if (rmq_cq_is_filler(&unit))
            continue;
        if (unit.commit_log_offset < *end_offset || unit.commit_log_offset > log_end - unit.size)
            break;
        *end_offset = unit.commit_log_offset + unit.size;
    }
    return (int64_t)i;
}

int64_t rmq_cq_units_below(const uint8_t *at, size_t count, int64_t commit_log_offset) {
    struct rmq_cq_unit unit;
    size_t i = 0;
    while (i < count && rmq_cq_decode(at + i * RMQ_CQ_UNIT_BYTES, &unit) && unit.commit_log_offset < commit_log_offset)
        i++;
    return (int64_t)i;
}

int64_t rmq_cq_fillers(const uint8_t *at, size_t count) {
    struct rmq_cq_unit unit;
    size_t i = 0;
    while (i < count && rmq_cq_decode(at + i * RMQ_CQ_UNIT_BYTES, &unit) && rmq_cq_is_filler(&unit))
        i++;
    return (int64_t)i;
}

uint64_t rmq_cq_digest(uint64_t digest, const uint8_t *at, size_t count, int without_tags) {
    struct rmq_cq_unit unit;
    for (size_t i = 0; i < count; i++) {
        rmq_cq_decode(at + i * RMQ_CQ_UNIT_BYTES, &unit);
        digest = rmq_cq_digest_unit(digest, unit.commit_log_offset, unit.size, without_tags ? 0 : unit.tags_code);
    }
    return digest;
}

void rmq_cq_batch_encode(uint8_t *to, const struct rmq_cq_batch_unit *unit) {
    rmq_put64(to, (uint64_t)unit->commit_log_offset);
    rmq_put32(to + 8, (uint32_t)unit->size);
    rmq_put64(to + 12, (uint64_t)unit->tags_code);
    rmq_put64(to + 20, (uint64_t)unit->store_time_ms);
    rmq_put64(to + 28, (uint64_t)unit->base_offset);
    rmq_put16(to + 36, (uint16_t)unit->batch_size);
    rmq_put32(to + 38, UINT32_MAX);
    rmq_put32(to + 42, 0);
}

int rmq_cq_batch_decode(const uint8_t *at, struct rmq_cq_batch_unit *out) {
    out->commit_log_offset = (int64_t)rmq_get64(at);
    out->size = (int32_t)rmq_get32(at + 8);
    out->tags_code = (int64_t)rmq_get64(at + 12);
    out->store_time_ms = (int64_t)rmq_get64(at + 20);
    out->base_offset = (int64_t)rmq_get64(at + 28);
    out->batch_size = (int16_t)rmq_get16(at + 36);
    return out->size > 0 && out->commit_log_offset >= 0;
}
