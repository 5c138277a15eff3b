#include "timer/timer_slot.h"

#include "timer/timer_deletes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BITS 40
#define FIRST_ROOM 1024

struct rmq_timer_slot {
    int64_t slot_ms, end_ms;
    uint64_t *heap; /* keys, the smallest first */
    uint64_t count, room;
    uint64_t found;      /* keys of the heap that walks have found */
    uint64_t units_end;
    uint32_t messages_max;
    uint64_t taken_below; /* earlier walks have taken the keys below it */
    uint64_t kept_below;  /* this walk keeps the keys below it */
    uint64_t left_out;
    struct rmq_timer_deletes deletes;
    uint64_t secret[2];
};

struct rmq_timer_slot *rmq_timer_slot_open(int64_t slot_ms, uint32_t messages_max, uint64_t units_end, const uint64_t *secret)
{
    struct rmq_timer_slot *slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->slot_ms = slot_ms;
    slot->end_ms = slot_ms + 1;
    slot->messages_max = messages_max < 2 ? 2 : messages_max;
    slot->units_end = units_end;
    slot->kept_below = UINT64_MAX;
    rmq_timer_slot_limit_deletes(slot, RMQ_TIMER_DELETES_MAX, NULL);
    memcpy(slot->secret, secret, sizeof slot->secret);
    return slot;
}

void rmq_timer_slot_close(struct rmq_timer_slot *slot)
{
    if (!slot)
        return;
    free(slot->heap);
    rmq_timer_deletes_free(&slot->deletes);
    free(slot);
}

/* 24 bits. The upper half are milliseconds from NEAR_MS before the slot on, below it are seconds, and minutes before those: the
 * open slot lies ahead of a clock that was set back. Rounding is toward the slot, never to a time before the exact one. */
static uint64_t key_of(const struct rmq_timer_slot *slot, uint64_t unit, int64_t exact_ms)
{
    int64_t ms = exact_ms - slot->slot_ms, near = RMQ_TIMER_NEAR_MS, time;
    if (ms >= -near) {
        time = 3 * near + (ms < near ? ms : near - 1);
    } else {
        int64_t seconds = (-near - ms) / 1000, minutes = (seconds - near) / 60;
        time = seconds < near ? 2 * near - seconds : near - (minutes < near ? minutes : near);
    }
    return (uint64_t)time << UNIT_BITS | (unit & (((uint64_t)1 << UNIT_BITS) - 1));
}

uint64_t rmq_timer_slot_unit(uint64_t key) { return key & (((uint64_t)1 << UNIT_BITS) - 1); }

int64_t rmq_timer_slot_exact_ms(const struct rmq_timer_slot *slot, uint64_t key)
{
    int64_t time = (int64_t)(key >> UNIT_BITS), near = RMQ_TIMER_NEAR_MS;
    if (time >= 2 * near)
        return slot->slot_ms + time - 3 * near;
    int64_t before_ms = time >= near ? (2 * near - time) * 1000 : near * 1000 + (near - time) * 60000;
    return slot->slot_ms - near - before_ms;
}

/* --- a heap of keys --------------------------------------------------------------------------------------- */

static void sift_down(uint64_t *heap, uint64_t count, uint64_t at)
{
    uint64_t key = heap[at], child;
    while ((child = 2 * at + 1) < count) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

static void sift_up(uint64_t *heap, uint64_t at)
{
    uint64_t key = heap[at];
    while (at && heap[(at - 1) / 2] > key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = key;
}

static int is_found(const struct rmq_timer_slot *slot, uint64_t key) { return rmq_timer_slot_unit(key) < slot->units_end; }

/* The key that `rank` smaller ones of walks precede, byte by byte from the highest on. A sort of millions of keys would take the
 * worker's time in one go; this takes a tenth of it, whatever the keys are. */
static uint64_t found_key(const struct rmq_timer_slot *slot, uint64_t rank)
{
    uint64_t prefix = 0, mask = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        uint64_t counts[256] = {0}, byte = 0;
        for (uint64_t i = 0; i < slot->count; i++)
            counts[slot->heap[i] >> shift & 255] += (slot->heap[i] & mask) == prefix && is_found(slot, slot->heap[i]);
        while (rank >= counts[byte])
            rank -= counts[byte++];
        prefix |= byte << shift;
        mask |= (uint64_t)255 << shift;
    }
    return prefix;
}

/* Leaves out the later half of what walks have found. */
static void leave_out(struct rmq_timer_slot *slot)
{
    uint64_t kept = slot->found / 2, count = 0;
    slot->kept_below = found_key(slot, kept);
    for (uint64_t i = 0; i < slot->count; i++)
        if (slot->heap[i] < slot->kept_below || !is_found(slot, slot->heap[i]))
            slot->heap[count++] = slot->heap[i];
    for (uint64_t i = count / 2; i-- > 0;)
        sift_down(slot->heap, count, i);
    slot->left_out += slot->found - kept;
    slot->found = kept;
    slot->count = count;
}

static int push(struct rmq_timer_slot *slot, uint64_t key)
{
    int found = is_found(slot, key);
    if (found && key >= slot->kept_below) {
        slot->left_out++;
        return 0;
    }
    if (slot->count == slot->room) {
        uint64_t room = slot->room ? slot->room * 2 : FIRST_ROOM;
        uint64_t *heap = realloc(slot->heap, room * sizeof *heap);
        if (!heap)
            return -ENOMEM;
        slot->heap = heap;
        slot->room = room;
    }
    slot->heap[slot->count] = key;
    sift_up(slot->heap, slot->count++);
    slot->found += (uint64_t)found;
    if (slot->found > slot->messages_max)
        leave_out(slot);
    return 0;
}

static uint64_t pop(struct rmq_timer_slot *slot)
{
    uint64_t key = slot->heap[0];
    slot->heap[0] = slot->heap[--slot->count];
    if (slot->count)
        sift_down(slot->heap, slot->count, 0);
    slot->found -= (uint64_t)is_found(slot, key);
    return key;
}

/* --- deletes ---------------------------------------------------------------------------------------------- */

void rmq_timer_slot_limit_deletes(struct rmq_timer_slot *slot, uint32_t keys_max, const char *folder)
{
    slot->deletes.keys_max = keys_max ? keys_max : 1;
    slot->deletes.folder = folder;
}

int rmq_timer_slot_deletes(const struct rmq_timer_slot *slot, const uint64_t *key)
{
    return rmq_timer_deletes_has(&slot->deletes, key);
}

int rmq_timer_slot_has_deletes(const struct rmq_timer_slot *slot) { return slot->deletes.count != 0; }

/* --- messages --------------------------------------------------------------------------------------------- */

/* A rolled message goes back into the timer topic at the slot's time. */
static int64_t time_of(const struct rmq_timer_slot *slot, uint32_t magic, int64_t exact_ms)
{
    return magic & RMQ_TIMER_ROLL ? slot->slot_ms : exact_ms;
}

int rmq_timer_slot_add(struct rmq_timer_slot *slot, uint64_t unit, uint32_t magic, const struct rmq_timer_record *record)
{
    if (magic & RMQ_TIMER_DELETE && !(magic & RMQ_TIMER_ROLL))
        return record->has_key ? rmq_timer_deletes_add(&slot->deletes, record->key) : 0;
    return push(slot, key_of(slot, unit, time_of(slot, magic, record->exact_ms)));
}

void rmq_timer_slot_walk_again(struct rmq_timer_slot *slot)
{
    slot->taken_below = slot->kept_below;
    slot->kept_below = UINT64_MAX;
    slot->left_out = 0;
}

int rmq_timer_slot_is_walked_again(const struct rmq_timer_slot *slot) { return slot->taken_below != 0; }

int rmq_timer_slot_found(struct rmq_timer_slot *slot, uint64_t unit, uint32_t magic, const struct rmq_timer_record *record)
{
    int is_delete = magic & RMQ_TIMER_DELETE && !(magic & RMQ_TIMER_ROLL);
    if (!is_delete && key_of(slot, unit, time_of(slot, magic, record->exact_ms)) < slot->taken_below)
        return 0;
    return rmq_timer_slot_add(slot, unit, magic, record);
}

const uint64_t *rmq_timer_slot_secret(const struct rmq_timer_slot *slot) { return slot->secret; }

int64_t rmq_timer_slot_time(const struct rmq_timer_slot *slot) { return slot->slot_ms; }

int64_t rmq_timer_slot_end(const struct rmq_timer_slot *slot) { return slot->end_ms; }

void rmq_timer_slot_extend(struct rmq_timer_slot *slot, int64_t end_ms) { slot->end_ms = end_ms; }

uint64_t rmq_timer_slot_units_end(const struct rmq_timer_slot *slot) { return slot->units_end; }

/* Messages that came later wait behind those that are left out. */
static int has_next(const struct rmq_timer_slot *slot) { return slot->count && slot->heap[0] < slot->kept_below; }

uint32_t rmq_timer_slot_take(struct rmq_timer_slot *slot, int64_t now_ms, uint64_t *keys, uint32_t room)
{
    uint32_t count = 0;
    while (count < room && has_next(slot) && rmq_timer_slot_exact_ms(slot, slot->heap[0]) <= now_ms)
        keys[count++] = pop(slot);
    return count;
}

int rmq_timer_slot_return(struct rmq_timer_slot *slot, const uint64_t *keys, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && !rc; i++)
        rc = push(slot, keys[i]);
    return rc;
}

int64_t rmq_timer_slot_next_ms(const struct rmq_timer_slot *slot)
{
    return has_next(slot) ? rmq_timer_slot_exact_ms(slot, slot->heap[0]) : -1;
}

uint64_t rmq_timer_slot_waiting(const struct rmq_timer_slot *slot) { return slot->count; }

uint64_t rmq_timer_slot_left_out(const struct rmq_timer_slot *slot) { return slot->left_out; }

int rmq_timer_slot_needs_walk(const struct rmq_timer_slot *slot) { return slot->left_out && !slot->found; }
