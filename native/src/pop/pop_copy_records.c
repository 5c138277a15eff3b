/* pop_copy_records.c: copies of entries that are under way or not yet flushed. */
#include "pop/pop_copy_records.h"

#include <stdlib.h>

#define RECORDS_MIN 64

static int grow_stored(struct rmq_pop_copy_records *r)
{
    uint64_t max = r->stored_max ? r->stored_max * 2 : RECORDS_MIN;
    struct rmq_pop_stored *stored = malloc(max * sizeof *stored);
    if (!stored)
        return 0;
    for (uint64_t at = r->stored_from; at < r->stored_to; at++)
        stored[at & (max - 1)] = r->stored[at & (r->stored_max - 1)];
    free(r->stored);
    r->stored = stored;
    r->stored_max = max;
    return 1;
}

int rmq_pop_copy_records_ready(struct rmq_pop_copy_records *r)
{
    if (r->stored_to - r->stored_from == r->stored_max && !grow_stored(r))
        return 0;
    if (r->free != RMQ_NONE)
        return 1;
    uint32_t max = r->max ? r->max * 2 : RECORDS_MIN;
    struct rmq_pop_record *all = realloc(r->all, max * sizeof *all);
    if (!all)
        return 0;
    r->all = all;
    for (uint32_t number = max; number-- > r->max;) {
        all[number] = (struct rmq_pop_record){.next = r->free};
        r->free = number;
    }
    r->max = max;
    return 1;
}

uint32_t rmq_pop_record_make(struct rmq_pop_copy_records *r, uint32_t entry, uint64_t flying)
{
    uint32_t number = r->free;
    r->free = r->all[number].next;
    r->serial += r->serial == UINT32_MAX ? 2 : 1;
    r->all[number] = (struct rmq_pop_record){.entry = entry, .serial = r->serial, .flying = flying};
    return number;
}

void rmq_pop_record_drop(struct rmq_pop_copy_records *r, uint32_t number)
{
    r->all[number].serial = 0;
    r->all[number].next = r->free;
    r->free = number;
}

/* Completions come nearly in the order of the log. */
void rmq_pop_record_store(struct rmq_pop_copy_records *r, uint32_t number, uint64_t bit, uint64_t end)
{
    struct rmq_pop_record *record = &r->all[number];
    uint64_t at = r->stored_to++, mask = r->stored_max - 1;
    record->flying &= ~bit;
    record->stored |= bit;
    for (; at > r->stored_from && r->stored[(at - 1) & mask].end > end; at--)
        r->stored[at & mask] = r->stored[(at - 1) & mask];
    r->stored[at & mask] = (struct rmq_pop_stored){.record = number, .serial = record->serial, .bits = bit, .end = end};
}

/* Copies of one entry mostly follow one another. */
uint32_t rmq_pop_record_flush(struct rmq_pop_copy_records *r, uint64_t flushed, uint64_t *bits)
{
    uint32_t number = RMQ_NONE;
    *bits = 0;
    for (; r->stored_from < r->stored_to; r->stored_from++) {
        const struct rmq_pop_stored *copy = &r->stored[r->stored_from & (r->stored_max - 1)];
        if (copy->end > flushed || (number != RMQ_NONE && copy->record != number))
            break;
        struct rmq_pop_record *record = &r->all[copy->record];
        uint64_t found = record->serial == copy->serial ? copy->bits & record->stored : 0;
        if (!found)
            continue;
        number = copy->record;
        *bits |= found;
        record->stored &= ~found;
    }
    return number;
}
