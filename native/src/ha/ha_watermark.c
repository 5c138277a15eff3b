#include "ha/ha_watermark.h"

static uint64_t offset_at(const struct rmq_ha_peer *peer, uint32_t level, uint64_t append_offset)
{
    if (level <= RMQ_HA_LEVEL_HANDED)
        return append_offset;
    if (level == RMQ_HA_LEVEL_SENT)
        return peer->sent_offset;
    if (level == RMQ_HA_LEVEL_RECEIVED)
        return peer->received_offset;
    return peer->level >= level ? peer->reported_offset : 0;
}

/* The count-th largest offset among the peers that count, 0 when there are fewer. */
static uint64_t reached(const struct rmq_ha_condition *condition, const struct rmq_ha_peer *peers,
                        uint64_t append_offset)
{
    uint64_t largest[RMQ_HA_PEERS_MAX];
    uint32_t found = 0;
    for (uint32_t i = 0; i < RMQ_HA_PEERS_MAX; i++) {
        const struct rmq_ha_peer *peer = &peers[i];
        if (!(condition->peers >> i & 1) || peer->state != RMQ_HA_TRANSFER || !(peer->flags & RMQ_HA_PEER_COUNTS))
            continue;
        uint64_t offset = offset_at(peer, condition->level, append_offset);
        uint32_t at = found++;
        for (; at && largest[at - 1] < offset; at--)
            largest[at] = largest[at - 1];
        largest[at] = offset;
    }
    if (!condition->count)
        return append_offset;
    return condition->count <= found ? largest[condition->count - 1] : 0;
}

uint64_t rmq_ha_watermark(const struct rmq_ha_requirement *requirement, const struct rmq_ha_peer *peers,
                          uint64_t append_offset)
{
    uint64_t lowest = append_offset;
    for (uint32_t i = 0; i < requirement->count && i < RMQ_HA_CONDITIONS_MAX; i++) {
        uint64_t offset = reached(&requirement->conditions[i], peers, append_offset);
        lowest = offset < lowest ? offset : lowest;
    }
    return lowest;
}
