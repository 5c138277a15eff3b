#include "plane.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ring.h"

/* --- sizes ------------------------------------------------------------------------------------------ */

static uint32_t hash_size(uint32_t capacity)
{
    uint32_t size = 16;
    while (size < capacity * 2)
        size *= 2;
    return size;
}

static int power_of_two(uint32_t n) { return n >= 8 && (n & (n - 1)) == 0; }

struct cursor {
    uint64_t at;
};

static uint64_t take(struct cursor *cursor, uint64_t bytes)
{
    uint64_t at = cursor->at;
    cursor->at += (bytes + 4095) & ~4095ull;
    return at;
}

static void ring_init(struct cursor *cursor, struct rmq_ring *ring, uint32_t capacity, uint32_t slot_bytes)
{
    ring->capacity = capacity;
    ring->slot_bytes = slot_bytes;
    ring->slots_at = take(cursor, (uint64_t)capacity * slot_bytes);
}

/* Lay everything out; `h` may be a scratch header when only the size is wanted. */
static uint64_t lay_out(struct rmq_plane_header *h, const struct rmq_plane_capacity *c)
{
    struct cursor cursor = {0};
    take(&cursor, sizeof *h);
    h->topic_capacity = c->topics;
    h->queue_capacity = c->queues;
    h->group_capacity = c->groups;
    h->subscription_capacity = c->subscriptions;
    h->offset_capacity = c->offsets;
    h->topic_hash_size = hash_size(c->topics);
    h->queue_hash_size = hash_size(c->queues);
    h->group_hash_size = hash_size(c->groups);
    h->subscription_hash_size = hash_size(c->subscriptions);
    h->offset_hash_size = hash_size(c->offsets);
    h->topics_at = take(&cursor, (uint64_t)(c->topics + 1) * sizeof(struct rmq_topic));
    h->topic_hash_at = take(&cursor, (uint64_t)h->topic_hash_size * 4);
    h->queues_at = take(&cursor, (uint64_t)c->queues * sizeof(struct rmq_queue));
    h->queue_hash_at = take(&cursor, (uint64_t)h->queue_hash_size * 4);
    h->groups_at = take(&cursor, (uint64_t)(c->groups + 1) * sizeof(struct rmq_group));
    h->group_hash_at = take(&cursor, (uint64_t)h->group_hash_size * 4);
    h->subscriptions_at = take(&cursor, (uint64_t)c->subscriptions * sizeof(struct rmq_subscription));
    h->subscription_hash_at = take(&cursor, (uint64_t)h->subscription_hash_size * 4);
    h->offsets_at = take(&cursor, (uint64_t)c->offsets * sizeof(struct rmq_consumer_offset));
    h->offset_hash_at = take(&cursor, (uint64_t)h->offset_hash_size * 4);
    h->parked_flags_at = take(&cursor, (uint64_t)RMQ_READERS_MAX * c->queues);
    for (int i = 0; i < RMQ_PRODUCERS_MAX; i++) {
        ring_init(&cursor, &h->request[i], c->request_slots, sizeof(struct rmq_request));
        ring_init(&cursor, &h->appended[i], c->request_slots, sizeof(struct rmq_completion));
        ring_init(&cursor, &h->completed[i], c->request_slots, sizeof(struct rmq_completion));
    }
    ring_init(&cursor, &h->parked, c->request_slots * 4, sizeof(struct rmq_parked));
    for (int i = 0; i < RMQ_READERS_MAX; i++) {
        ring_init(&cursor, &h->arrived[i], c->arrived_slots, sizeof(uint32_t));
        ring_init(&cursor, &h->verdict[i], c->verdict_bytes, 1);
        ring_init(&cursor, &h->commit[i], c->commit_slots, sizeof(struct rmq_offset_commit));
    }
    ring_init(&cursor, &h->inbox, c->inbox_bytes, 1);
    return cursor.at;
}

uint64_t rmq_plane_bytes(const struct rmq_plane_capacity *capacity)
{
    struct rmq_plane_header *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return 0;
    uint64_t bytes = lay_out(scratch, capacity);
    free(scratch);
    return bytes;
}

int rmq_plane_format(void *base, const struct rmq_plane_capacity *c, uint64_t start_id)
{
    struct rmq_plane_header *h = base;
    if (!power_of_two(c->request_slots) || !power_of_two(c->inbox_bytes) || !power_of_two(c->verdict_bytes) ||
        !power_of_two(c->commit_slots) || !power_of_two(c->arrived_slots) || !c->topics || !c->queues || !c->groups)
        return -EINVAL;
    h->version = RMQ_PLANE_VERSION;
    h->header_bytes = sizeof *h;
    h->start_id = start_id;
    h->plane_bytes = lay_out(h, c);
    for (int i = 0; i < RMQ_ROLES_MAX; i++)
        h->roles[i].claim_position = UINT64_MAX;
    rmq_store(&h->magic, RMQ_PLANE_MAGIC);
    return 0;
}

int rmq_plane_check(const void *base, uint64_t bytes)
{
    const struct rmq_plane_header *h = base;
    if (bytes < sizeof *h || h->magic != RMQ_PLANE_MAGIC || h->version != RMQ_PLANE_VERSION ||
        h->header_bytes != sizeof *h || h->plane_bytes > bytes)
        return -EPROTO;
    return 0;
}

struct rmq_plane_header *rmq_plane_header_of(struct rmq_plane *plane) { return rmq_header(plane); }

/* --- tables -------------------------------------------------------------------------------------------
 * Open addressing with linear probing over u32 cells (entry number + 1, 0 = free). Entries are filled first, the cell
 * is stored last, nothing is ever removed: a searcher sees a whole entry or none. */

static uint32_t hash_bytes(const char *p, uint32_t n)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 16777619u;
    return h ^ (h >> 15);
}

static uint32_t hash_pair(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

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
    return (struct rmq_topic *)(plane->base + rmq_header(plane)->topics_at) + id;
}

struct rmq_queue *rmq_queue_at(struct rmq_plane *plane, uint32_t slot)
{
    return (struct rmq_queue *)(plane->base + rmq_header(plane)->queues_at) + slot;
}

struct rmq_group *rmq_group_at(struct rmq_plane *plane, uint32_t id)
{
    return (struct rmq_group *)(plane->base + rmq_header(plane)->groups_at) + id;
}

uint32_t rmq_topic_find(struct rmq_plane *plane, const char *name, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->topic_hash_at), hash = hash_bytes(name, length), id;
    for (uint32_t i = hash & (h->topic_hash_size - 1); (id = rmq_load(&cells[i])); i = (i + 1) & (h->topic_hash_size - 1)) {
        struct rmq_topic *t = rmq_topic_at(plane, id);
        if (t->name_hash == hash && t->name_length == length && !memcmp(t->name, name, length) &&
            (rmq_load(&t->config) >> 40 & RMQ_TOPIC_LIVE))
            return id;
    }
    return RMQ_NONE;
}

uint32_t rmq_topic_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (length > RMQ_NAME_MAX || h->topic_count >= h->topic_capacity)
        return RMQ_NONE;
    uint32_t id = h->topic_count + 1;
    struct rmq_topic *t = rmq_topic_at(plane, id);
    memcpy(t->name, name, length);
    t->name_length = (uint16_t)length;
    t->name_hash = hash_bytes(name, length);
    rmq_store(&t->config, config);
    RMQ_CRASH("control-topic-filled");
    rmq_store(&h->topic_count, id); /* before the cell: a successor must not fill the entry again */
    RMQ_CRASH("control-topic-counted");
    cell_insert((uint32_t *)(plane->base + h->topic_hash_at), h->topic_hash_size, t->name_hash, id);
    RMQ_CRASH("control-topic-findable");
    return id;
}

void rmq_topic_set(struct rmq_plane *plane, uint32_t id, uint64_t config)
{
    rmq_store(&rmq_topic_at(plane, id)->config, config);
}

uint32_t rmq_queue_find(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->queue_hash_at), cell;
    for (uint32_t i = hash_pair(topic_id, queue_id) & (h->queue_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->queue_hash_size - 1)) {
        struct rmq_queue *q = rmq_queue_at(plane, cell - 1);
        if (q->topic_id == topic_id && q->queue_id == queue_id)
            return cell - 1;
    }
    return RMQ_NONE;
}

uint32_t rmq_queue_add(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id, uint64_t min_offset, uint64_t max_offset)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (h->queue_count >= h->queue_capacity)
        return RMQ_NONE;
    uint32_t slot = h->queue_count;
    struct rmq_queue *q = rmq_queue_at(plane, slot);
    q->topic_id = topic_id;
    q->queue_id = queue_id;
    q->min_offset = min_offset;
    q->max_offset = max_offset;
    RMQ_CRASH("control-queue-filled");
    rmq_store(&h->queue_count, slot + 1);
    RMQ_CRASH("control-queue-counted");
    cell_insert((uint32_t *)(plane->base + h->queue_hash_at), h->queue_hash_size, hash_pair(topic_id, queue_id), slot + 1);
    RMQ_CRASH("control-queue-findable");
    return slot;
}

uint32_t rmq_group_find(struct rmq_plane *plane, const char *name, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->group_hash_at), hash = hash_bytes(name, length), id;
    for (uint32_t i = hash & (h->group_hash_size - 1); (id = rmq_load(&cells[i])); i = (i + 1) & (h->group_hash_size - 1)) {
        struct rmq_group *g = rmq_group_at(plane, id);
        if (g->name_hash == hash && g->name_length == length && !memcmp(g->name, name, length))
            return id;
    }
    return RMQ_NONE;
}

uint32_t rmq_group_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (length > RMQ_NAME_MAX || h->group_count >= h->group_capacity)
        return RMQ_NONE;
    uint32_t id = h->group_count + 1;
    struct rmq_group *g = rmq_group_at(plane, id);
    memcpy(g->name, name, length);
    g->name_length = (uint16_t)length;
    g->name_hash = hash_bytes(name, length);
    rmq_store(&g->config, config);
    RMQ_CRASH("control-group-filled");
    rmq_store(&h->group_count, id);
    RMQ_CRASH("control-group-counted");
    cell_insert((uint32_t *)(plane->base + h->group_hash_at), h->group_hash_size, g->name_hash, id);
    return id;
}

void rmq_group_set(struct rmq_plane *plane, uint32_t id, uint64_t config)
{
    rmq_store(&rmq_group_at(plane, id)->config, config);
}

static struct rmq_subscription *subscription_at(struct rmq_plane *plane, uint32_t index)
{
    return (struct rmq_subscription *)(plane->base + rmq_header(plane)->subscriptions_at) + index;
}

uint32_t rmq_subscription_find(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->subscription_hash_at), cell;
    for (uint32_t i = hash_pair(group_id, topic_id) & (h->subscription_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->subscription_hash_size - 1)) {
        struct rmq_subscription *s = subscription_at(plane, cell - 1);
        if (s->group_id == group_id && s->topic_id == topic_id)
            return cell - 1;
    }
    return RMQ_NONE;
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
        if (h->subscription_count >= h->subscription_capacity)
            return -ENOSPC;
        index = h->subscription_count;
    }
    struct rmq_subscription *s = subscription_at(plane, index);
    struct rmq_subscription_copy *copy = &s->copy[(s->version + 1) & 1];
    copy->sub_version = sub_version;
    copy->kind = kind;
    copy->tag_count = tag_count;
    if (tag_count)
        memcpy(copy->tags, tags, tag_count * sizeof *tags);
    RMQ_CRASH("control-subscription-filled");
    rmq_store(&s->version, s->version + 1);
    RMQ_CRASH("control-subscription-published");
    if (fresh) {
        s->group_id = group_id;
        s->topic_id = topic_id;
        rmq_store(&h->subscription_count, index + 1);
        RMQ_CRASH("control-subscription-counted");
        cell_insert((uint32_t *)(plane->base + h->subscription_hash_at), h->subscription_hash_size,
                    hash_pair(group_id, topic_id), index + 1);
    }
    return 0;
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
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (rmq_load_relaxed(&s->version) == version)
            break;
    }
    if (out->tag_count > RMQ_TAGS_MAX)
        out->tag_count = RMQ_TAGS_MAX;
}

static struct rmq_consumer_offset *offset_find(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    struct rmq_plane_header *h = rmq_header(plane);
    uint32_t *cells = (uint32_t *)(plane->base + h->offset_hash_at), cell;
    for (uint32_t i = hash_pair(group_id, queue_slot) & (h->offset_hash_size - 1); (cell = rmq_load(&cells[i]));
         i = (i + 1) & (h->offset_hash_size - 1)) {
        struct rmq_consumer_offset *o = (struct rmq_consumer_offset *)(plane->base + h->offsets_at) + (cell - 1);
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

int rmq_offset_put(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot, int64_t offset)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_consumer_offset *o = offset_find(plane, group_id, queue_slot);
    if (o) {
        rmq_store(&o->offset, offset);
        return 0;
    }
    if (h->offset_count >= h->offset_capacity)
        return -ENOSPC;
    uint32_t index = h->offset_count;
    o = (struct rmq_consumer_offset *)(plane->base + h->offsets_at) + index;
    o->group_id = group_id;
    o->queue_slot = queue_slot;
    o->offset = offset;
    RMQ_CRASH("control-offset-filled");
    rmq_store(&h->offset_count, index + 1);
    RMQ_CRASH("control-offset-counted");
    cell_insert((uint32_t *)(plane->base + h->offset_hash_at), h->offset_hash_size, hash_pair(group_id, queue_slot),
                index + 1);
    return 0;
}

int rmq_offset_drain(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    int changes = 0;
    for (uint32_t r = 0; r < RMQ_READERS_MAX; r++) {
        struct rmq_ring *ring = &h->commit[r];
        uint64_t tail = ring->tail, head = rmq_load(&ring->head);
        for (; tail < head; tail++) {
            struct rmq_offset_commit *c = rmq_ring_slot(plane->base, ring, tail);
            int rc = rmq_offset_put(plane, c->group_id, c->queue_slot, c->offset);
            if (rc < 0)
                return rc;
            changes++;
        }
        RMQ_CRASH("control-commits-taken");
        rmq_store(&ring->tail, tail);
    }
    return changes;
}

/* --- watermarks, bells --------------------------------------------------------------------------------- */

uint64_t rmq_confirm_offset(const struct rmq_watermarks *w)
{
    return w->confirm_policy == RMQ_CONFIRM_FLUSHED ? rmq_load(&w->flushed_offset) : rmq_load(&w->append_offset);
}

int rmq_role_wake(struct rmq_plane *plane, uint32_t role)
{
    return rmq_bell_ring(&rmq_header(plane)->roles[role].bell, plane->event_fds[role]);
}

void rmq_role_arm(struct rmq_plane *plane, uint32_t role) { rmq_bell_arm(&rmq_header(plane)->roles[role].bell); }

void rmq_role_disarm(struct rmq_plane *plane, uint32_t role) { rmq_bell_disarm(&rmq_header(plane)->roles[role].bell); }

int rmq_role_wait(struct rmq_plane *plane, uint32_t role, int timeout_ms)
{
    return rmq_bell_wait(&rmq_header(plane)->roles[role].bell, plane->event_fds[role], timeout_ms);
}

/* --- inbox and verdicts ---------------------------------------------------------------------------------- */

struct rmq_inbox_record *rmq_inbox_take(struct rmq_plane *plane)
{
    struct rmq_ring *r = &rmq_header(plane)->inbox;
    char *base = plane->base + r->slots_at;
    for (;;) {
        if (r->tail == rmq_load(&r->head))
            return NULL;
        struct rmq_inbox_record *record = (struct rmq_inbox_record *)(base + (r->tail & (r->capacity - 1)));
        if (rmq_load(&record->length) <= 0)
            return NULL; /* claimed and not yet committed */
        if (record->type != RMQ_INBOX_PAD)
            return record;
        rmq_inbox_done(plane, record);
    }
}

void rmq_inbox_done(struct rmq_plane *plane, struct rmq_inbox_record *record)
{
    struct rmq_ring *r = &rmq_header(plane)->inbox;
    uint32_t bytes = RMQ_ALIGN8((uint32_t)record->length);
    memset(record, 0, bytes);
    RMQ_CRASH("control-inbox-zeroed");
    rmq_store(&r->tail, r->tail + bytes);
    RMQ_CRASH("control-inbox-taken");
}

int rmq_inbox_unblock(struct rmq_plane *plane)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_ring *r = &h->inbox;
    uint64_t tail = r->tail, head = rmq_load(&r->head);
    if (tail == head)
        return 0;
    uint32_t at = (uint32_t)(tail & (r->capacity - 1));
    char *base = plane->base + r->slots_at;
    struct rmq_inbox_record *record = (struct rmq_inbox_record *)(base + at);
    uint64_t next_claim = head; /* the gap ends where somebody alive may have claimed */
    rmq_fence();
    for (int i = 0; i < RMQ_ROLES_MAX; i++) {
        uint64_t claim = rmq_load(&h->roles[i].claim_position);
        if (claim <= tail)
            return 0; /* somebody alive may still be writing it */
        if (claim < next_claim)
            next_claim = claim;
    }
    int32_t length = rmq_load(&record->length);
    if (length > 0)
        return 0;
    uint64_t gap = length < 0 ? RMQ_ALIGN8((uint32_t)-length) : 0;
    if (!gap) { /* died between claim and mark: free up to the next mark, the ring's end or head */
        uint64_t limit = r->capacity - at < next_claim - tail ? r->capacity - at : next_claim - tail;
        for (gap = 8; gap < limit; gap += 8)
            if (rmq_load((int32_t *)(base + at + gap)))
                break;
    }
    record->type = RMQ_INBOX_PAD;
    rmq_store(&record->length, (int32_t)gap);
    return 1;
}

int rmq_inbox_put(struct rmq_plane *plane, const struct rmq_inbox_record *head, const void *payload, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (head->role >= RMQ_ROLES_MAX)
        return -EINVAL;
    struct rmq_role *role = &h->roles[head->role];
    struct rmq_inbox_record *record = rmq_inbox_claim(plane->base, &h->inbox, role, length);
    if (!record)
        return -ENOBUFS;
    RMQ_CRASH("inbox-claimed");
    memcpy((char *)record + sizeof(int32_t), (const char *)head + sizeof(int32_t), sizeof *record - sizeof(int32_t));
    if (length)
        memcpy(record + 1, payload, length);
    RMQ_CRASH("inbox-filled");
    rmq_inbox_commit(role, record);
    rmq_role_wake(plane, RMQ_ROLE_CONTROL);
    return 0;
}

int rmq_verdict_put(struct rmq_plane *plane, uint32_t reader, const struct rmq_verdict *head, const void *payload, uint32_t length)
{
    if (reader >= RMQ_READERS_MAX)
        return -EINVAL;
    struct rmq_ring *r = &rmq_header(plane)->verdict[reader];
    uint32_t bytes = (uint32_t)sizeof *head + length, need = RMQ_ALIGN8(bytes);
    if (bytes > r->capacity / 4)
        return -EMSGSIZE;
    uint64_t position = r->head;
    uint32_t at = (uint32_t)(position & (r->capacity - 1)), to_end = r->capacity - at;
    uint32_t pad = to_end < need ? to_end : 0;
    if (position + pad + need - rmq_load(&r->tail) > r->capacity)
        return -ENOBUFS;
    char *base = plane->base + r->slots_at;
    if (pad) { /* 8 bytes are enough for length and type */
        struct rmq_verdict *filler = (struct rmq_verdict *)(base + at);
        filler->length = pad;
        filler->type = RMQ_VERDICT_PAD;
        at = 0;
    }
    struct rmq_verdict *record = (struct rmq_verdict *)(base + at);
    *record = *head;
    record->length = bytes;
    if (length)
        memcpy(record + 1, payload, length);
    RMQ_CRASH("verdict-filled");
    rmq_store(&r->head, position + pad + need);
    rmq_role_wake(plane, RMQ_ROLE_READ + reader);
    return 0;
}

/* --- crash points ---------------------------------------------------------------------------------------- */

#ifdef RMQ_CRASH_POINTS
int rmq_crash_points_built(void) { return 1; }

/* RINGMQ_CRASH_FILE: 64 mapped bytes that a test fills with a name and that the first worker to pass it clears, so
 * that one run of the broker can be led through every point. NULL when there is none. */
static char *crash_file(void)
{
    const char *path = getenv("RINGMQ_CRASH_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    void *map = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

void rmq_crash_point(const char *name)
{
    static const char *wanted;
    static char *armed;
    static long countdown;
    static int known;
    if (!known) {
        known = 1;
        armed = crash_file();
        wanted = getenv("RINGMQ_CRASH_POINT");
        const char *colon = wanted ? strchr(wanted, ':') : NULL;
        countdown = colon ? atol(colon + 1) : 1;
    }
    char first = name[0];
    if (armed && rmq_load_relaxed(armed) == first && !strncmp(armed, name, 63) &&
        __atomic_compare_exchange_n(armed, &first, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        raise(SIGKILL);
    if (!wanted)
        return;
    size_t length = strcspn(wanted, ":");
    if (strlen(name) == length && !strncmp(name, wanted, length) && --countdown == 0)
        raise(SIGKILL);
}
#else
int rmq_crash_points_built(void) { return 0; }

void rmq_crash_point(const char *name) { (void)name; }
#endif
