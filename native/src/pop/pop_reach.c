#include "pop/pop_reach.h"

#include <errno.h>
#include <stdlib.h>

#include "pop/pop_orders.h"

/* The end of an orderly group's batch. Damage is a matter of the start that reads it. */
static int64_t order_end(const struct rmq_pop_pages *pages, struct rmq_pop_layout layout, const struct rmq_pop_window *window)
{
    const struct rmq_pop_order *o = (const struct rmq_pop_order *)(const void *)(pages->memory + layout.orders_at) + window->order - 1;
    if (!window->order || window->order > layout.orders_max || !rmq_pop_is_there(pages, o) || !o->count ||
        o->count > RMQ_POP_ORDER_MESSAGES || o->base_offset > INT64_MAX - UINT32_MAX)
        return 0;
    return rmq_pop_order_offset(o, o->count - 1u) + 1;
}

static uint32_t read_windows(const struct rmq_pop_pages *pages, struct rmq_pop_layout layout, uint32_t *places, int64_t *reach,
                             uint32_t room, uint32_t *index_of)
{
    const struct rmq_pop_window *windows = (const void *)(pages->memory + layout.windows_at);
    uint32_t count = 0;
    for (uint32_t place = 0; place < layout.windows_max && count < room; place++) {
        const struct rmq_pop_window *window = &windows[place];
        if (!rmq_pop_is_there(pages, window) || !window->id)
            continue;
        int64_t end = order_end(pages, layout, window);
        places[count] = place;
        reach[count++] = end > window->next_offset ? end : window->next_offset;
        if (window->id < RMQ_POP_WINDOW_IDS)
            index_of[window->id] = count;
    }
    return count;
}

int64_t rmq_pop_reach(const struct rmq_pop_pages *pages, struct rmq_pop_layout layout, uint32_t *places, int64_t *reach, uint32_t room,
                      uint32_t *entries)
{
    const struct rmq_pop_entry *all = (const void *)(pages->memory + layout.entries_at);
    uint32_t *index_of = calloc(RMQ_POP_WINDOW_IDS, sizeof *index_of);
    if (!index_of)
        return -ENOMEM;
    uint32_t count = read_windows(pages, layout, places, reach, room, index_of);
    *entries = 0;
    for (uint32_t i = 0; i < layout.entries_max; i++) {
        const struct rmq_pop_entry *e = &all[i];
        if (!rmq_pop_is_there(pages, e) || e->state == RMQ_POP_FREE)
            continue;
        (*entries)++;
        uint64_t bits = (e->present & ~e->acked) | e->copied;
        uint32_t index = e->window < RMQ_POP_WINDOW_IDS ? index_of[e->window] : 0;
        if (!index || !bits)
            continue;
        int64_t end = (int64_t)(e->base_offset + 64 - (uint64_t)__builtin_clzll(bits));
        if (end > reach[index - 1])
            reach[index - 1] = end;
    }
    free(index_of);
    return count;
}
