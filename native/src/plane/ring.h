/* ring.h: SPSC rings, the claim and commit of the inbox, and the two halves of going to sleep. layout.h has the order of the
 * stores, and the state after a death between two of them (1 and 2).
 */
#ifndef RMQ_RING_H
#define RMQ_RING_H
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plane/invariant.h"
#include "plane/layout.h"

#define rmq_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define rmq_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define rmq_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define rmq_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define rmq_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* One breath of a spinning loop. */
static inline void rmq_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t rmq_mono_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline int64_t rmq_mono_ms(void) { return rmq_mono_ns() / 1000000; }

static inline int64_t rmq_wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- SPSC ------------------------------------------------------------------------------------------- */

/* Bytes or slots between head and tail. Any process may call it. Consumer and producer get exact values from the two below. */
static inline uint64_t rmq_ring_used(const struct rmq_ring *r) { return rmq_load(&r->head) - rmq_load(&r->tail); }

/* tail <= head <= tail + capacity, of every ring at any time. The consumer has its own tail, and reads the head. The producer
 * has its own head, which may be ahead of the published one, and reads the tail. Each sees a past value of the other's word, so
 * the relation holds for both.
 *
 * Slots that wait for the consumer, whose own tail is `tail`. */
static inline uint64_t rmq_ring_waiting(const struct rmq_ring *r, uint64_t tail)
{
    uint64_t waiting = rmq_load(&r->head) - tail;
    RMQ_INVARIANT(waiting <= r->capacity, waiting, tail, r->capacity, r->slots_at); /* slots_at: which ring */
    return waiting;
}

/* Slots the producer may still fill when `head` of them (published or not) are in use up to it. */
static inline uint64_t rmq_ring_room(const struct rmq_ring *r, uint64_t head)
{
    uint64_t used = head - rmq_load(&r->tail);
    RMQ_INVARIANT(used <= r->capacity, used, head, r->capacity, r->slots_at);
    return r->capacity - used;
}

static inline void *rmq_ring_slot(void *plane, const struct rmq_ring *r, uint64_t position)
{
    return (char *)plane + r->slots_at + (position & (r->capacity - 1)) * r->slot_bytes;
}

/* --- sleeping ----------------------------------------------------------------------------------------
 * rmq_bell_arm: say "I sleep", fence. The caller then looks at its inputs once more and either waits on the
 * eventfd or calls rmq_bell_disarm. rmq_bell_ring: called AFTER publishing. Returns 1 if it had to wake. */
static inline void rmq_bell_arm_as(struct rmq_bell *bell, uint32_t how)
{
    rmq_store_relaxed(&bell->sleeping, how);
    rmq_fence();
}

static inline void rmq_bell_arm(struct rmq_bell *bell) { rmq_bell_arm_as(bell, RMQ_BELL_ASLEEP); }

static inline void rmq_bell_disarm(struct rmq_bell *bell) { rmq_store_relaxed(&bell->sleeping, 0); }

static inline int rmq_bell_ring(struct rmq_bell *bell, int event_fd)
{
    rmq_fence();
    if (!rmq_load_relaxed(&bell->sleeping))
        return 0;
    /* exchange: of several wakers only one pays for the system call */
    if (!__atomic_exchange_n(&bell->sleeping, 0, __ATOMIC_ACQ_REL))
        return 0;
    uint64_t one = 1;
    ssize_t n = write(event_fd, &one, sizeof one);
    (void)n; /* the counter cannot overflow: each write follows a sleep */
    return 1;
}

/* Wait armed: returns 1 when rung, 0 on timeout or signal. timeout_ms < 0 = for ever. */
static inline int rmq_bell_wait(struct rmq_bell *bell, int event_fd, int timeout_ms)
{
    struct pollfd p = {.fd = event_fd, .events = POLLIN};
    int rung = poll(&p, 1, timeout_ms) > 0;
    if (rung) {
        uint64_t count;
        ssize_t n = read(event_fd, &count, sizeof count);
        (void)n;
    }
    rmq_bell_disarm(bell);
    return rung;
}

/* --- MPSC byte ring ---------------------------------------------------------------------------------- */

#define RMQ_ALIGN8(n) (((n) + 7u) & ~7u)

/* A role's claim_position says in which inbox, too. ~0 is in none. */
#define RMQ_CLAIM_POSITION_BITS 56
#define RMQ_CLAIM_POSITION_MASK ((1ull << RMQ_CLAIM_POSITION_BITS) - 1)

/* Claim room for header + payload in the inbox of `answerer`, NULL when full. The record's length is negative when this
 * returns, and it stands at `position`. */
static inline struct rmq_inbox_record *rmq_inbox_claim(void *plane, struct rmq_ring *r, uint32_t answerer, struct rmq_role *role,
                                                       uint32_t payload, uint64_t *position)
{
    uint32_t length = (uint32_t)sizeof(struct rmq_inbox_record) + payload;
    uint32_t need = RMQ_ALIGN8(length);
    if (need > r->capacity / 2)
        return NULL;
    for (;;) {
        uint64_t head = rmq_load(&r->head);
        uint32_t at = (uint32_t)(head & (r->capacity - 1));
        uint32_t to_end = r->capacity - at;
        uint32_t pad = to_end < need ? to_end : 0;
        if (head + pad + need - rmq_load(&r->tail) > r->capacity) {
            rmq_store(&role->claim_position, UINT64_MAX);
            return NULL;
        }
        rmq_store(&role->claim_position, (uint64_t)answerer << RMQ_CLAIM_POSITION_BITS | head);
        rmq_fence();
        if (!__atomic_compare_exchange_n(&r->head, &head, head + pad + need, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            continue;
        char *base = (char *)plane + r->slots_at;
        if (pad) {
            struct rmq_inbox_record *filler = (struct rmq_inbox_record *)(base + at);
            filler->type = RMQ_INBOX_PAD; /* 8 bytes are always there: everything is a multiple of 8 */
            rmq_store(&filler->length, (int32_t)pad);
            at = 0;
        }
        struct rmq_inbox_record *record = (struct rmq_inbox_record *)(base + at);
        rmq_store(&record->length, -(int32_t)length);
        *position = head + pad;
        return record;
    }
}

static inline void rmq_inbox_commit(struct rmq_role *role, struct rmq_inbox_record *record)
{
    rmq_store(&record->length, -record->length);
    rmq_store(&role->claim_position, UINT64_MAX);
}
#endif
