/* siphash.h: SipHash-2-4 with 128 bits of result (Aumasson, Bernstein). C only.
 *
 * For tables whose keys clients choose: two keys that are equal to the table cannot be made without the secret.
 */
#ifndef RMQ_SIPHASH_H
#define RMQ_SIPHASH_H

#include <stdint.h>
#include <string.h>

struct rmq_hash128 {
    uint64_t low, high;
};

struct rmq_siphash {
    uint64_t v[4];
    uint64_t word;   /* bytes that fill no word yet */
    uint64_t length; /* of all bytes */
};

static inline uint64_t rmq_siphash_rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline void rmq_siphash_rounds(uint64_t v[4], int rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[1] = rmq_siphash_rotate(v[1], 13) ^ v[0];
        v[0] = rmq_siphash_rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rmq_siphash_rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rmq_siphash_rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rmq_siphash_rotate(v[1], 17) ^ v[2];
        v[2] = rmq_siphash_rotate(v[2], 32);
    }
}

static inline void rmq_siphash_word(struct rmq_siphash *s, uint64_t word)
{
    s->v[3] ^= word;
    rmq_siphash_rounds(s->v, 2);
    s->v[0] ^= word;
}

static inline void rmq_siphash_begin(struct rmq_siphash *s, const uint64_t secret[2])
{
    *s = (struct rmq_siphash){.v = {secret[0] ^ 0x736f6d6570736575u, secret[1] ^ 0x646f72616e646f6du ^ 0xee,
                                    secret[0] ^ 0x6c7967656e657261u, secret[1] ^ 0x7465646279746573u}};
}

static inline void rmq_siphash_add(struct rmq_siphash *s, const uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        s->word |= (uint64_t)bytes[i] << 8 * (s->length & 7);
        if ((++s->length & 7) == 0) {
            rmq_siphash_word(s, s->word);
            s->word = 0;
        }
    }
}

static inline struct rmq_hash128 rmq_siphash_end(struct rmq_siphash *s)
{
    struct rmq_hash128 hash;
    rmq_siphash_word(s, s->word | s->length << 56);
    s->v[2] ^= 0xee;
    rmq_siphash_rounds(s->v, 4);
    hash.low = s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
    s->v[1] ^= 0xdd;
    rmq_siphash_rounds(s->v, 4);
    hash.high = s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
    return hash;
}

#endif
