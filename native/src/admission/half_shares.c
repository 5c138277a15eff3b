/* half_shares.c: the shares of open half messages. Twin: ipc/half_shares.py. */
#include "admission/half_shares.h"

#include <stdio.h>

#include "base/name_hash.h"
#include "codec/property_pairs.h"
#include "plane/ring.h"

#define V6_NETWORK_BYTES 8

struct rmq_half_keys rmq_half_keys_of(const uint64_t *secret, const uint8_t *host, int is_v6, const uint8_t *properties,
                                      uint32_t length)
{
    const uint8_t *at = properties, *end = properties + length;
    struct rmq_text group = {at, 0};
    struct rmq_pair pair;
    while (rmq_next_pair(&at, end, &pair))
        if (rmq_text_is(pair.name, "PGROUP", sizeof "PGROUP" - 1))
            group = pair.value;
    return (struct rmq_half_keys){
        .host = rmq_name_hash(secret, host, is_v6 ? V6_NETWORK_BYTES : 4),
        .group = rmq_name_hash(secret, group.at, group.length),
    };
}

static uint32_t place(uint32_t key, int row) { return row ? key >> 16 : key & (RMQ_HALF_CELLS - 1); }

uint32_t rmq_half_count(const struct rmq_half_cells *cells, uint32_t key)
{
    uint32_t one = rmq_load_relaxed(&cells->row[0][place(key, 0)]), other = rmq_load_relaxed(&cells->row[1][place(key, 1)]);
    return one < other ? one : other;
}

/* A worker may have died between the two rows, so a cell may be one too small until its replacement has counted again. */
void rmq_half_add(struct rmq_half_cells *cells, uint32_t key, int by)
{
    for (int row = 0; row < 2; row++) {
        uint32_t *cell = &cells->row[row][place(key, row)];
        if (by > 0 || *cell)
            rmq_store_relaxed(cell, *cell + (uint32_t)by);
    }
}

uint32_t rmq_half_room(const struct rmq_half_shares *shares, const struct rmq_admission_rule *rule, uint64_t end,
                       struct rmq_half_keys keys, uint64_t *found)
{
    uint64_t arrived = rmq_load(&shares->arrived);
    *found = rmq_load(&shares->open) + (end > arrived ? end - arrived : 0);
    if (*found >= rule->halves_max)
        return RMQ_HALF_ALL_FULL;
    if ((*found = rmq_half_count(&shares->hosts, keys.host)) >= rule->host_halves_max)
        return RMQ_HALF_HOST_FULL;
    return (*found = rmq_half_count(&shares->groups, keys.group)) >= rule->group_halves_max ? RMQ_HALF_GROUP_FULL : RMQ_HALF_FITS;
}

void rmq_half_remark(char *to, uint32_t full, const struct rmq_admission_rule *rule, uint64_t found)
{
    const char *of = full == RMQ_HALF_ALL_FULL ? "" : full == RMQ_HALF_HOST_FULL ? " of the producer's host" : " of the producer group";
    const char *name = full == RMQ_HALF_ALL_FULL ? "ringmqOpenHalvesMax" : full == RMQ_HALF_HOST_FULL ? "ringmqHostOpenHalvesMax"
                                                                                                  : "ringmqGroupOpenHalvesMax";
    uint32_t limit = full == RMQ_HALF_ALL_FULL ? rule->halves_max : full == RMQ_HALF_HOST_FULL ? rule->host_halves_max
                                                                                                : rule->group_halves_max;
    snprintf(to, RMQ_HALF_REMARK_MAX,
             "[OVERLOAD]%llu half messages%s are open, %s is %u: the half message is not stored, end open transactions and try again "
             "later", (unsigned long long)found, of, name, limit);
}
