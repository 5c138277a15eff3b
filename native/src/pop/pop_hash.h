/* pop_hash.h: entries of POP by a key that the caller knows: chains of u32 links, 8 bytes an entry, 12 with links back.
 *
 * It grows by linear hashing (Litwin 1980): each added entry may split one bucket. So no addition waits for a whole new table.
 */
#ifndef RMQ_POP_HASH_H
#define RMQ_POP_HASH_H
#include <stdint.h>

struct rmq_pop_hash {
    uint32_t *heads;             /* entry + 1; 0 = none */
    uint32_t *next;              /* of each entry: entry + 1 */
    uint32_t *prev;              /* NULL: an entry is looked for in its chain when it leaves */
    uint32_t count, buckets, capacity;
    uint64_t (*hash_of)(const void *owner, uint32_t entry);
    const void *owner;
};

/* 0 or -ENOMEM. Memory is used as entries come. */
int rmq_pop_hash_open(struct rmq_pop_hash *hash, uint32_t entries_max, int has_prev,
                      uint64_t (*hash_of)(const void *owner, uint32_t entry), const void *owner);
void rmq_pop_hash_close(struct rmq_pop_hash *hash);
/* Gives an empty hash the buckets that so many entries will have: adding them splits none. */
void rmq_pop_hash_expect(struct rmq_pop_hash *hash, uint32_t count);
void rmq_pop_hash_add(struct rmq_pop_hash *hash, uint32_t entry);
void rmq_pop_hash_remove(struct rmq_pop_hash *hash, uint32_t entry);

static inline uint64_t rmq_pop_mix(uint64_t word)
{
    word = (word ^ word >> 32) * 0xd6e8feb86659fd93u;
    word = (word ^ word >> 32) * 0xd6e8feb86659fd93u;
    return word ^ word >> 32;
}

static inline uint32_t rmq_pop_hash_bucket(uint32_t buckets, uint64_t hash)
{
    uint32_t mask = 0xffffffffu >> __builtin_clz(buckets | 1);
    uint32_t bucket = (uint32_t)hash & mask;
    return bucket < buckets ? bucket : bucket & mask >> 1;
}

/* The first entry + 1 of the chain of this hash; the next ones are next[entry]. */
static inline uint32_t rmq_pop_hash_first(const struct rmq_pop_hash *hash, uint64_t of)
{
    return hash->heads[rmq_pop_hash_bucket(hash->buckets, of)];
}
#endif
