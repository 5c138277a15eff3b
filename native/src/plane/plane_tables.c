/* The tables of the plane: topics, queues, groups, subscriptions, consumer offsets. Control adds and sets, all others find. */
#include "base/name_hash.h"
#include "plane/plane.h"
#include "plane/ring.h"
#include "plane/settings_word.h"

/* --- tables -------------------------------------------------------------------------------------------
 * Open addressing with linear probing over u32 cells (entry number + 1, 0 = free). Entries are filled first, the cell
 * is stored last, nothing is ever removed: a searcher sees a whole entry or none. */

static uint32_t hash_bytes(const struct rmq_plane_header *h, const char *p, uint32_t n)
{
    return rmq_name_hash(h->name_secret, (const uint8_t *)p, n);
}

static uint32_t hash_pair(const struct rmq_plane_header *h, uint32_t a, uint32_t b) { return rmq_pair_hash(h->name_secret, a, b); }

static void cell_insert(uint32_t *cells, uint32_t size, uint32_t hash, uint32_t value)
{
    for (uint32_t i = hash & (size - 1);; i = (i + 1) & (size - 1)) {
        if (!cells[i]) {
            rmq_store(&cells[i], value);
            return;
        }
    }
}

struct rmq_topic *rmq_topic_at(struct rmq_plane *plane, uint32_t id)
{
    return (struct rmq_topic *)(plane->base + rmq_header(plane)->tables.topics_at) + id;
}

struct rmq_queue *rmq_queue_at(struct rmq_plane *plane, uint32_t slot)
{
    return (struct rmq_queue *)(plane->base + rmq_header(plane)->tables.queues_at) + slot;
}

struct rmq_group *rmq_group_at(struct rmq_plane *plane, uint32_t id)
{
    return (struct rmq_group *)(plane->base + rmq_header(plane)->tables.groups_at) + id;
}

uint32_t rmq_topic_find(struct rmq_plane *plane, const char *name, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.topic_hash_at), hash = hash_bytes(h, name, length), id;
    uint32_t mask = h->tables.topic_hash_size - 1;
    for (uint32_t i = hash & mask; (id = rmq_load(&cells[i])); i = (i + 1) & mask) {
        struct rmq_topic *t = rmq_topic_at(plane, id);
        if (t->name_hash == hash && t->name_length == length && !memcmp(t->name, name, length) &&
            rmq_topic_is_live(rmq_load(&t->config)))
            return id;
    }
    return RMQ_NONE;
}

uint32_t rmq_topic_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (length > RMQ_NAME_MAX || h->tables.topic_count >= h->tables.topic_capacity)
        return RMQ_NONE;
    uint32_t id = h->tables.topic_count + 1;
    struct rmq_topic *t = rmq_topic_at(plane, id);
    memcpy(t->name, name, length);
    t->name_length = (uint16_t)length;
    t->name_hash = hash_bytes(h, name, length);
    rmq_store(&t->config, config);
    RMQ_CRASH("control-topic-filled");
    rmq_store(&h->tables.topic_count, id); /* before the cell: a successor must not fill the entry again */
    RMQ_CRASH("control-topic-counted");
    cell_insert((uint32_t *)(plane->base + h->tables.topic_hash_at), h->tables.topic_hash_size, t->name_hash, id);
    RMQ_CRASH("control-topic-findable");
    return id;
}

void rmq_topic_set(struct rmq_plane *plane, uint32_t id, uint64_t config)
{
    rmq_store(&rmq_topic_at(plane, id)->config, config);
}

static int is_queue(const struct rmq_queue *queue, uint32_t topic_id, uint32_t queue_id)
{
    return queue->topic_id == topic_id && queue->queue_id == queue_id;
}

/* The queues of a topic mostly lie one behind the other, because they were made together: no cell is needed then. */
uint32_t rmq_queue_find(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.queue_hash_at), cell;
    uint32_t first = rmq_load(&rmq_topic_at(plane, topic_id)->first_queue);
    uint64_t guess = (uint64_t)first - 1 + queue_id;
    if (first && guess < rmq_load(&h->tables.queue_count) && is_queue(rmq_queue_at(plane, (uint32_t)guess), topic_id, queue_id))
        return (uint32_t)guess;
    for (uint32_t i = hash_pair(h, topic_id, queue_id) & (h->tables.queue_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->tables.queue_hash_size - 1)) {
        if (is_queue(rmq_queue_at(plane, cell - 1), topic_id, queue_id))
            return cell - 1;
    }
    return RMQ_NONE;
}

uint32_t rmq_queue_add(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id, uint64_t min_offset, uint64_t max_offset,
                       uint64_t replay_from)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (h->tables.queue_count >= h->tables.queue_capacity)
        return RMQ_NONE;
    uint32_t slot = h->tables.queue_count;
    struct rmq_queue *q = rmq_queue_at(plane, slot);
    q->topic_id = topic_id;
    q->queue_id = queue_id;
    q->replay_from = replay_from;
    q->min_offset = min_offset;
    q->max_offset = max_offset;
    RMQ_CRASH("control-queue-filled");
    rmq_store(&h->tables.queue_count, slot + 1);
    RMQ_CRASH("control-queue-counted");
    cell_insert((uint32_t *)(plane->base + h->tables.queue_hash_at), h->tables.queue_hash_size, hash_pair(h, topic_id, queue_id),
                slot + 1);
    RMQ_CRASH("control-queue-findable");
    if (!queue_id)
        rmq_store(&rmq_topic_at(plane, topic_id)->first_queue, slot + 1);
    return slot;
}

uint32_t rmq_group_find(struct rmq_plane *plane, const char *name, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.group_hash_at), hash = hash_bytes(h, name, length), id;
    uint32_t mask = h->tables.group_hash_size - 1;
    for (uint32_t i = hash & mask; (id = rmq_load(&cells[i])); i = (i + 1) & mask) {
        struct rmq_group *g = rmq_group_at(plane, id);
        if (g->name_hash == hash && g->name_length == length && !memcmp(g->name, name, length))
            return id;
    }
    return RMQ_NONE;
}

uint32_t rmq_group_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (length > RMQ_NAME_MAX || h->tables.group_count >= h->tables.group_capacity)
        return RMQ_NONE;
    uint32_t id = h->tables.group_count + 1;
    struct rmq_group *g = rmq_group_at(plane, id);
    memcpy(g->name, name, length);
    g->name_length = (uint16_t)length;
    g->name_hash = hash_bytes(h, name, length);
    rmq_store(&g->config, config);
    RMQ_CRASH("control-group-filled");
    rmq_store(&h->tables.group_count, id);
    RMQ_CRASH("control-group-counted");
    cell_insert((uint32_t *)(plane->base + h->tables.group_hash_at), h->tables.group_hash_size, g->name_hash, id);
    return id;
}

void rmq_group_set(struct rmq_plane *plane, uint32_t id, uint64_t config)
{
    rmq_store(&rmq_group_at(plane, id)->config, config);
}

static struct rmq_subscription *subscription_at(struct rmq_plane *plane, uint32_t index)
{
    return (struct rmq_subscription *)(plane->base + rmq_header(plane)->tables.subscriptions_at) + index;
}

uint32_t rmq_subscription_find(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.subscription_hash_at), cell;
    for (uint32_t i = hash_pair(h, group_id, topic_id) & (h->tables.subscription_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->tables.subscription_hash_size - 1)) {
        struct rmq_subscription *s = subscription_at(plane, cell - 1);
        if (s->group_id == group_id && s->topic_id == topic_id)
            return cell - 1;
    }
    return RMQ_NONE;
}

static void subscription_publish(struct rmq_subscription *s, uint32_t kind, int64_t sub_version, const int32_t *tags,
                                 uint32_t tag_count)
{
    struct rmq_subscription_copy *copy = &s->copy[(s->version + 1) & 1];
    copy->sub_version = sub_version;
    copy->kind = kind;
    copy->tag_count = tag_count;
    if (tag_count)
        memcpy(copy->tags, tags, tag_count * sizeof *tags);
    RMQ_CRASH("control-subscription-filled");
    rmq_store(&s->version, s->version + 1);
    RMQ_CRASH("control-subscription-published");
}

/* The pair comes last: a reader that found the entry under its old pair sees the new version only with no pair or
 * the new one. */
static void subscription_name(struct rmq_plane *plane, uint32_t index, uint32_t group_id, uint32_t topic_id)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_subscription *s = subscription_at(plane, index);
    rmq_store(&s->topic_id, topic_id);
    rmq_store(&s->group_id, group_id);
    RMQ_CRASH("control-subscription-named");
    cell_insert((uint32_t *)(plane->base + h->tables.subscription_hash_at), h->tables.subscription_hash_size,
                hash_pair(h, group_id, topic_id), index + 1);
}

int rmq_subscription_set(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id, uint32_t kind,
                         int64_t sub_version, const int32_t *tags, uint32_t tag_count)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (tag_count > RMQ_TAGS_MAX)
        return -E2BIG;
    uint32_t index = rmq_subscription_find(plane, group_id, topic_id);
    int fresh = index == RMQ_NONE;
    if (fresh) {
        if (h->tables.subscription_count >= h->tables.subscription_capacity)
            return -ENOSPC;
        index = h->tables.subscription_count;
    }
    subscription_publish(subscription_at(plane, index), kind, sub_version, tags, tag_count);
    if (fresh) {
        rmq_store(&h->tables.subscription_count, index + 1);
        RMQ_CRASH("control-subscription-counted");
        subscription_name(plane, index, group_id, topic_id);
    }
    return 0;
}

/* Withdraws the entry's subscription and removes its pair. */
static void subscription_withdraw(struct rmq_subscription *s)
{
    subscription_publish(s, RMQ_SUBSCRIPTION_NONE, 0, NULL, 0);
    rmq_store(&s->group_id, RMQ_NONE);
    RMQ_CRASH("control-subscription-nameless");
}

/* Linear probing without tombstones: later cells of the run move up. A reader that misses its entry meanwhile takes
 * the pull for one without a subscription, and control answers it. */
static void subscription_unlink(struct rmq_plane *plane, uint32_t index)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.subscription_hash_at), mask = h->tables.subscription_hash_size - 1;
    struct rmq_subscription *s = subscription_at(plane, index);
    uint32_t hole = hash_pair(h, s->group_id, s->topic_id) & mask, cell;
    while (cells[hole] != index + 1)
        hole = (hole + 1) & mask;
    for (uint32_t i = (hole + 1) & mask; (cell = cells[i]); i = (i + 1) & mask) {
        struct rmq_subscription *other = subscription_at(plane, cell - 1);
        uint32_t home = hash_pair(h, other->group_id, other->topic_id) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            rmq_store(&cells[hole], cell);
            hole = i;
        }
    }
    rmq_store(&cells[hole], 0);
    RMQ_CRASH("control-subscription-unlinked");
}

int rmq_subscription_replace(struct rmq_plane *plane, uint32_t old_group_id, uint32_t old_topic_id, uint32_t group_id,
                             uint32_t topic_id)
{
    uint32_t index = rmq_subscription_find(plane, old_group_id, old_topic_id);
    if (index == RMQ_NONE || rmq_subscription_find(plane, group_id, topic_id) != RMQ_NONE)
        return -ENOENT;
    subscription_unlink(plane, index);
    subscription_withdraw(subscription_at(plane, index));
    subscription_name(plane, index, group_id, topic_id);
    return 0;
}

void rmq_subscriptions_clear(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.subscription_hash_at);
    for (uint32_t i = 0; i < h->tables.subscription_hash_size; i++)
        if (cells[i])
            rmq_store(&cells[i], 0);
    for (uint32_t i = 0; i < h->tables.subscription_count; i++)
        subscription_withdraw(subscription_at(plane, i));
    rmq_store(&h->tables.subscription_count, 0);
}

void rmq_subscription_get(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id, struct rmq_subscription_copy *out)
{
    uint32_t index = rmq_subscription_find(plane, group_id, topic_id);
    if (index == RMQ_NONE) {
        memset(out, 0, sizeof *out);
        return;
    }
    struct rmq_subscription *s = subscription_at(plane, index);
    for (;;) {
        uint32_t version = rmq_load(&s->version);
        memcpy(out, &s->copy[version & 1], sizeof *out);
        int is_same = rmq_load(&s->group_id) == group_id && rmq_load(&s->topic_id) == topic_id;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (rmq_load_relaxed(&s->version) != version)
            continue;
        if (!is_same)
            memset(out, 0, sizeof *out);
        break;
    }
    if (out->tag_count > RMQ_TAGS_MAX)
        out->tag_count = RMQ_TAGS_MAX;
}

static struct rmq_consumer_offset *offset_find(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->tables.offset_hash_at), cell;
    for (uint32_t i = hash_pair(h, group_id, queue_slot) & (h->tables.offset_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->tables.offset_hash_size - 1)) {
        struct rmq_consumer_offset *o = (struct rmq_consumer_offset *)(plane->base + h->tables.offsets_at) + (cell - 1);
        if (o->group_id == group_id && o->queue_slot == queue_slot)
            return o;
    }
    return NULL;
}

int64_t rmq_offset_get(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    struct rmq_consumer_offset *o = offset_find(plane, group_id, queue_slot);
    return o ? rmq_load(&o->offset) : -1;
}

int rmq_offset_is_known(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    return offset_find(plane, group_id, queue_slot) != NULL;
}

int rmq_offset_put(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot, int64_t offset)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_consumer_offset *o = offset_find(plane, group_id, queue_slot);
    if (o) {
        rmq_store(&o->offset, offset);
        return 0;
    }
    if (h->tables.offset_count >= h->tables.offset_capacity)
        return -ENOSPC;
    uint32_t index = h->tables.offset_count;
    o = (struct rmq_consumer_offset *)(plane->base + h->tables.offsets_at) + index;
    o->group_id = group_id;
    o->queue_slot = queue_slot;
    o->offset = offset;
    RMQ_CRASH("control-offset-filled");
    rmq_store(&h->tables.offset_count, index + 1);
    RMQ_CRASH("control-offset-counted");
    cell_insert((uint32_t *)(plane->base + h->tables.offset_hash_at), h->tables.offset_hash_size, hash_pair(h, group_id, queue_slot),
                index + 1);
    return 0;
}

int rmq_offset_drain(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    int changes = 0, failed = 0;
    for (uint32_t p = 0; p < h->ports.count; p++) {
        struct rmq_ring *ring = &h->ports.port[p].commit;
        uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
        for (; tail < head; tail++) {
            struct rmq_offset_commit *c = rmq_ring_slot(plane->base, ring, tail);
            RMQ_INVARIANT(c->group_id <= h->tables.group_capacity, c->group_id, h->tables.group_capacity, p);
            RMQ_INVARIANT(c->queue_slot < h->tables.queue_capacity, c->queue_slot, h->tables.queue_capacity, p);
            int rc = rmq_offset_put(plane, c->group_id, c->queue_slot, c->offset);
            if (rc < 0)
                failed = rc; /* lost: if it stayed in the ring, it would be stored once more over later offsets */
            else
                changes++;
        }
        RMQ_CRASH("control-commits-taken");
        rmq_store(&ring->tail, tail);
    }
    return failed ? failed : changes;
}
