#include "plane/plane.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "plane/port.h"
#include "plane/ring.h"

enum {
    HA_COMMAND_SLOTS = 64,
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
    if (plan->flags & RMQ_PORT_COMMITS)
        ring_init(cursor, &port->commit, c->commit_slots, sizeof(struct rmq_offset_commit));
    if (plan->flags & RMQ_PORT_CONNECTIONS)
        ring_init(cursor, &port->slow, RMQ_SLOW_SLOTS, sizeof(struct rmq_slow_request));
    if (plan->flags & (RMQ_PORT_CONNECTIONS | RMQ_PORT_PULL_STATS)) {
        port->pull_stats_at = take(cursor, (uint64_t)RMQ_PULL_STATS_CAPACITY * sizeof(struct rmq_pull_stats));
        port->pull_stats_cells_at = take(cursor, (uint64_t)RMQ_PULL_STATS_CELLS * sizeof(uint32_t));
    }
}

/* Each port has a role of its own, so that a completion wakes one process and a role finds its port. */
static int ports_are_sound(const struct rmq_plane_capacity *c)
{
    for (uint32_t i = 0; i < c->port_count; i++) {
        const struct rmq_port_plan *plan = &c->ports[i];
        if (plan->role >= RMQ_ROLES_MAX || !power_of_two(plan->request_slots) || !plan->weight ||
            plan->weight > RMQ_PORT_WEIGHT_MAX || !plan->parked_max ||
            (plan->flags & RMQ_PORT_CONNECTIONS && ~plan->flags & (RMQ_PORT_ARRIVALS | RMQ_PORT_COMMITS)))
            return 0;
        for (uint32_t j = 0; j < i; j++)
            if (c->ports[j].role == plan->role)
                return 0;
    }
    return 1;
}

static void answerer_init(struct cursor *cursor, struct rmq_answerer *answerer, const struct rmq_answerer_plan *plan)
{
    answerer->role = plan->role;
    answerer->code_count = plan->code_count;
    answerer->cold_max = plan->cold_max;
    memcpy(answerer->codes, plan->codes, sizeof answerer->codes);
    ring_init(cursor, &answerer->inbox, plan->inbox_bytes, 1);
    for (uint32_t role = 0; role < RMQ_ROLES_MAX; role++)
        if (plan->askers >> role & 1)
            ring_init(cursor, &answerer->answers[role], plan->answer_bytes, 1);
}

/* Control first: it gets the codes that no other row names. A role answers in one row. Rows may have the same codes
 * (rmq_answerer_choose). */
static int answerers_are_sound(const struct rmq_plane_capacity *c)
{
    if (!c->answerer_count || c->answerer_count > RMQ_ANSWERERS_MAX || c->answerers[0].role != RMQ_ROLE_CONTROL)
        return 0;
    for (uint32_t i = 0; i < c->answerer_count; i++) {
        const struct rmq_answerer_plan *plan = &c->answerers[i];
        if (plan->role >= RMQ_ROLES_MAX || !power_of_two(plan->inbox_bytes) || !power_of_two(plan->answer_bytes) ||
            plan->code_count > RMQ_ANSWERER_CODES_MAX)
            return 0;
        for (uint32_t j = 0; j < i; j++)
            if (c->answerers[j].role == plan->role)
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
    h->filters.slots_at = take(&cursor, (uint64_t)RMQ_FILTERS_MAX * sizeof(struct rmq_filter_slot));
    h->ports.count = c->port_count;
    for (uint32_t i = 0; i < c->port_count; i++)
        port_init(&cursor, &h->ports.port[i], &c->ports[i], c);
    ring_init(&cursor, &h->ports.parked, c->parked_slots, sizeof(struct rmq_parked));
    h->asks.count = c->answerer_count;
    for (uint32_t i = 0; i < c->answerer_count; i++)
        answerer_init(&cursor, &h->asks.answerer[i], &c->answerers[i]);
    ring_init(&cursor, &h->replication.commands, HA_COMMAND_SLOTS, sizeof(struct rmq_ha_command));
    return cursor.at;
}

uint64_t rmq_plane_bytes(const struct rmq_plane_capacity *capacity)
{
    struct rmq_plane_header *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return 0;
    uint64_t bytes = capacity->port_count <= RMQ_PORTS_MAX && capacity->answerer_count <= RMQ_ANSWERERS_MAX ? lay_out(scratch, capacity) : 0;
    free(scratch);
    return bytes;
}

int rmq_plane_format(void *base, const struct rmq_plane_capacity *c, uint64_t start_id, const uint64_t *name_secret)
{
    struct rmq_plane_header *h = base;
    if (c->port_count > RMQ_PORTS_MAX || !ports_are_sound(c) || !answerers_are_sound(c) || !power_of_two(c->parked_slots) ||
        !power_of_two(c->commit_slots) || !power_of_two(c->arrived_slots) || !c->topics || !c->queues || !c->groups)
        return -EINVAL;
    h->version = RMQ_PLANE_VERSION;
    h->header_bytes = sizeof *h;
    h->start_id = start_id;
    memcpy(h->name_secret, name_secret, sizeof h->name_secret);
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
    return bound > dispatched ? bound : dispatched; /* a slave's limit may fall, but readable records stay readable */
}

static uint32_t tenure_state(const struct rmq_watermarks *w)
{
    return rmq_load(&w->tenure) & ((1u << RMQ_TENURE_STATE_BITS) - 1);
}

int rmq_is_master(const struct rmq_watermarks *w) { return tenure_state(w) == RMQ_TENURE_MASTER; }

int rmq_follows_master(const struct rmq_watermarks *w)
{
    uint32_t state = tenure_state(w);
    return state == RMQ_TENURE_SLAVE || state == RMQ_TENURE_TAKING;
}

int rmq_ha_command_put(struct rmq_plane *plane, const char *json, uint32_t length)
{
    struct rmq_ring *ring = &rmq_header(plane)->replication.commands;
    struct rmq_ha_command *order = rmq_ring_slot(plane->base, ring, ring->head);
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

int rmq_ha_command_take(struct rmq_plane *plane, char *out)
{
    struct rmq_ring *ring = &rmq_header(plane)->replication.commands;
    if (!rmq_ring_waiting(ring, ring->tail))
        return 0;
    const struct rmq_ha_command *order = rmq_ring_slot(plane->base, ring, ring->tail);
    RMQ_INVARIANT(order->length <= sizeof order->json, order->length, ring->tail);
    int length = (int)order->length;
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

/* --- crash points ---------------------------------------------------------------------------------------- */

#ifdef RMQ_CRASH_POINTS
int rmq_crash_points_built(void) { return 1; }

/* RINGMQ_CRASH_FILE: 64 mapped bytes. A test writes the name of a point, and the first worker that passes the point clears it
 * and dies. So one run of the broker can pass every point. NULL when there is no such file. */
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

int rmq_receive_disabled(uint32_t generation)
{
    const char *wanted = getenv("RINGMQ_HUNG_GENERATION");
    return wanted && (uint32_t)atol(wanted) == generation;
}

void rmq_crash_point(const char *name)
{
    static const char *wanted;
    static char *armed;
    static long countdown;
    static pid_t known; /* a forked child reads its own environment */
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
