/* pop_orders.c: slots of batches, and when they block their queues. pop_order_batches.c has the calls of consumers. Twin:
 * pop/order_twin.py.
 */
#include <errno.h>
#include <libdeflate.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pop/pop_entries.h"

#define ASKED_A_CALL 4096        /* batches that are asked to give way */
#define SORTED_A_CALL 4096

uint32_t rmq_pop_order_check(const struct rmq_pop_order *o)
{
    uint32_t crc = libdeflate_crc32(0, o, offsetof(struct rmq_pop_order, acked));
    crc = libdeflate_crc32(crc, o->deltas, sizeof o->deltas);
    crc = libdeflate_crc32(crc, o->consumed, sizeof o->consumed + sizeof o->attempt);
    return crc ? crc : 1;
}

int rmq_pop_orders_open(struct rmq_pop_windows *w)
{
    struct rmq_pop_orders *orders = &w->orders;
    uint32_t count = w->layout.orders_max;
    orders->all = (struct rmq_pop_order *)(void *)(w->pages->memory + w->layout.orders_at);
    orders->places = calloc(count, sizeof *orders->places);
    orders->mono_ms = calloc(count, sizeof *orders->mono_ms);
    orders->is_armed = calloc(count, sizeof *orders->is_armed);
    orders->spare = calloc(count, sizeof *orders->spare);
    int rc = rmq_pop_wheel_open(&orders->wheel, count, w->mono_ms);
    return orders->places && orders->mono_ms && orders->is_armed && orders->spare ? rc : -ENOMEM;
}

void rmq_pop_orders_close(struct rmq_pop_windows *w)
{
    rmq_pop_wheel_close(&w->orders.wheel);
    free(w->orders.places);
    free(w->orders.mono_ms);
    free(w->orders.is_armed);
    free(w->orders.spare);
}

/* --- one batch ---------------------------------------------------------------------------------------------- */

const struct rmq_pop_order *rmq_pop_order_at(const struct rmq_pop_windows *w, uint32_t place)
{
    uint32_t order = w->windows[place].order;
    return order ? &w->orders.all[order - 1] : NULL;
}

static int is_message_open(const struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_order *o, uint32_t i)
{
    return !(o->acked >> i & 1) && rmq_pop_order_offset(o, i) >= w->windows[place].next_offset;
}

uint32_t rmq_pop_order_open(const struct rmq_pop_windows *w, uint32_t place)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    uint32_t open = 0;
    for (uint32_t i = 0; o && i < o->count; i++)
        open |= (uint32_t)is_message_open(w, place, o, i) << i;
    return open;
}

int64_t rmq_pop_order_next(const struct rmq_pop_windows *w, uint32_t place)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    if (!o)
        return 0;
    uint32_t i = (uint32_t)__builtin_ctzll(~(uint64_t)o->acked);
    return i < o->count ? rmq_pop_order_offset(o, i) : rmq_pop_order_offset(o, o->count - 1u) + 1;
}

int64_t rmq_pop_order_blocked_ms(const struct rmq_pop_windows *w, uint32_t place)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    int64_t until_ms = INT64_MIN;
    if (!o || o->returned)
        return until_ms;
    int64_t given_ms = w->orders.mono_ms[w->windows[place].order - 1];
    for (uint32_t i = 0; i < o->count; i++)
        if (is_message_open(w, place, o, i) && given_ms + o->visible_ms[i] > until_ms)
            until_ms = given_ms + o->visible_ms[i];
    return until_ms;
}

int rmq_pop_order_blocks(const struct rmq_pop_windows *w, uint32_t place, const struct rmq_pop_attempt *attempt, int64_t mono_ms)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    return o && !rmq_pop_order_is_of(o, attempt) && rmq_pop_order_blocked_ms(w, place) > mono_ms;
}

/* --- slots -------------------------------------------------------------------------------------------------- */

static void disarm(struct rmq_pop_orders *orders, uint32_t slot)
{
    if (orders->is_armed[slot])
        rmq_pop_wheel_remove(&orders->wheel, slot);
    orders->is_armed[slot] = 0;
}

void rmq_pop_order_arm(struct rmq_pop_windows *w, uint32_t place)
{
    uint32_t slot = w->windows[place].order - 1;
    int64_t until_ms = rmq_pop_order_blocked_ms(w, place);
    w->orders.changes++;
    disarm(&w->orders, slot);
    if (until_ms == INT64_MIN)
        return;
    rmq_pop_wheel_add(&w->orders.wheel, slot, until_ms);
    w->orders.is_armed[slot] = 1;
}

void rmq_pop_order_forget(struct rmq_pop_windows *w, uint32_t order)
{
    if (!order || order > w->layout.orders_max || !w->orders.places[order - 1])
        return; /* a start has not read it */
    disarm(&w->orders, order - 1);
    w->orders.places[order - 1] = 0;
    w->orders.changes++;
    w->orders.spare[w->orders.spare_count++] = order - 1;
    w->counts.orders--;
}

/* The window has no batch any more. The caller has a crash point behind it. */
static void end_order(struct rmq_pop_windows *w, uint32_t place)
{
    uint32_t order = w->windows[place].order;
    rmq_pop_touch(w->pages, &w->windows[place]);
    RMQ_POP_STORE(w->windows[place].order, 0);
    rmq_pop_order_forget(w, order);
}

void rmq_pop_order_clamp(struct rmq_pop_windows *w, uint32_t place, int64_t end_offset)
{
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    if (!o || rmq_pop_order_offset(o, o->count - 1u) < end_offset)
        return;
    end_order(w, place);
    RMQ_CRASH("pop-clamp-order");
}

static uint32_t orders_ready_of(struct rmq_pop_windows *w, uint32_t count)
{
    struct rmq_pop_orders *orders = &w->orders;
    uint32_t ready = 0;
    for (; ready < count && ready < orders->spare_count; ready++)
        if (rmq_pop_reserve(w->pages, &orders->all[orders->spare[orders->spare_count - 1 - ready]]))
            return ready;
    for (uint32_t slot = orders->end; ready < count && slot < w->layout.orders_max; slot++, ready++)
        if (rmq_pop_reserve(w->pages, &orders->all[slot]))
            return ready;
    return ready;
}

/* Ends the next batch that blocks no queue. 0: none was found. */
static int order_gives_way(struct rmq_pop_windows *w, int64_t mono_ms)
{
    struct rmq_pop_orders *orders = &w->orders;
    for (uint32_t i = 0; i < ASKED_A_CALL && i < w->layout.orders_max; i++) {
        uint32_t place = orders->places[orders->hand];
        orders->hand = (orders->hand + 1) % w->layout.orders_max;
        if (!place || rmq_pop_order_blocked_ms(w, place - 1) > mono_ms)
            continue;
        end_order(w, place - 1);
        RMQ_CRASH("pop-order-ended");
        return 1;
    }
    return 0;
}

int rmq_pop_orders_ready(struct rmq_pop_windows *w, uint32_t count, int64_t mono_ms)
{
    while (orders_ready_of(w, count) < count)
        if (!order_gives_way(w, mono_ms))
            return -ENOSPC;
    return 0;
}

uint32_t rmq_pop_order_take(struct rmq_pop_windows *w, uint32_t place, int64_t mono_ms)
{
    struct rmq_pop_orders *orders = &w->orders;
    uint32_t slot = orders->spare_count ? orders->spare[--orders->spare_count] : orders->end++;
    orders->places[slot] = place + 1;
    orders->mono_ms[slot] = mono_ms;
    w->counts.orders++;
    return slot;
}

/* --- time --------------------------------------------------------------------------------------------------- */

uint32_t rmq_pop_orders_due(struct rmq_pop_windows *w, int64_t mono_ms, uint32_t *places, uint32_t room)
{
    uint32_t count = 0, steps = SORTED_A_CALL, slot;
    while (count < room && (slot = rmq_pop_wheel_first(&w->orders.wheel, mono_ms, &steps)) != RMQ_NONE) {
        uint32_t place = w->orders.places[slot] - 1;
        disarm(&w->orders, slot);
        places[count++] = place; /* also if a normal pop has taken the messages: others behind them may be there */
    }
    return count;
}

uint32_t rmq_pop_orders_from(const struct rmq_pop_windows *w, uint32_t slot, uint32_t *place)
{
    for (; slot < w->orders.end; slot++)
        if (w->orders.places[slot]) {
            *place = w->orders.places[slot] - 1;
            return slot;
        }
    return RMQ_NONE;
}

uint64_t rmq_pop_orders_changes(const struct rmq_pop_windows *w) { return w->orders.changes; }

int64_t rmq_pop_orders_next_ms(const struct rmq_pop_windows *w) { return rmq_pop_wheel_next(&w->orders.wheel); }

int rmq_pop_order_unsent(struct rmq_pop_windows *w, uint32_t place, int64_t start_offset, int64_t pop_time_ms)
{
    struct rmq_pop_order *o = (struct rmq_pop_order *)rmq_pop_order_at(w, place);
    if (!o || o->pop_time_ms != pop_time_ms || (int64_t)o->base_offset - o->start_delta != start_offset)
        return 0;
    if (rmq_pop_order_blocked_ms(w, place) == INT64_MIN)
        return 1; /* it was said before, or nothing of it is open */
    rmq_pop_touch(w->pages, o);
    RMQ_POP_STORE(o->returned, 1);
    RMQ_CRASH("pop-order-returned");
    rmq_pop_order_arm(w, place);
    return 1;
}

/* --- a start ------------------------------------------------------------------------------------------------ */

static int is_order(const struct rmq_pop_windows *w, uint32_t place)
{
    uint32_t order = w->windows[place].order;
    if (order > w->layout.orders_max || !rmq_pop_is_there(w->pages, &w->orders.all[order - 1]))
        return 0;
    const struct rmq_pop_order *o = &w->orders.all[order - 1];
    if (o->window != w->windows[place].id || o->check != rmq_pop_order_check(o) || !o->count || o->count > RMQ_POP_ORDER_MESSAGES ||
        o->attempt_bytes > RMQ_POP_ATTEMPT_BYTES_MAX || o->deltas[0] || o->returned > 1 || o->start_delta > o->base_offset ||
        o->base_offset > INT64_MAX - UINT32_MAX || o->acked >> 1 >> (o->count - 1))
        return 0;
    for (uint32_t i = 1; i < o->count; i++)
        if (o->deltas[i] <= o->deltas[i - 1])
            return 0;
    return 1;
}

/* The moment of the pop. By the wall clock alone the queue is blocked at most as long as from a pop now. */
static int64_t given_ms_of(const struct rmq_pop_windows *w, const struct rmq_pop_order *o, int64_t now_ms)
{
    int64_t passed_ms;
    if (now_ms < o->pop_time_ms)
        return w->mono_ms;
    return w->mono_ms - (__builtin_sub_overflow(now_ms, o->pop_time_ms, &passed_ms) || passed_ms > UINT32_MAX ? UINT32_MAX : passed_ms);
}

uint32_t rmq_pop_orders_read(struct rmq_pop_windows *w, int64_t now_ms)
{
    struct rmq_pop_orders *orders = &w->orders;
    uint32_t damaged = 0;
    for (uint32_t place = 0; place < w->windows_end; place++) {
        struct rmq_pop_window *window = &w->windows[place];
        if (!rmq_pop_is_there(w->pages, window) || !window->id || !window->order)
            continue;
        if (!is_order(w, place)) {
            damaged++;
            rmq_pop_touch(w->pages, window);
            RMQ_POP_STORE(window->order, 0);
            RMQ_CRASH("pop-start-order");
            continue;
        }
        uint32_t slot = window->order - 1;
        orders->places[slot] = place + 1;
        orders->mono_ms[slot] = given_ms_of(w, &orders->all[slot], now_ms);
        orders->end = slot >= orders->end ? slot + 1 : orders->end;
        w->counts.orders++;
        rmq_pop_order_arm(w, place);
    }
    for (uint32_t slot = orders->end; slot-- > 0;)
        if (!orders->places[slot])
            orders->spare[orders->spare_count++] = slot;
    return damaged;
}
