/* timer_deletes.h: the keys that the deletes of one slot name. timer/slot_content.py has them as a set.
 *
 * A slot may have any number of deletes, and each of them counts until the slot is over: its message may come later. So tables of a
 * bounded size follow each other. The first one is in memory. Further ones are files without a name in a folder of the store: the
 * kernel writes their pages out when memory is short. Where no such file can be made, they are in memory, too.
 */
#ifndef RMQ_TIMER_DELETES_H
#define RMQ_TIMER_DELETES_H

#include <stddef.h>
#include <stdint.h>

struct rmq_hash {
    uint64_t key[2];
};

struct rmq_delete_table {
    struct rmq_hash *places; /* open addressing; an empty place is 0, 0 */
    uint64_t count, room;
};

struct rmq_timer_deletes {
    struct rmq_delete_table *tables;
    uint32_t count;
    uint32_t keys_max;       /* of a table */
    const char *folder;      /* NULL: all tables are in memory */
};

/* 0, or -ENOMEM. A key that is there is not added again. */
int rmq_timer_deletes_add(struct rmq_timer_deletes *deletes, const uint64_t *key);
/* 1 = it is there. */
int rmq_timer_deletes_has(const struct rmq_timer_deletes *deletes, const uint64_t *key);
void rmq_timer_deletes_free(struct rmq_timer_deletes *deletes);

#endif
