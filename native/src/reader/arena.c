#include "reader/arena.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_PAGES 64u
#define LENT_MIN 64u  /* buffers lent to the kernel while that is enough: it takes them in turn, so the fewer the warmer */
#define CALM_TICKS 10
#define ZONE_WINDOW_MS 30000u
#define GIVEN_PAGES_MAX 1024u /* of a zone, a second; 4 MiB take some 0.2 ms */

/* Large frames stay out of the first quarter: clients that claim much and send little must not stop everybody's small
 * frames. */
static uint32_t large_from(const struct rmq_arena *a) { return a->block_pages / 4; }

/* Number of the pages [at, at + pages) in the first quarter. */
static uint32_t small_pages(const struct rmq_arena *a, uint32_t at, uint32_t pages)
{
    uint32_t end = large_from(a);
    return at >= end ? 0 : pages < end - at ? pages : end - at;
}

/* Claims over all that large frames may have must not take control's requests their room, nor these all that small frames
 * have left. */
int rmq_blocks_for_control(const struct rmq_arena *a)
{
    return a->blocks_free > a->block_pages / 4 || a->small_free >= large_from(a) / 2;
}

int rmq_arena_open(struct rmq_arena *a, const struct rmq_read_context *context)
{
    const struct rmq_settings *s = context->settings;
    a->context = context;
    a->buffer_bytes = s->receive_buffer_bytes;
    a->buffer_count = s->receive_buffer_count;
    a->blocks_at = (uint64_t)a->buffer_bytes * a->buffer_count;
    a->block_pages = s->reassembly_bytes_max / RMQ_BLOCK_BYTES;
    a->scratch_at = a->blocks_at + (uint64_t)a->block_pages * RMQ_BLOCK_BYTES;
    if (!a->buffer_bytes || a->buffer_bytes % RMQ_BLOCK_BYTES || !a->buffer_count || a->buffer_count > 32768 ||
        (a->buffer_count & (a->buffer_count - 1)) || !a->block_pages ||
        context->plane->arena_bytes[context->port_number] < a->scratch_at)
        return -EINVAL;
    a->bytes = (uint8_t *)context->plane->arenas[context->port_number];
    a->buffer_references = calloc(a->buffer_count, sizeof *a->buffer_references);
    a->block_used = calloc(a->block_pages, 1);
    a->buffer_stack = calloc(a->buffer_count, sizeof *a->buffer_stack);
    if (!a->buffer_references || !a->block_used || !a->buffer_stack)
        return -ENOMEM;
    a->blocks_free = a->block_pages;
    a->small_free = large_from(a);
    uint32_t border = large_from(a), end = a->block_pages;
    a->block_zones[0] = (struct rmq_zone){.to = border};
    a->block_zones[1] = (struct rmq_zone){border, end, border, border, border};
    if (context->generation > 1) { /* pages of the dead process; its requests in flight are drained before the first tick */
        a->block_zones[0] = (struct rmq_zone){0, border, border, border, 0};
        a->block_zones[1] = (struct rmq_zone){border, end, end, end, border};
    }
    for (uint32_t i = 0; i < a->buffer_count; i++)
        a->buffer_stack[i] = a->buffer_count - 1 - i;
    a->buffers_free = a->buffer_count;
    a->lend_target = a->buffer_count < LENT_MIN ? a->buffer_count : LENT_MIN;
    return 0;
}

void rmq_arena_close(struct rmq_arena *a)
{
    free(a->buffer_references);
    free(a->buffer_stack);
    free(a->block_used);
}

void rmq_buffer_drop(struct rmq_arena *a, uint32_t buffer)
{
    RMQ_INVARIANT(a->buffer_references[buffer], buffer, a->buffers_free, a->buffers_lent);
    if (--a->buffer_references[buffer])
        return;
    a->buffer_stack[a->buffers_free++ - a->buffers_lent] = buffer;
}

void rmq_buffers_lend(struct rmq_arena *a)
{
    uint32_t there = a->buffers_free - a->buffers_lent, wanted = a->lend_target - a->buffers_lent;
    uint32_t count = there < wanted ? there : wanted;
    rmq_engine_lend(a->context->engine, a->buffer_stack + there - count, count);
    a->buffers_lent += count;
}

void rmq_buffers_short(struct rmq_arena *a)
{
    a->lend_target = a->lend_target < a->buffer_count / 2 ? a->lend_target * 2 : a->buffer_count;
    a->lend_calm = 0;
}

void rmq_buffers_tick(struct rmq_arena *a)
{
    if (++a->lend_calm < CALM_TICKS || a->lend_target / 2 < LENT_MIN)
        return;
    a->lend_target /= 2; /* those above it are used up first */
    a->lend_calm = 0;
}

/* First run of `pages` free pages in [from, to), or `to`. */
static uint32_t find_run(const struct rmq_arena *a, uint32_t from, uint32_t to, uint32_t pages)
{
    uint32_t run = 0;
    for (uint32_t i = from; i < to; i++) {
        run = a->block_used[i] ? 0 : run + 1;
        if (run == pages)
            return i + 1 - pages;
    }
    return to;
}

uint32_t rmq_block_pages_max(const struct rmq_arena *a) { return a->block_pages - large_from(a); }

static uint32_t pages_of(uint32_t bytes) { return (bytes + RMQ_BLOCK_BYTES - 1) / RMQ_BLOCK_BYTES; }

int rmq_block_is_large(uint32_t bytes) { return pages_of(bytes) > LARGE_PAGES; }

/* The first page that a frame of so many may have. */
static uint32_t first_page(const struct rmq_arena *a, uint32_t pages) { return pages > LARGE_PAGES ? large_from(a) : 0; }

uint32_t rmq_block_run(const struct rmq_arena *a, const struct rmq_frame_ref *ref, uint32_t bytes, int *crumb)
{
    uint32_t pages = pages_of(bytes), first = first_page(a, pages), from = ref->block, to = from + ref->block_pages;
    *crumb = 0;
    if (ref->block == RMQ_NONE || to <= first)
        return 0;
    from = from < first ? first : from;
    while (from > first && to - from < pages && !a->block_used[from - 1])
        from--;
    while (to < a->block_pages && to - from < pages && !a->block_used[to])
        to++;
    if (to - from >= pages)
        return pages;
    *crumb = pages > LARGE_PAGES && to - from < LARGE_PAGES;
    return to - from;
}

int rmq_block_fits(const struct rmq_arena *a, uint32_t bytes)
{
    uint32_t pages = pages_of(bytes);
    return pages <= a->blocks_free && find_run(a, first_page(a, pages), a->block_pages, pages) < a->block_pages;
}

/* Pages [at, end) are used. */
static void note_used(struct rmq_arena *a, uint32_t at, uint32_t end)
{
    for (struct rmq_zone *z = a->block_zones; z < a->block_zones + 2; z++) {
        uint32_t last = end < z->to ? end : z->to;
        if (at >= z->to || last <= z->peak)
            continue;
        z->peak = last;
        z->touched = last > z->touched ? last : z->touched;
    }
}

static uint32_t used_end(const struct rmq_arena *a, const struct rmq_zone *z)
{
    uint32_t end = z->touched;
    while (end > z->from && !a->block_used[end - 1])
        end--;
    return end;
}

void rmq_blocks_tick(struct rmq_arena *a)
{
    if (a->context->now_ms < a->given_next_ms || sysconf(_SC_PAGESIZE) != RMQ_BLOCK_BYTES)
        return;
    a->given_next_ms = a->context->now_ms + 1000;
    int is_over = a->context->now_ms >= a->zones_next_ms;
    for (struct rmq_zone *z = a->block_zones; z < a->block_zones + 2; z++) {
        if (is_over) {
            z->last_peak = z->peak;
            z->peak = used_end(a, z);
        }
        uint32_t kept = z->peak > z->last_peak ? z->peak : z->last_peak;
        if (z->touched <= kept)
            continue;
        uint32_t pages = z->touched - kept < GIVEN_PAGES_MAX ? z->touched - kept : GIVEN_PAGES_MAX;
        z->touched -= pages;
        /* the system may refuse them: they stay, as without this call */
        (void)madvise(rmq_block_at(a, z->touched), (size_t)pages * RMQ_BLOCK_BYTES,
                      MADV_REMOVE);
    }
    if (is_over)
        a->zones_next_ms = a->context->now_ms + ZONE_WINDOW_MS;
}

/* Pages [at, at + pages) become a frame's. */
static void mark_used(struct rmq_arena *a, uint32_t at, uint32_t pages)
{
    memset(a->block_used + at, 1, pages);
    a->blocks_free -= pages;
    a->small_free -= small_pages(a, at, pages);
    note_used(a, at, at + pages);
}

uint8_t *rmq_block_take(struct rmq_arena *a, uint32_t bytes, struct rmq_frame_ref *ref)
{
    uint32_t pages = pages_of(bytes);
    if (pages > a->blocks_free)
        return NULL;
    uint32_t first = first_page(a, pages), from = a->block_hint > first ? a->block_hint : first;
    uint32_t at = find_run(a, from, a->block_pages, pages);
    if (at == a->block_pages) {
        at = find_run(a, first, a->block_pages, pages);
        if (at == a->block_pages)
            return NULL;
    }
    mark_used(a, at, pages);
    if (pages <= LARGE_PAGES)
        a->block_hint = at + pages < a->block_pages ? at + pages : 0;
    *ref = (struct rmq_frame_ref){.buffer = RMQ_NONE, .block = at, .block_pages = pages};
    return rmq_block_at(a, at);
}

int rmq_block_grow(struct rmq_arena *a, struct rmq_frame_ref *ref, uint32_t used, uint32_t bytes)
{
    uint32_t pages = pages_of(bytes), end = ref->block + ref->block_pages, more = pages - ref->block_pages;
    if (ref->block >= first_page(a, pages) && more <= a->block_pages - end && !memchr(a->block_used + end, 1, more)) {
        mark_used(a, end, more);
        ref->block_pages = pages;
        if (a->block_hint >= end && a->block_hint < end + more)
            a->block_hint = end + more < a->block_pages ? end + more : 0;
        return 1;
    }
    struct rmq_frame_ref larger;
    uint8_t *to = rmq_block_take(a, bytes, &larger);
    if (!to)
        return 0;
    memcpy(to, rmq_block_at(a, ref->block), used);
    rmq_frame_ref_release(a, ref);
    *ref = larger;
    return 1;
}

void rmq_frame_ref_release(struct rmq_arena *a, struct rmq_frame_ref *ref)
{
    if (ref->buffer != RMQ_NONE) {
        rmq_buffer_drop(a, ref->buffer);
    } else if (ref->block != RMQ_NONE) {
        RMQ_INVARIANT(a->block_used[ref->block], ref->block, ref->block_pages, a->blocks_free);
        memset(a->block_used + ref->block, 0, ref->block_pages);
        a->blocks_free += ref->block_pages;
        a->small_free += small_pages(a, ref->block, ref->block_pages);
        a->blocks_came_free = 1;
        a->block_freed_ms = a->context->now_ms;
        if (ref->block < a->block_hint)
            a->block_hint = ref->block; /* low pages first: they are warm */
    }
    ref->buffer = ref->block = RMQ_NONE;
}

void rmq_frame_ref_retain(struct rmq_arena *a, struct rmq_frame_ref *from, struct rmq_frame_ref *to)
{
    *to = *from;
    if (from->buffer != RMQ_NONE)
        rmq_buffer_retain(a, from->buffer);
    else
        from->block = RMQ_NONE;
}
