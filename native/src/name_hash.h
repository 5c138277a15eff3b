/* name_hash.h: a hash for tables in memory, 8 bytes of the name at a step. No file and no peer ever sees it. C only. */
#ifndef RMQ_NAME_HASH_H
#define RMQ_NAME_HASH_H

#include <stdint.h>
#include <string.h>

/* `number`: a second part of the key, 0 where there is none. */
static inline uint32_t rmq_name_hash(const uint8_t *bytes, uint32_t length, int32_t number)
{
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
#endif
