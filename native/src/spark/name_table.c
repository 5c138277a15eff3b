#include "spark/name_table.h"

#include <string.h>

#include "base/name_hash.h"

static int is_same(const struct rmq_name *name, const uint8_t *bytes, uint32_t length, int32_t number) {
    return name->number == number && name->length == length && !memcmp(name->bytes, bytes, length);
}

void rmq_name_table_fill(struct rmq_name_table *table) {
    memset(table->slots, 0, ((size_t)table->mask + 1) * sizeof *table->slots);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct rmq_name *name = &table->names[i];
        uint32_t slot = rmq_numbered_name_hash(table->secret, name->bytes, name->length, name->number) & table->mask;
        while (table->slots[slot])
            slot = (slot + 1) & table->mask;
        table->slots[slot] = i + 1;
    }
}

uint32_t rmq_name_find(const struct rmq_name_table *table, const uint8_t *bytes, uint32_t length, int32_t number) {
    uint32_t slot = rmq_numbered_name_hash(table->secret, bytes, length, number) & table->mask;
    for (; table->slots[slot]; slot = (slot + 1) & table->mask) {
        uint32_t place = table->slots[slot] - 1;
        if (is_same(&table->names[place], bytes, length, number))
            return place;
    }
    return RMQ_NAME_NONE;
}
