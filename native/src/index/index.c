#include "index/index.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/bytes.h"
#include "plane/plane.h" /* crash points of the test build */

enum {
    BEGIN_TIME_AT = 0,
    END_TIME_AT = 8,
    BEGIN_OFFSET_AT = 16,
    END_OFFSET_AT = 24,
    COUNTS_AT = 32,
    NEXT_NUMBER_AT = 36,
    ENTRY_OFFSET_AT = 4,
    ENTRY_SECONDS_AT = 12,
    ENTRY_PREVIOUS_AT = 16,
};

/* Mapped words that another process may read, or that must not pass each other when this process is killed. */
static void publish32(uint8_t *at, uint32_t value) {
    __atomic_store_n((uint32_t *)(void *)at, __builtin_bswap32(value), __ATOMIC_RELEASE);
}

static void publish64(uint8_t *at, uint64_t value) {
    __atomic_store_n((uint64_t *)(void *)at, __builtin_bswap64(value), __ATOMIC_RELEASE);
}

static uint32_t observe32(const uint8_t *at) {
    return __builtin_bswap32(__atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE));
}

static uint64_t observe64(const uint8_t *at) {
    return __builtin_bswap64(__atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE));
}

static uint8_t *slot_at(const struct rmq_index *file, uint32_t slot) {
    return file->base + RMQ_INDEX_HEADER_BYTES + (uint64_t)slot * RMQ_INDEX_SLOT_BYTES;
}

static uint8_t *entry_at(const struct rmq_index *file, uint32_t number) {
    return file->base + RMQ_INDEX_HEADER_BYTES + (uint64_t)file->slots * RMQ_INDEX_SLOT_BYTES
           + (uint64_t)number * RMQ_INDEX_ENTRY_BYTES;
}

/* The header is not to be trusted: never more than the file holds. */
static uint32_t next_number(const struct rmq_index *file) {
    int32_t stored = (int32_t)observe32(file->base + NEXT_NUMBER_AT);
    if (stored <= 0)
        return 1;
    return (uint32_t)stored < file->entries_max ? (uint32_t)stored : file->entries_max;
}

int64_t rmq_index_file_size(uint32_t slots, uint32_t entries_max) {
    return RMQ_INDEX_HEADER_BYTES + (int64_t)slots * RMQ_INDEX_SLOT_BYTES + (int64_t)entries_max * RMQ_INDEX_ENTRY_BYTES;
}

/* The entry behind the last counted one may already be named by its slot: give the slot its old value back. */
static void take_back_uncommitted(struct rmq_index *file) {
    uint32_t number = next_number(file);
    if (number >= file->entries_max)
        return;
    const uint8_t *entry = entry_at(file, number);
    int32_t hash = (int32_t)rmq_get32(entry);
    if (hash < 0)
        return;
    uint8_t *slot = slot_at(file, (uint32_t)hash % file->slots);
    uint32_t previous = rmq_get32(entry + ENTRY_PREVIOUS_AT);
    if (observe32(slot) == number && previous < number)
        publish32(slot, previous);
}

int rmq_index_attach(struct rmq_index *file, void *base, size_t bytes, uint32_t slots, uint32_t entries_max,
                     int writable) {
    if (!slots || entries_max < 2 || entries_max > INT32_MAX || slots > INT32_MAX
        || (uint64_t)rmq_index_file_size(slots, entries_max) != bytes || (uintptr_t)base % 8)
        return -EINVAL;
    file->base = base;
    file->slots = slots;
    file->entries_max = entries_max;
    if (writable)
        take_back_uncommitted(file);
    return 0;
}

void rmq_index_header_get(const struct rmq_index *file, struct rmq_index_header *out) {
    uint64_t counts = observe64(file->base + COUNTS_AT);
    int32_t next = (int32_t)(uint32_t)counts;
    out->begin_time_ms = (int64_t)observe64(file->base + BEGIN_TIME_AT);
    out->end_time_ms = (int64_t)observe64(file->base + END_TIME_AT);
    out->begin_offset = (int64_t)observe64(file->base + BEGIN_OFFSET_AT);
    out->end_offset = (int64_t)observe64(file->base + END_OFFSET_AT);
    out->slots_used = (int32_t)(counts >> 32);
    out->next_number = next <= 0 ? 1 : next;
}

void rmq_index_prefill(struct rmq_index *file, const struct rmq_index *full_predecessor) {
    struct rmq_index_header old;
    rmq_index_header_get(full_predecessor, &old);
    if (old.end_time_ms > 0) {
        publish64(file->base + BEGIN_TIME_AT, (uint64_t)old.end_time_ms);
        publish64(file->base + END_TIME_AT, (uint64_t)old.end_time_ms);
        RMQ_CRASH("index-prefill-times");
    }
    if (old.end_offset > 0) {
        publish64(file->base + BEGIN_OFFSET_AT, (uint64_t)old.end_offset);
        RMQ_CRASH("index-prefill-begin-offset");
        publish64(file->base + END_OFFSET_AT, (uint64_t)old.end_offset);
        RMQ_CRASH("index-prefill-end-offset");
    }
}

int rmq_index_is_full(const struct rmq_index *file) {
    return next_number(file) >= file->entries_max;
}

static int32_t absolute(int32_t hash) {
    return hash == INT32_MIN ? 0 : hash < 0 ? -hash : hash;
}

int32_t rmq_index_key_hash(const uint8_t *topic, size_t topic_length, const uint8_t *key, size_t key_length) {
    int32_t hash = rmq_java_hash(topic, topic_length);
    hash = (int32_t)((uint32_t)hash * 31u + '#');
    return absolute(rmq_java_hash_from(hash, key, key_length));
}

static int32_t seconds_between(int64_t begin_ms, int64_t store_ms) {
    if (begin_ms <= 0 || store_ms <= begin_ms)
        return 0;
    int64_t seconds = (store_ms - begin_ms) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

int rmq_index_put(struct rmq_index *file, int32_t key_hash, int64_t commit_log_offset, int64_t store_time_ms) {
    uint8_t *base = file->base;
    uint32_t number = next_number(file);
    if (commit_log_offset < (int64_t)rmq_get64(base + END_OFFSET_AT))
        return 0;
    if (number >= file->entries_max || key_hash < 0)
        return -ENOSPC;
    uint8_t *slot = slot_at(file, (uint32_t)key_hash % file->slots);
    uint8_t *entry = entry_at(file, number);
    uint32_t slots_used = rmq_get32(base + COUNTS_AT);
    uint32_t previous = rmq_get32(slot);
    if (previous >= number)
        previous = 0;               /* damaged: names an entry that does not exist yet */
    int32_t seconds = seconds_between((int64_t)rmq_get64(base + BEGIN_TIME_AT), store_time_ms);

    publish64(base + END_TIME_AT, (uint64_t)store_time_ms);
    RMQ_CRASH("index-end-time");
    publish64(base + END_OFFSET_AT, (uint64_t)commit_log_offset);
    RMQ_CRASH("index-end-offset");
    rmq_put32(entry, (uint32_t)key_hash);
    rmq_put64(entry + ENTRY_OFFSET_AT, (uint64_t)commit_log_offset);
    rmq_put32(entry + ENTRY_SECONDS_AT, (uint32_t)seconds);
    rmq_put32(entry + ENTRY_PREVIOUS_AT, previous);
    RMQ_CRASH("index-entry");
    publish32(slot, number);
    RMQ_CRASH("index-slot");
    if (number <= 1) {
        publish64(base + BEGIN_TIME_AT, (uint64_t)store_time_ms);
        publish64(base + BEGIN_OFFSET_AT, (uint64_t)commit_log_offset);
        RMQ_CRASH("index-begin");
    }
    publish64(base + COUNTS_AT, (uint64_t)(slots_used + (previous == 0)) << 32 | (number + 1));
    return 1;
}

/* Puts the key unless it is among the first `*done`; `*seen` counts the keys met. 1, 0 or -ENOSPC. */
static int put_key(struct rmq_index *file, int32_t topic_hash, const uint8_t *key, size_t length, int64_t offset,
                   int64_t store_time_ms, uint32_t *seen, uint32_t *done) {
    if ((*seen)++ < *done)
        return 0;
    int result = rmq_index_put(file, absolute(rmq_java_hash_from(topic_hash, key, length)), offset, store_time_ms);
    if (result >= 0)
        (*done)++;
    return result;
}

int rmq_index_put_record(struct rmq_index *file, const uint8_t *topic, size_t topic_length,
                         const struct rmq_dispatch_keys *keys, int32_t sys_flag, int64_t commit_log_offset,
                         int64_t store_time_ms, uint32_t *done) {
    uint32_t seen = 0;
    int put = 0, result = 0;
    if ((sys_flag & RMQ_SYS_TRANSACTION_MASK) == RMQ_SYS_TRANSACTION_ROLLBACK)
        return 0;
    int32_t topic_hash = rmq_java_hash(topic, topic_length);
    topic_hash = (int32_t)((uint32_t)topic_hash * 31u + '#');
    if (keys->uniq_key) {
        result = put_key(file, topic_hash, keys->uniq_key, keys->uniq_key_length, commit_log_offset, store_time_ms,
                         &seen, done);
        if (result < 0)
            return result;
        put += result;
    }
    const uint8_t *at = keys->keys, *end = at ? at + keys->keys_length : at;
    while (at < end) {
        const uint8_t *stop = memchr(at, ' ', (size_t)(end - at));
        if (!stop)
            stop = end;
        if (stop > at) {
            result = put_key(file, topic_hash, at, (size_t)(stop - at), commit_log_offset, store_time_ms, &seen, done);
            if (result < 0)
                return result;
            put += result;
        }
        at = stop + 1;
    }
    return put;
}

/* Newest entries of `file` that belong to the record. `*all`: 1 if the file holds no others. */
static uint32_t trailing_entries(const struct rmq_index *file, int64_t commit_log_offset, int *all) {
    uint32_t next = next_number(file), number = next;
    while (number > 1 && (int64_t)rmq_get64(entry_at(file, number - 1) + ENTRY_OFFSET_AT) == commit_log_offset)
        number--;
    *all = number == 1;
    return next - number;
}

uint32_t rmq_index_replayed(const struct rmq_index *newest, const struct rmq_index *previous,
                            int64_t commit_log_offset) {
    if (commit_log_offset < (int64_t)observe64(newest->base + END_OFFSET_AT))
        return UINT32_MAX;
    int all;
    uint32_t done = trailing_entries(newest, commit_log_offset, &all);
    if (all && previous && previous->base)
        done += trailing_entries(previous, commit_log_offset, &all);
    return done;
}

int64_t rmq_index_truncate(struct rmq_index *file, int64_t commit_log_offset) {
    uint8_t *base = file->base;
    uint32_t next = next_number(file), first = next;
    while (first > 1) {
        const uint8_t *entry = entry_at(file, first - 1);
        if ((int64_t)rmq_get64(entry + ENTRY_OFFSET_AT) < commit_log_offset)
            break;
        first--;
        uint32_t hash = rmq_get32(entry), previous = rmq_get32(entry + ENTRY_PREVIOUS_AT);
        uint8_t *slot = slot_at(file, hash % file->slots);
        if (hash > INT32_MAX || observe32(slot) != first)
            continue;
        previous = previous < first ? previous : 0;
        publish32(slot, previous);
        publish64(base + COUNTS_AT, (uint64_t)(rmq_get32(base + COUNTS_AT) - (previous == 0)) << 32 | first);
    }
    if (first == next && (int64_t)rmq_get64(base + END_OFFSET_AT) < commit_log_offset)
        return 0;
    publish32(base + NEXT_NUMBER_AT, first);
    uint64_t end_offset = first > 1 ? rmq_get64(entry_at(file, first - 1) + ENTRY_OFFSET_AT) : 0;
    publish64(base + END_OFFSET_AT, end_offset);
    return next - first;
}

int64_t rmq_index_query(const struct rmq_index *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                        int64_t *offsets, size_t offsets_max) {
    uint32_t steps = UINT32_MAX;    /* a file has fewer entries */
    return rmq_index_query_bounded(file, key_hash, begin_ms, end_ms, &steps, offsets, offsets_max);
}

int64_t rmq_index_query_bounded(const struct rmq_index *file, int32_t key_hash, int64_t begin_ms, int64_t end_ms,
                                uint32_t *steps, int64_t *offsets, size_t offsets_max) {
    if (key_hash < 0)
        return 0;
    uint32_t next = next_number(file);
    int64_t file_begin_ms = (int64_t)observe64(file->base + BEGIN_TIME_AT);
    uint32_t number = observe32(slot_at(file, (uint32_t)key_hash % file->slots));
    size_t count = 0;
    while (number > 0 && number < file->entries_max && number <= next && count < offsets_max && *steps) {
        --*steps;
        const uint8_t *entry = entry_at(file, number);
        int32_t seconds = (int32_t)rmq_get32(entry + ENTRY_SECONDS_AT);
        uint32_t previous = rmq_get32(entry + ENTRY_PREVIOUS_AT);
        if (seconds < 0)
            break;
        int64_t time_ms = file_begin_ms + (int64_t)seconds * 1000;
        if (rmq_get32(entry) == (uint32_t)key_hash && time_ms >= begin_ms && time_ms <= end_ms)
            offsets[count++] = (int64_t)rmq_get64(entry + ENTRY_OFFSET_AT);
        if (previous >= number || time_ms < begin_ms)
            break;                  /* chains run strictly backwards: anything else is damage and could be a circle */
        number = previous;
    }
    return (int64_t)count;
}

int rmq_index_entry(const struct rmq_index *file, int32_t number, int32_t *key_hash, int64_t *commit_log_offset,
                    int32_t *seconds, int32_t *previous) {
    if (number < 1 || (uint32_t)number >= next_number(file))
        return -EINVAL;
    const uint8_t *entry = entry_at(file, (uint32_t)number);
    *key_hash = (int32_t)rmq_get32(entry);
    *commit_log_offset = (int64_t)rmq_get64(entry + ENTRY_OFFSET_AT);
    *seconds = (int32_t)rmq_get32(entry + ENTRY_SECONDS_AT);
    *previous = (int32_t)rmq_get32(entry + ENTRY_PREVIOUS_AT);
    return 0;
}

int64_t rmq_index_check(const struct rmq_index *file) {
    uint32_t next = next_number(file);
    int64_t reached = 0;
    for (uint32_t slot = 0; slot < file->slots; slot++) {
        uint32_t number = observe32(slot_at(file, slot));
        while (number > 0 && number < next) {
            const uint8_t *entry = entry_at(file, number);
            uint32_t hash = rmq_get32(entry), previous = rmq_get32(entry + ENTRY_PREVIOUS_AT);
            if (hash > INT32_MAX || hash % file->slots != slot)
                break;
            reached++;
            if (previous >= number)
                break;
            number = previous;
        }
    }
    return (int64_t)next - 1 - reached;
}
