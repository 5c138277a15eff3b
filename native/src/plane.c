#include "plane.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "port.h"
#include "ring.h"

enum {
    HA_ORDER_SLOTS = 64,
};

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

static void port_init(struct cursor *cursor, struct rmq_port *port, const struct rmq_port_plan *plan,
                      const struct rmq_plane_capacity *c)
{
    port->role = plan->role;
    port->flags = plan->flags;
    port->weight = plan->weight;
    port->parked_max = plan->parked_max;
    port->arena_bytes = plan->arena_bytes;
    ring_init(cursor, &port->request, plan->request_slots, sizeof(struct rmq_request));
    ring_init(cursor, &port->appended, plan->request_slots, sizeof(struct rmq_completion));
    ring_init(cursor, &port->completed, plan->request_slots, sizeof(struct rmq_completion));
    if (plan->flags & RMQ_PORT_ARRIVALS) {
        port->parked_flags_at = take(cursor, c->queues);
        ring_init(cursor, &port->arrived, c->arrived_slots, sizeof(uint32_t));
    }
    if (plan->flags & RMQ_PORT_CONNECTIONS) {
        ring_init(cursor, &port->verdict, c->verdict_bytes, 1);
        ring_init(cursor, &port->commit, c->commit_slots, sizeof(struct rmq_offset_commit));
        ring_init(cursor, &port->slow, RMQ_SLOW_SLOTS, sizeof(struct rmq_slow_request));
        port->pulled_at = take(cursor, (uint64_t)RMQ_PULLED_CAPACITY * sizeof(struct rmq_pulled));
        port->pulled_cells_at = take(cursor, (uint64_t)RMQ_PULLED_CELLS * sizeof(uint32_t));
    }
}

/* Each port has a role of its own, so that a completion wakes one process and a role finds its port. */
static int ports_are_sound(const struct rmq_plane_capacity *c)
{
    for (uint32_t i = 0; i < c->port_count; i++) {
        const struct rmq_port_plan *plan = &c->ports[i];
        if (plan->role >= RMQ_ROLES_MAX || !power_of_two(plan->request_slots) || !plan->weight ||
            plan->weight > RMQ_PORT_WEIGHT_MAX || !plan->parked_max ||
            (plan->flags & RMQ_PORT_CONNECTIONS && !(plan->flags & RMQ_PORT_ARRIVALS)))
            return 0;
        for (uint32_t j = 0; j < i; j++)
            if (c->ports[j].role == plan->role)
                return 0;
    }
    return 1;
}

/* Lay everything out; `h` may be a scratch header when only the size is wanted. */
static uint64_t lay_out(struct rmq_plane_header *h, const struct rmq_plane_capacity *c)
{
    struct cursor cursor = {0};
    take(&cursor, sizeof *h);
    h->tables.topic_capacity = c->topics;
    h->tables.queue_capacity = c->queues;
    h->tables.group_capacity = c->groups;
    h->tables.subscription_capacity = c->subscriptions;
    h->tables.offset_capacity = c->offsets;
    h->tables.topic_hash_size = hash_size(c->topics);
    h->tables.queue_hash_size = hash_size(c->queues);
    h->tables.group_hash_size = hash_size(c->groups);
    h->tables.subscription_hash_size = hash_size(c->subscriptions);
    h->tables.offset_hash_size = hash_size(c->offsets);
    h->tables.topics_at = take(&cursor, (uint64_t)(c->topics + 1) * sizeof(struct rmq_topic));
    h->tables.topic_hash_at = take(&cursor, (uint64_t)h->tables.topic_hash_size * 4);
    h->tables.queues_at = take(&cursor, (uint64_t)c->queues * sizeof(struct rmq_queue));
    h->tables.queue_hash_at = take(&cursor, (uint64_t)h->tables.queue_hash_size * 4);
    h->tables.groups_at = take(&cursor, (uint64_t)(c->groups + 1) * sizeof(struct rmq_group));
    h->tables.group_hash_at = take(&cursor, (uint64_t)h->tables.group_hash_size * 4);
    h->tables.subscriptions_at = take(&cursor, (uint64_t)c->subscriptions * sizeof(struct rmq_subscription));
    h->tables.subscription_hash_at = take(&cursor, (uint64_t)h->tables.subscription_hash_size * 4);
    h->tables.offsets_at = take(&cursor, (uint64_t)c->offsets * sizeof(struct rmq_consumer_offset));
    h->tables.offset_hash_at = take(&cursor, (uint64_t)h->tables.offset_hash_size * 4);
    h->ports.count = c->port_count;
    for (uint32_t i = 0; i < c->port_count; i++)
        port_init(&cursor, &h->ports.port[i], &c->ports[i], c);
    ring_init(&cursor, &h->ports.parked, c->parked_slots, sizeof(struct rmq_parked));
    ring_init(&cursor, &h->inbox, c->inbox_bytes, 1);
    ring_init(&cursor, &h->replication.orders, HA_ORDER_SLOTS, sizeof(struct rmq_ha_order));
    return cursor.at;
}

uint64_t rmq_plane_bytes(const struct rmq_plane_capacity *capacity)
{
    struct rmq_plane_header *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return 0;
    uint64_t bytes = capacity->port_count <= RMQ_PORTS_MAX ? lay_out(scratch, capacity) : 0;
    free(scratch);
    return bytes;
}

int rmq_plane_format(void *base, const struct rmq_plane_capacity *c, uint64_t start_id)
{
    struct rmq_plane_header *h = base;
    if (c->port_count > RMQ_PORTS_MAX || !ports_are_sound(c) || !power_of_two(c->parked_slots) || !power_of_two(c->inbox_bytes) || !power_of_two(c->verdict_bytes) ||
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

/* --- watermarks, bells --------------------------------------------------------------------------------- */

uint64_t rmq_confirm_offset(const struct rmq_watermarks *w)
{
    uint64_t local = rmq_load(w->confirm_policy & RMQ_CONFIRM_FLUSHED ? &w->flushed_offset : &w->append_offset);
    uint64_t limit = w->confirm_policy & RMQ_CONFIRM_LIMITED ? rmq_load(&w->confirm_limit) : UINT64_MAX;
    uint64_t bound = local < limit ? local : limit, dispatched = rmq_load(&w->dispatched_offset);
    return bound > dispatched ? bound : dispatched; /* a slave's limit may fall, what was readable stays so */
}

int rmq_ha_order_put(struct rmq_plane *plane, const char *json, uint32_t length)
{
    struct rmq_ring *ring = &rmq_header(plane)->replication.orders;
    struct rmq_ha_order *order = rmq_ring_slot(plane->base, ring, ring->head);
    if (length > sizeof order->json)
        return -E2BIG;
    if (!rmq_ring_room(ring, ring->head))
        return -ENOBUFS;
    memcpy(order->json, json, length);
    order->length = length;
    rmq_store(&ring->head, ring->head + 1);
    rmq_role_wake(plane, RMQ_ROLE_HA);
    return 0;
}

int rmq_ha_order_take(struct rmq_plane *plane, char *out)
{
    struct rmq_ring *ring = &rmq_header(plane)->replication.orders;
    if (!rmq_ring_used(ring))
        return 0;
    const struct rmq_ha_order *order = rmq_ring_slot(plane->base, ring, ring->tail);
    int length = order->length <= sizeof order->json ? (int)order->length : -EPROTO;
    if (length > 0)
        memcpy(out, order->json, (size_t)length);
    rmq_store(&ring->tail, ring->tail + 1);
    return length;
}

int rmq_role_wake(struct rmq_plane *plane, uint32_t role)
{
    return rmq_bell_ring(&rmq_header(plane)->roles[role].bell, plane->event_fds[role]);
}

int rmq_role_wake_asleep(struct rmq_plane *plane, uint32_t role)
{
    struct rmq_bell *bell = &rmq_header(plane)->roles[role].bell;
    rmq_fence();
    return rmq_load_relaxed(&bell->sleeping) == RMQ_BELL_ASLEEP && rmq_bell_ring(bell, plane->event_fds[role]);
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
    rmq_store(&record->type, (uint16_t)RMQ_INBOX_PAD); /* who dies below leaves a pad of the right length */
    RMQ_CRASH("control-inbox-padded");
    rmq_fence();
    memset((char *)record + sizeof(uint64_t), 0, bytes - sizeof(uint64_t));
    RMQ_CRASH("control-inbox-cleared");
    rmq_store((uint64_t *)(void *)record, 0);
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

int rmq_verdict_put(struct rmq_plane *plane, uint32_t port, const struct rmq_verdict *head, const void *payload, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_ring *r = &h->ports.port[port < RMQ_PORTS_MAX ? port : 0].verdict;
    if (port >= h->ports.count || !r->capacity)
        return -EINVAL;
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
    rmq_role_wake(plane, rmq_port_role(h, port));
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

char rmq_sync_switch(void)
{
    const char *path = getenv("RINGMQ_SYNC_SWITCH");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char letter = 0;
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, &letter, 1);
    close(fd);
    return n == 1 ? letter : 0;
}

int rmq_made_deaf(uint32_t generation)
{
    const char *wanted = getenv("RINGMQ_DEAF_GENERATION");
    return wanted && (uint32_t)atol(wanted) == generation;
}

void rmq_crash_point(const char *name)
{
    static const char *wanted;
    static char *armed;
    static long countdown;
    static pid_t known; /* a forked child looks at its own environment */
    if (known != getpid()) {
        known = getpid();
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
