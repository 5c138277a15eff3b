/* pop_windows_driver.c: random calls of POP's windows under sanitizers, between starts from memory with flipped bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pop/pop_entries.c"
#include "pop/pop_hash.c"
#include "pop/pop_pages.c"
#include "pop/pop_copy_records.c"
#include "pop/pop_order_batches.c"
#include "pop/pop_orders.c"
#include "pop/pop_revivals.c"
#include "pop/pop_start.c"
#include "pop/pop_wheel.c"
#include "pop/pop_windows.c"

#define WINDOWS 5
#define ENTRIES 70
#define ROOM 128

static uint64_t seed;
static uint32_t pick(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static struct rmq_pop_due flying[ROOM];
static uint32_t flying_count;
static int64_t mono = 1000, now = 1800000000000;
static uint64_t log_end = 1;

static struct rmq_pop_give give_at(int64_t start, int64_t next)
{
    return (struct rmq_pop_give){.pop_time_ms = now, .mono_ms = mono, .start_offset = start, .next_offset = next,
                                 .invisible_ms = pick(5) ? pick(3000) : 86400000};
}

static void pop(struct rmq_pop_windows *w, uint32_t place)
{
    int64_t offsets[100], at = rmq_pop_window_at(w, place)->next_offset, start = at;
    uint32_t count = 1 + pick(pick(4) ? 4 : 100), again = rmq_pop_returned(w, place, offsets, 1 + pick(40));
    if (again) {
        struct rmq_pop_give give = give_at(offsets[0], 0);
        give.pop_time_ms = rmq_pop_time_for(w, &place, offsets, 1, now);
        rmq_pop_give_again(w, place, &give, offsets, again);
        return;
    }
    if (at > INT64_MAX / 2)
        return;
    for (uint32_t i = 0; i < count; i++, at += pick(8) ? 1 : pick(100))
        offsets[i] = i && at <= offsets[i - 1] ? (at = offsets[i - 1] + 1) : at;
    struct rmq_pop_give give = give_at(start, offsets[count - 1] + 1);
    give.pop_time_ms = rmq_pop_time_for(w, &place, &start, 1, now);
    rmq_pop_window_give(w, place, &give, offsets, count);
}

static void use_receipt(struct rmq_pop_windows *w, uint32_t place)
{
    const struct rmq_pop_entry *e = &w->entries[pick(ENTRIES)];
    int64_t start = pick(9) ? rmq_pop_start_of(e) : (int64_t)seed, time_ms = e->pop_time_ms;
    int64_t offset = pick(9) ? (int64_t)(e->base_offset + pick(70)) : (int64_t)pick(200);
    uint32_t done, choice = pick(8);
    struct rmq_pop_give give = give_at(offset, 0);
    give.pop_time_ms = rmq_pop_time_for(w, &place, &offset, 1, now);
    if (choice < 5)
        rmq_pop_ack(w, place, start, time_ms, offset, pick(2) ? 1 : seed, &done);
    else if (choice < 7 && offset >= 0 && offset < INT64_MAX / 2)
        rmq_pop_change(w, place, start, time_ms, offset, &give);
    else
        rmq_pop_unsent(w, place, start, time_ms);
}

static void use_order(struct rmq_pop_windows *w, uint32_t place)
{
    static const uint8_t names[] = "a1a2";
    const struct rmq_pop_order *o = rmq_pop_order_at(w, place);
    struct rmq_pop_attempt attempt = {names + pick(3), pick(3)};
    int64_t offsets[RMQ_POP_ORDER_MESSAGES], at = rmq_pop_window_at(w, place)->next_offset;
    uint32_t count = 1 + pick(RMQ_POP_ORDER_MESSAGES), places[2], choice = pick(8);
    struct rmq_pop_give give = give_at(at, 0);
    give.pop_time_ms = rmq_pop_order_time_for(w, &place, 1, now);
    if (choice < 3 && at < INT64_MAX / 2 && !rmq_pop_order_blocks(w, place, &attempt, mono)) {
        rmq_pop_leave_returned(w, place, INT64_MAX);
        for (uint32_t i = 0; i < count; i++)
            offsets[i] = at += 1 + pick(4) * pick(4);
        if (!rmq_pop_order_give(w, place, &give, &attempt, offsets, count) && pick(8))
            rmq_pop_order_show(w, place);
    } else if (choice == 3) {
        rmq_pop_orders_due(w, mono, places, 2);
        rmq_pop_orders_ready(w, 1 + pick(6), mono);
    } else if (o && choice < 6) {
        rmq_pop_order_ack(w, place, o->pop_time_ms, rmq_pop_order_offset(o, pick(o->count)));
    } else if (o && choice < 7) {
        rmq_pop_order_change(w, place, o->pop_time_ms, rmq_pop_order_offset(o, pick(o->count)), mono + pick(3000) - 100);
    } else if (o) {
        rmq_pop_unsent(w, place, (int64_t)o->base_offset - o->start_delta, o->pop_time_ms);
    }
}

static void land(struct rmq_pop_windows *w)
{
    while (flying_count) {
        struct rmq_pop_due due = flying[--flying_count];
        uint32_t choice = pick(10);
        if (choice < 6)
            rmq_pop_copied(w, due.window, due.queue_offset, log_end += pick(100));
        else if (choice < 9)
            rmq_pop_copy_failed(w, due.window, due.queue_offset, mono + pick(2000) - 20, (int)pick(2));
        else
            rmq_pop_copy_gone(w, due.window, due.queue_offset);
        if (pick(2))
            rmq_pop_copy_seen(w, due.window, due.queue_offset);
        rmq_pop_take_copy(w, due.window, due.queue_offset);
    }
}

static void act(struct rmq_pop_windows *w, uint32_t place, uint32_t choice)
{
    uint32_t made;
    mono += pick(100);
    now += pick(100);
    if (!rmq_pop_window_at(w, place))
        rmq_pop_window_make(w, 1 + pick(40), 0, 0, pick(300), &made);
    else if (choice < 15)
        use_order(w, place);
    else if (choice < 40)
        pop(w, place);
    else if (choice < 75)
        use_receipt(w, place);
    else if (choice < 82 && !flying_count)
        flying_count = rmq_pop_due(w, mono += pick(3) ? 10 : 700000, flying, ROOM);
    else if (choice < 88)
        land(w);
    else if (choice < 92)
        rmq_pop_flushed(w, log_end - (pick(2) ? 0 : pick((uint32_t)log_end)));
    else if (choice < 95)
        rmq_pop_clamp(w, place, rmq_pop_window_at(w, place)->next_offset * pick(10) / 10);
    else if (choice < 97)
        rmq_pop_forget_revived(w, pick(ENTRIES));
    else if (choice < 98)
        rmq_pop_window_drop(w, place);
    else
        rmq_pop_set_committed(w, place, rmq_pop_first_open(w, place), 1);
}

int main(int count, char **words)
{
    uint32_t rounds = count > 1 ? (uint32_t)atoi(words[1]) : 100;
    struct rmq_pop_layout layout = rmq_pop_layout_of(WINDOWS, ENTRIES);
    uint8_t *memory = calloc(1, layout.mapped_bytes);
    for (seed = count > 2 ? (uint64_t)atoll(words[2]) : 1; rounds--;) {
        uint64_t damaged;
        struct rmq_pop_pages *pages = rmq_pop_pages_open(memory, layout, -1);
        struct rmq_pop_windows *w = rmq_pop_windows_open(pages, layout, now, mono, &damaged);
        for (uint32_t i = 0; i < 300; i++)
            act(w, pick(WINDOWS), pick(100));
        flying_count = 0;
        for (uint32_t i = pick(2) ? pick(6) : 0; i; i--)
            memory[layout.windows_at + pick((uint32_t)(layout.bytes - layout.windows_at))] ^= (uint8_t)(1 << pick(8));
        rmq_pop_windows_close(w);
        rmq_pop_pages_close(pages);
    }
    free(memory);
    puts("played");
    return 0;
}
