/* name_hash.h: SipHash-1-3 (Aumasson, Bernstein) for tables in memory whose keys clients choose. C only.
 *
 * A client that knows the hash can make thousands of names of one cell, and each look-up then walks over all of them. The
 * secret prevents that: the plane has one in its header, and every other table one of its own (native/table_secret.py). No
 * file of the store, log or peer gets a secret or a hash. Timers take equal hashes for equal keys, so they need the rounds of
 * siphash.h. The tables here compare the names as well, so fewer rounds are enough.
 */
#ifndef RMQ_NAME_HASH_H
#define RMQ_NAME_HASH_H

#include <stdint.h>
#include <string.h>

#include "base/siphash.h"

static inline void rmq_name_hash_begin(uint64_t v[4], const uint64_t secret[2])
{
    v[0] = secret[0] ^ 0x736f6d6570736575u;
    v[1] = secret[1] ^ 0x646f72616e646f6du;
    v[2] = secret[0] ^ 0x6c7967656e657261u;
    v[3] = secret[1] ^ 0x7465646279746573u;
}

static inline void rmq_name_hash_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    rmq_siphash_rounds(v, 1);
    v[0] ^= word;
}

/* The bytes that fill no word are in the lower bytes of `rest`, the number of all bytes is in its highest byte. */
static inline uint32_t rmq_name_hash_end(uint64_t v[4], uint64_t rest)
{
    rmq_name_hash_word(v, rest);
    v[2] ^= 0xff;
    rmq_siphash_rounds(v, 3);
    return (uint32_t)(v[0] ^ v[1] ^ v[2] ^ v[3]);
}

/* The bytes at the end of a name that fill no word. Behind other words one load gets them, with bytes in front that it drops. */
static inline uint64_t rmq_name_rest(const uint8_t *name, uint32_t length)
{
    uint32_t count = length & 7;
    const uint8_t *rest = name + length - count;
    uint64_t word = 0;
    if (!count)
        return 0;
    if (length > 8) {
        memcpy(&word, name + length - 8, 8);
        return word >> 8 * (8 - count);
    }
    while (count--)
        word = word << 8 | rest[count];
    return word;
}

/* `before`: bytes of the words that `v` has already. */
static inline uint32_t rmq_name_hash_bytes(uint64_t v[4], const uint8_t *name, uint32_t length, uint32_t before)
{
    uint64_t word;
    for (uint32_t at = 0; at + 8 <= length; at += 8) {
        memcpy(&word, name + at, 8);
        rmq_name_hash_word(v, word);
    }
    return rmq_name_hash_end(v, rmq_name_rest(name, length) | (uint64_t)(before + length) << 56);
}

/* The lower 32 bits of the SipHash of the bytes. */
static inline uint32_t rmq_name_hash(const uint64_t secret[2], const uint8_t *bytes, uint32_t length)
{
    uint64_t v[4];
    rmq_name_hash_begin(v, secret);
    return rmq_name_hash_bytes(v, bytes, length, 0);
}

/* Of a name with a second part: the number as a word of 64 bits, then the bytes. */
static inline uint32_t rmq_numbered_name_hash(const uint64_t secret[2], const uint8_t *bytes, uint32_t length, int32_t number)
{
    uint64_t v[4];
    rmq_name_hash_begin(v, secret);
    rmq_name_hash_word(v, (uint32_t)number);
    return rmq_name_hash_bytes(v, bytes, length, 8);
}

/* Of two numbers, as one word. Clients choose which pairs there are. */
static inline uint32_t rmq_pair_hash(const uint64_t secret[2], uint32_t a, uint32_t b)
{
    uint64_t v[4];
    rmq_name_hash_begin(v, secret);
    rmq_name_hash_word(v, (uint64_t)a << 32 | b);
    return rmq_name_hash_end(v, 8ull << 56);
}
#endif
