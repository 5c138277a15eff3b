/* A read-only hash table from (bytes, number) to a place in a list: queues by topic and queue id, property names. */
#ifndef RMQ_NAME_TABLE_H
#define RMQ_NAME_TABLE_H

#include <stdint.h>

/* cdef-begin */
struct rmq_name {
    const uint8_t *bytes;
    uint32_t length;
    int32_t number;
};

/* `slots` has a power of two of entries, at least twice `count`; 0 is empty, else the place in `names` plus 1. */
struct rmq_name_table {
    const struct rmq_name *names;
    uint32_t *slots;
    uint32_t count;
    uint32_t mask;
    uint64_t secret[2]; /* see name_hash.h */
};

void rmq_name_table_fill(struct rmq_name_table *table);
/* cdef-end */

#define RMQ_NAME_NONE UINT32_MAX

/* The place of the name, RMQ_NAME_NONE when it is not there. */
uint32_t rmq_name_find(const struct rmq_name_table *table, const uint8_t *bytes, uint32_t length, int32_t number);

#endif
