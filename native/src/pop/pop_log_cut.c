#include "pop/pop_log_cut.h"

uint32_t rmq_pop_forget_copies(struct rmq_pop_pages *pages, struct rmq_pop_layout layout)
{
    struct rmq_pop_entry *entries = (struct rmq_pop_entry *)(void *)(pages->memory + layout.entries_at);
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout.entries_max; i++) {
        struct rmq_pop_entry *e = &entries[i];
        if (!rmq_pop_is_there(pages, e) || (e->state != RMQ_POP_REVIVING && e->state != RMQ_POP_REVIVED))
            continue;
        rmq_pop_touch(pages, e);
        __atomic_store_n(&e->state, RMQ_POP_REVIVING, __ATOMIC_RELEASE);
        RMQ_CRASH("pop-cut-reviving");
        __atomic_store_n(&e->copied, e->copied & e->acked, __ATOMIC_RELEASE);
        RMQ_CRASH("pop-cut-copied");
        count++;
    }
    return count;
}
