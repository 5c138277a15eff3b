#include "name_table.h"

#include <string.h>

static uint32_t hash_of(const uint8_t *bytes, uint32_t length, int32_t number) {
    uint64_t hash = (uint64_t)(uint32_t)number * 0x9E3779B97F4A7C15u ^ length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        bytes += 8;
        length -= 8;
    }
    for (; length; length--)
        hash = (hash ^ *bytes++) * 0x100000001B3u;
    hash *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash >> 32);
}

static int is_same(const struct rmq_name *name, const uint8_t *bytes, uint32_t length, int32_t number) {
    return name->number == number && name->length == length && !memcmp(name->bytes, bytes, length);
}

void rmq_name_table_fill(struct rmq_name_table *table) {
    memset(table->slots, 0, ((size_t)table->mask + 1) * sizeof *table->slots);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct rmq_name *name = &table->names[i];
        uint32_t slot = hash_of(name->bytes, name->length, name->number) & table->mask;
        while (table->slots[slot])
            slot = (slot + 1) & table->mask;
        table->slots[slot] = i + 1;
    }
}

uint32_t rmq_name_find(const struct rmq_name_table *table, const uint8_t *bytes, uint32_t length, int32_t number) {
    uint32_t slot = hash_of(bytes, length, number) & table->mask;
    for (; table->slots[slot]; slot = (slot + 1) & table->mask) {
        uint32_t place = table->slots[slot] - 1;
        if (is_same(&table->names[place], bytes, length, number))
            return place;
    }
    return RMQ_NAME_NONE;
}
