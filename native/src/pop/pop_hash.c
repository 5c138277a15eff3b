/* pop_hash.c: entries of POP by a key that the caller knows. */
#include "pop/pop_hash.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS_MIN 64

int rmq_pop_hash_open(struct rmq_pop_hash *h, uint32_t entries_max, int has_prev,
                      uint64_t (*hash_of)(const void *owner, uint32_t entry), const void *owner)
{
    uint32_t capacity = entries_max < BUCKETS_MIN ? BUCKETS_MIN : entries_max;
    *h = (struct rmq_pop_hash){.buckets = BUCKETS_MIN, .capacity = capacity, .hash_of = hash_of, .owner = owner};
    h->heads = calloc(capacity, sizeof *h->heads);
    h->next = calloc(capacity, sizeof *h->next);
    h->prev = has_prev ? calloc(capacity, sizeof *h->prev) : NULL;
    return h->heads && h->next && (h->prev || !has_prev) ? 0 : -ENOMEM;
}

void rmq_pop_hash_close(struct rmq_pop_hash *h)
{
    free(h->heads);
    free(h->next);
    free(h->prev);
}

void rmq_pop_hash_expect(struct rmq_pop_hash *h, uint32_t count)
{
    if (!h->count && count > h->buckets)
        h->buckets = count < h->capacity ? count : h->capacity;
}

static void push(struct rmq_pop_hash *h, uint32_t bucket, uint32_t entry)
{
    uint32_t first = h->heads[bucket];
    h->next[entry] = first;
    if (h->prev) {
        h->prev[entry] = 0;
        if (first)
            h->prev[first - 1] = entry + 1;
    }
    h->heads[bucket] = entry + 1;
}

/* Adds one bucket, which takes its share of the bucket half a table below. */
static void split(struct rmq_pop_hash *h)
{
    uint32_t added = h->buckets++, from = added - (1u << (31 - __builtin_clz(added)));
    uint32_t at = h->heads[from];
    h->heads[from] = h->heads[added] = 0;
    while (at) {
        uint32_t entry = at - 1;
        at = h->next[entry];
        push(h, rmq_pop_hash_bucket(h->buckets, h->hash_of(h->owner, entry)), entry);
    }
}

void rmq_pop_hash_add(struct rmq_pop_hash *h, uint32_t entry)
{
    if (++h->count > h->buckets && h->buckets < h->capacity)
        split(h);
    push(h, rmq_pop_hash_bucket(h->buckets, h->hash_of(h->owner, entry)), entry);
}

void rmq_pop_hash_remove(struct rmq_pop_hash *h, uint32_t entry)
{
    uint32_t next = h->next[entry];
    h->count--;
    if (h->prev && h->prev[entry]) {
        h->next[h->prev[entry] - 1] = next;
    } else {
        uint32_t *at = &h->heads[rmq_pop_hash_bucket(h->buckets, h->hash_of(h->owner, entry))];
        while (*at != entry + 1)
            at = &h->next[*at - 1];
        *at = next;
    }
    if (h->prev && next)
        h->prev[next - 1] = h->prev[entry];
}
