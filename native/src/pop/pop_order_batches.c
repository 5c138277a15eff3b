/* pop_order_batches.c: pops, acknowledgements and changes of orderly groups. Twin: pop/order_twin.py. */
#include <string.h>

#include "pop/pop_entries.h"

static uint16_t one_more(uint16_t count) { return (uint16_t)(count + (count < UINT16_MAX)); }

/* The pops that gave the message before. The same attempt, or a batch that no consumer has received, is the same pop. */
static uint16_t consumed_before(const struct rmq_pop_order *before, const struct rmq_pop_attempt *attempt, int64_t offset)
{
    for (uint32_t i = 0; before && i < before->count; i++)
        if (rmq_pop_order_offset(before, i) == offset)
            return before->returned || rmq_pop_order_is_of(before, attempt) ? before->consumed[i] : one_more(before->consumed[i]);
    return 0;
}

/* All but the counts and the bits. */
static void fill_order(struct rmq_pop_order *o, uint32_t window, const struct rmq_pop_give *give, const struct rmq_pop_attempt *attempt,
                 const int64_t *offsets, uint32_t count)
{
    *o = (struct rmq_pop_order){
        .base_offset = (uint64_t)offsets[0], .pop_time_ms = give->pop_time_ms, .window = window, .invisible_ms = give->invisible_ms,
        .start_delta = (uint32_t)(offsets[0] - give->start_offset), .count = (uint16_t)count, .client = give->client,
        .attempt_bytes = (uint16_t)attempt->bytes};
    for (uint32_t i = 0; i < count; i++) {
        o->deltas[i] = (uint32_t)(offsets[i] - offsets[0]);
        o->visible_ms[i] = give->invisible_ms;
    }
    if (attempt->bytes)
        memcpy(o->attempt, attempt->text, attempt->bytes);
}

/* The batch counts from one store on, and the one before it ends with that. */
static void publish_order(struct rmq_pop_windows *w, uint32_t place, uint32_t slot)
{
    struct rmq_pop_window *window = &w->windows[place];
    struct rmq_pop_order *o = &w->orders.all[slot];
    uint32_t before = window->order;
    o->check = rmq_pop_order_check(o);
    RMQ_CRASH("pop-order-filled");
    rmq_pop_touch(w->pages, window);
    RMQ_POP_STORE(window->order, slot + 1);
    RMQ_CRASH("pop-order-given");
    rmq_pop_order_forget(w, before);
    rmq_pop_note_pop(w, place, o->pop_time_ms);
    rmq_pop_order_arm(w, place);
}

int64_t rmq_pop_order_time_for(const struct rmq_pop_windows *w, const uint32_t *places, uint32_t count, int64_t pop_time_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct rmq_pop_order *o = rmq_pop_order_at(w, places[i]);
        if (o && o->pop_time_ms == pop_time_ms) {
            pop_time_ms++;
            i = (uint32_t)-1;
        }
    }
    return pop_time_ms;
}

int rmq_pop_order_give(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const struct rmq_pop_attempt *attempt,
                       const int64_t *offsets, uint32_t count)
{
    int rc = rmq_pop_orders_ready(w, 1, give->mono_ms);
    if (rc)
        return rc;
    const struct rmq_pop_order *before = rmq_pop_order_at(w, place);
    uint32_t slot = rmq_pop_order_take(w, place, give->mono_ms);
    struct rmq_pop_order *o = &w->orders.all[slot];
    rmq_pop_touch(w->pages, o);
    fill_order(o, w->windows[place].id, give, attempt, offsets, count);
    for (uint32_t i = 0; i < count; i++)
        o->consumed[i] = consumed_before(before, attempt, offsets[i]);
    o->returned = 1;
    publish_order(w, place, slot);
    return 0;
}

void rmq_pop_order_show(struct rmq_pop_windows *w, uint32_t place)
{
    struct rmq_pop_order *o = &w->orders.all[w->windows[place].order - 1];
    rmq_pop_touch(w->pages, o);
    RMQ_POP_STORE(o->returned, 0);
    RMQ_CRASH("pop-order-shown");
    rmq_pop_order_arm(w, place);
}

int rmq_pop_order_adopt(struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_give *give, const struct rmq_pop_attempt *attempt,
                        const int64_t *offsets, uint32_t count, const uint32_t *visible_ms, const uint16_t *consumed, uint32_t acked)
{
    int rc = rmq_pop_orders_ready(w, 1, give->mono_ms);
    if (rc)
        return rc;
    uint32_t slot = rmq_pop_order_take(w, place, give->mono_ms);
    struct rmq_pop_order *o = &w->orders.all[slot];
    rmq_pop_touch(w->pages, o);
    fill_order(o, w->windows[place].id, give, attempt, offsets, count);
    memcpy(o->visible_ms, visible_ms, count * sizeof *visible_ms);
    memcpy(o->consumed, consumed, count * sizeof *consumed);
    o->acked = acked;
    publish_order(w, place, slot);
    return 0;
}

/* --- receipts ----------------------------------------------------------------------------------------------- */

/* DONE with the number of the message, or another result. */
static int find_message(const struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms, int64_t offset, uint32_t *number)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    if (offset < w->windows[place].next_offset)
        return RMQ_POP_KNOWN;
    if (!o || o->pop_time_ms != pop_time_ms)
        return RMQ_POP_UNKNOWN;
    for (*number = 0; *number < o->count; ++*number)
        if (rmq_pop_order_offset(o, *number) == offset)
            return RMQ_POP_DONE;
    return RMQ_POP_ILLEGAL;
}

int rmq_pop_order_ack(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms, int64_t offset)
{
    uint32_t number;
    int result = find_message(w, place, pop_time_ms, offset, &number);
    if (result != RMQ_POP_DONE)
        return result;
    struct rmq_pop_order *o = &w->orders.all[w->windows[place].order - 1];
    rmq_pop_touch(w->pages, o);
    RMQ_POP_STORE(o->acked, o->acked | 1u << number);
    RMQ_CRASH("pop-order-acked");
    rmq_pop_skip_to(w, place, rmq_pop_order_next(w, place));
    rmq_pop_order_arm(w, place);
    return RMQ_POP_DONE;
}

int rmq_pop_order_change(struct rmq_pop_windows *w, uint32_t place, int64_t pop_time_ms, int64_t offset, int64_t due_ms)
{
    uint32_t number;
    int result = find_message(w, place, pop_time_ms, offset, &number);
    if (result != RMQ_POP_DONE)
        return result;
    uint32_t slot = w->windows[place].order - 1;
    struct rmq_pop_order *o = &w->orders.all[slot];
    int64_t visible_ms = due_ms - w->orders.mono_ms[slot];
    rmq_pop_touch(w->pages, o);
    RMQ_POP_STORE(o->visible_ms[number], visible_ms < 0 ? 0 : visible_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)visible_ms);
    RMQ_CRASH("pop-order-changed");
    rmq_pop_order_arm(w, place);
    return RMQ_POP_DONE;
}
