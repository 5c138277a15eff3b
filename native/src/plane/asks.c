#include "plane/asks.h"

#include "base/siphash.h"
#include "plane/ring.h"
#include "plane/worker_activation.h"

#define TIMEOUT_NS (RMQ_ASK_TIMEOUT_MS * 1000000ll)

uint32_t rmq_answerer_find(struct rmq_plane *plane, uint32_t role)
{
    const struct rmq_asks *asks = &rmq_header(plane)->asks;
    for (uint32_t i = 0; i < asks->count; i++)
        if (asks->answerer[i].role == role)
            return i;
    return RMQ_NONE;
}

struct rmq_answerer *rmq_answerer_at(struct rmq_plane *plane, uint32_t answerer)
{
    return &rmq_header(plane)->asks.answerer[answerer];
}

uint32_t rmq_answerers_of(struct rmq_plane *plane, int32_t code)
{
    const struct rmq_asks *asks = &rmq_header(plane)->asks;
    uint32_t rows = 0;
    for (uint32_t i = 1; i < asks->count; i++)
        for (uint32_t j = 0; j < asks->answerer[i].code_count; j++)
            if (asks->answerer[i].codes[j] == code)
                rows |= 1u << i;
    return rows ? rows : 1u << RMQ_CONTROL_ANSWERER;
}

uint32_t rmq_answerer_choose(uint32_t rows, const uint8_t *group, uint32_t group_length, const uint8_t *topic, uint32_t topic_length)
{
    static const uint64_t no_secret[2] = {0, 0}; /* a secret would be another one at each start */
    struct rmq_siphash hash;
    rmq_siphash_begin(&hash, no_secret);
    rmq_siphash_add(&hash, group, group_length);
    rmq_siphash_add(&hash, (const uint8_t *)"\n", 1); /* no name holds it */
    rmq_siphash_add(&hash, topic, topic_length);
    for (uint64_t left = rmq_siphash_end(&hash).low % (uint32_t)__builtin_popcount(rows); left; left--)
        rows &= rows - 1;
    return (uint32_t)__builtin_ctz(rows);
}

/* --- asks --------------------------------------------------------------------------------------------------- */

static int never_asks(const struct rmq_plane_header *h, uint32_t answerer, uint32_t asker)
{
    return answerer >= h->asks.count || asker >= RMQ_ROLES_MAX || !h->asks.answerer[answerer].answers[asker].capacity;
}

int rmq_inbox_add(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *head, const void *payload,
                  uint32_t length, uint64_t *position)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (never_asks(h, answerer, head->role))
        return -EINVAL;
    struct rmq_role *role = &h->roles[head->role];
    struct rmq_ring *inbox = &h->asks.answerer[answerer].inbox;
    uint64_t at;
    if (RMQ_ALIGN8(sizeof(struct rmq_inbox_record) + length) > inbox->capacity / 2)
        return -EMSGSIZE; /* waiting gives it no room */
    struct rmq_inbox_record *record = rmq_inbox_claim(plane->base, inbox, answerer, role, length, &at);
    if (!record)
        return -ENOBUFS;
    RMQ_CRASH("inbox-claimed");
    memcpy((char *)record + sizeof(int32_t), (const char *)head + sizeof(int32_t), sizeof *record - sizeof(int32_t));
    if (length)
        memcpy(record + 1, payload, length);
    RMQ_CRASH("inbox-filled");
    rmq_inbox_commit(role, record);
    if (position)
        *position = at;
    return 0;
}

void rmq_answerer_wake(struct rmq_plane *plane, uint32_t answerer)
{
    uint32_t to = rmq_answerer_at(plane, answerer)->role;
    if (answerer != RMQ_CONTROL_ANSWERER)
        rmq_worker_activate(plane, to); /* it may be dormant, or about to rest */
    rmq_role_wake(plane, to);
}

int rmq_inbox_put(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *head, const void *payload,
                  uint32_t length, uint64_t *position)
{
    int rc = rmq_inbox_add(plane, answerer, head, payload, length, position);
    if (rc == 0)
        rmq_answerer_wake(plane, answerer);
    return rc;
}

static int has_begun(const struct rmq_plane_header *h, const struct rmq_answerer *a)
{
    const struct rmq_role *role = &h->roles[a->role];
    return rmq_load(&role->state) == 2 && rmq_load(&a->start_generation) == rmq_load(&role->generation);
}

/* The clock was read before the state: an answerer that is not serving now reads its own clock later. */
int rmq_ask_is_lost(struct rmq_plane *plane, uint32_t answerer, uint64_t position, int64_t received_mono_ns, int64_t now_ns)
{
    const struct rmq_plane_header *h = rmq_header(plane);
    const struct rmq_answerer *a = &h->asks.answerer[answerer];
    rmq_fence();
    if (has_begun(h, a))
        return position < rmq_load(&a->start_position) || received_mono_ns + TIMEOUT_NS <= rmq_load(&a->serving_since_ns);
    return rmq_load(&h->roles[a->role].state) != 2 && received_mono_ns + TIMEOUT_NS <= now_ns;
}

/* A predecessor that died in rmq_inbox_done was handling the record at the tail, which may or may not be there still. Returns
 * the position from which the asks belong to this process. */
static uint64_t give_up_taken(struct rmq_plane *plane, uint32_t answerer)
{
    struct rmq_answerer *a = rmq_answerer_at(plane, answerer);
    struct rmq_ring *r = &a->inbox;
    uint64_t consumed_to = rmq_load(&a->consumed_to);
    struct rmq_inbox_record *record =
        (struct rmq_inbox_record *)(plane->base + r->slots_at + (r->tail & (r->capacity - 1)));
    if (consumed_to > r->tail && rmq_load(&record->length) > 0)
        rmq_inbox_done(plane, answerer, record);
    return consumed_to > r->tail ? consumed_to : r->tail;
}

void rmq_inbox_start(struct rmq_plane *plane, uint32_t answerer)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_answerer *a = &h->asks.answerer[answerer];
    struct rmq_role *role = &h->roles[a->role];
    rmq_store(&a->start_position, give_up_taken(plane, answerer));
    RMQ_CRASH("answerer-begins");
    rmq_store(&role->state, 2u);
    rmq_fence(); /* an asker that finds it not serving after reading the clock has an earlier time than this one */
    RMQ_CRASH("answerer-serves");
    rmq_store(&a->serving_since_ns, rmq_mono_ns());
    RMQ_CRASH("answerer-served");
    rmq_store(&a->start_generation, rmq_load(&role->generation));
    RMQ_CRASH("answerer-begun");
}

int rmq_ask_is_void(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *record)
{
    int64_t received_ns = (int64_t)record->received_mono_ns;
    return answerer != RMQ_CONTROL_ANSWERER && received_ns &&
           received_ns + TIMEOUT_NS <= rmq_load(&rmq_answerer_at(plane, answerer)->serving_since_ns);
}

struct rmq_inbox_record *rmq_inbox_take(struct rmq_plane *plane, uint32_t answerer)
{
    struct rmq_ring *r = &rmq_answerer_at(plane, answerer)->inbox;
    char *base = plane->base + r->slots_at;
    for (;;) {
        uint64_t waiting = rmq_ring_waiting(r, r->tail);
        if (!waiting)
            return NULL;
        uint32_t at = (uint32_t)(r->tail & (r->capacity - 1)), to_end = r->capacity - at;
        struct rmq_inbox_record *record = (struct rmq_inbox_record *)(base + at);
        int32_t length = rmq_load(&record->length);
        if (length <= 0)
            return NULL; /* claimed and not yet committed */
        uint64_t most = waiting < to_end ? waiting : to_end;
        RMQ_INVARIANT(RMQ_ALIGN8((uint32_t)length) <= most, length, at, waiting, answerer);
        RMQ_INVARIANT(record->type == RMQ_INBOX_PAD || length >= (int32_t)sizeof *record, length, record->type, at, answerer);
        if (record->type != RMQ_INBOX_PAD)
            return record;
        rmq_inbox_done(plane, answerer, record);
    }
}

void rmq_inbox_done(struct rmq_plane *plane, uint32_t answerer, struct rmq_inbox_record *record)
{
    struct rmq_ring *r = &rmq_answerer_at(plane, answerer)->inbox;
    uint32_t bytes = RMQ_ALIGN8((uint32_t)record->length);
    rmq_store(&rmq_answerer_at(plane, answerer)->consumed_to, r->tail + bytes);
    RMQ_CRASH("inbox-given-up");
    rmq_store(&record->type, (uint16_t)RMQ_INBOX_PAD); /* a death below leaves a pad of the right length */
    RMQ_CRASH("inbox-padded");
    rmq_fence();
    memset((char *)record + sizeof(uint64_t), 0, bytes - sizeof(uint64_t));
    RMQ_CRASH("inbox-cleared");
    rmq_store((uint64_t *)(void *)record, 0);
    RMQ_CRASH("inbox-zeroed");
    rmq_store(&r->tail, r->tail + bytes);
    RMQ_CRASH("inbox-taken");
}

int rmq_inbox_unblock(struct rmq_plane *plane, uint32_t answerer)
{
    struct rmq_plane_header *h = rmq_header(plane);
    struct rmq_ring *r = &h->asks.answerer[answerer].inbox;
    uint64_t tail = r->tail, head = rmq_load(&r->head);
    if (tail == head)
        return 0;
    uint32_t at = (uint32_t)(tail & (r->capacity - 1));
    char *base = plane->base + r->slots_at;
    struct rmq_inbox_record *record = (struct rmq_inbox_record *)(base + at);
    uint64_t next_claim = head; /* the gap ends where a live process may have claimed */
    rmq_fence();
    for (int i = 0; i < RMQ_ROLES_MAX; i++) {
        uint64_t claim = rmq_load(&h->roles[i].claim_position);
        if (claim >> RMQ_CLAIM_POSITION_BITS != answerer)
            continue; /* none, or one in another inbox */
        claim &= RMQ_CLAIM_POSITION_MASK;
        if (claim <= tail)
            return 0; /* a live process may still be writing it */
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

/* --- answers ------------------------------------------------------------------------------------------------ */

int rmq_verdict_add(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *head,
                    const void *payload, uint32_t length)
{
    struct rmq_plane_header *h = rmq_header(plane);
    if (never_asks(h, answerer, asker))
        return -EINVAL;
    struct rmq_ring *r = &h->asks.answerer[answerer].answers[asker];
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
    record->answerer_generation = rmq_load(&h->roles[h->asks.answerer[answerer].role].generation);
    if (length)
        memcpy(record + 1, payload, length);
    RMQ_CRASH("verdict-filled");
    rmq_store(&r->head, position + pad + need);
    RMQ_CRASH("verdict-published");
    return 0;
}

int rmq_verdict_put(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *head,
                    const void *payload, uint32_t length)
{
    int rc = rmq_verdict_add(plane, answerer, asker, head, payload, length);
    if (rc == 0)
        rmq_role_wake(plane, asker);
    return rc;
}

const struct rmq_verdict *rmq_verdict_waiting(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, uint64_t *position)
{
    struct rmq_ring *r = &rmq_header(plane)->asks.answerer[answerer].answers[asker];
    uint64_t head = r->head, tail = rmq_load(&r->tail);
    RMQ_INVARIANT(head - tail <= r->capacity, head, tail, answerer, asker);
    for (uint64_t at = *position > tail ? *position : tail; at < head;) {
        const struct rmq_verdict *verdict = (const struct rmq_verdict *)(plane->base + r->slots_at + (at & (r->capacity - 1)));
        at += RMQ_ALIGN8(verdict->length);
        if (verdict->type != RMQ_VERDICT_PAD) {
            *position = at;
            return verdict;
        }
    }
    return NULL;
}

const struct rmq_verdict *rmq_verdict_take(struct rmq_plane *plane, uint32_t answerer, uint32_t asker)
{
    struct rmq_ring *r = &rmq_header(plane)->asks.answerer[answerer].answers[asker];
    const char *base = plane->base + r->slots_at;
    while (rmq_ring_waiting(r, r->tail)) {
        uint32_t at = (uint32_t)(r->tail & (r->capacity - 1));
        const struct rmq_verdict *verdict = (const struct rmq_verdict *)(base + at);
        RMQ_INVARIANT(rmq_verdict_is_whole(verdict, r->head - r->tail, r->capacity - at), verdict->length, verdict->type, at);
        if (verdict->type != RMQ_VERDICT_PAD)
            return verdict;
        rmq_verdict_done(plane, answerer, asker, verdict);
    }
    return NULL;
}

void rmq_verdict_done(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *verdict)
{
    struct rmq_ring *r = &rmq_header(plane)->asks.answerer[answerer].answers[asker];
    rmq_store(&r->tail, r->tail + RMQ_ALIGN8(verdict->length));
}
