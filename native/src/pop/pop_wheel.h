/* pop_wheel.h: when entries of POP are due: a timing wheel of seven levels of 64 slots (Varghese and Lauck 1987), 12 bytes an entry.
 *
 * A slot of the lowest level is a millisecond. Times are below 2^42 ms: 139 years after the boot. An entry is at most 2^32 ms ahead.
 * Entries of the same time come in the order of their additions. An entry that is not in the wheel may use its links for another
 * list.
 */
#ifndef RMQ_POP_WHEEL_H
#define RMQ_POP_WHEEL_H
#include <stdint.h>

#define RMQ_POP_WHEEL_LEVELS 7
#define RMQ_POP_WHEEL_SLOTS 64
#define RMQ_POP_WHEEL_END 0xfffff000u /* with the number of the slot: before the first and behind the last entry of a slot */

struct rmq_pop_list {
    uint32_t head, tail;         /* RMQ_NONE = none */
};

struct rmq_pop_wheel {
    uint32_t *next, *prev;
    uint32_t *due;               /* low bits of the time */
    int64_t now;                 /* no entry of the wheel is due before */
    uint64_t used[RMQ_POP_WHEEL_LEVELS];
    struct rmq_pop_list slots[RMQ_POP_WHEEL_LEVELS * RMQ_POP_WHEEL_SLOTS];
};

int rmq_pop_wheel_open(struct rmq_pop_wheel *wheel, uint32_t entries_max, int64_t now); /* 0 or -ENOMEM */
void rmq_pop_wheel_close(struct rmq_pop_wheel *wheel);
void rmq_pop_wheel_add(struct rmq_pop_wheel *wheel, uint32_t entry, int64_t due);
void rmq_pop_wheel_remove(struct rmq_pop_wheel *wheel, uint32_t entry);
/* The entry that is due next, if it is due at `until`. RMQ_NONE: there is none, or *steps entries were sorted and more are left. */
uint32_t rmq_pop_wheel_first(struct rmq_pop_wheel *wheel, int64_t until, uint32_t *steps);
/* No entry is due before it. INT64_MAX: the wheel is empty. */
int64_t rmq_pop_wheel_next(const struct rmq_pop_wheel *wheel);

/* Lists of entries that are not in the wheel. */
void rmq_pop_list_put(struct rmq_pop_wheel *wheel, struct rmq_pop_list *list, uint32_t after, uint32_t entry); /* RMQ_NONE: first */
void rmq_pop_list_take(struct rmq_pop_wheel *wheel, struct rmq_pop_list *list, uint32_t entry);

static inline int64_t rmq_pop_wheel_due(const struct rmq_pop_wheel *wheel, uint32_t entry)
{
    return wheel->now + (int64_t)(uint32_t)(wheel->due[entry] - (uint32_t)wheel->now);
}
#endif
