/* The reader's arena: counted receive buffers in front, then pages for frames that straddle or must be kept. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reader/reader_state.h"

#define LARGE_PAGES 64u
#define LENT_MIN 64u  /* buffers lent to the kernel while that is enough: it takes them in turn, so the fewer the warmer */
#define CALM_TICKS 10
#define ZONE_WINDOW_MS 30000u
#define GIVEN_PAGES_MAX 1024u /* of a zone, a second; 4 MiB take some 0.2 ms */

/* Large frames stay out of the first quarter: clients that claim much and send little must not stop everybody's small frames. */
static uint32_t large_from(const struct rmq_reader *r) { return r->block_pages / 4; }

/* Number of the pages [at, at + pages) in the first quarter. */
static uint32_t small_pages(const struct rmq_reader *r, uint32_t at, uint32_t pages)
{
    uint32_t end = large_from(r);
    return at >= end ? 0 : pages < end - at ? pages : end - at;
}

/* Claims over all that large frames may have must not take control's requests their room, nor these all that small frames
 * have left. */
int rmq_blocks_for_control(const struct rmq_reader *r)
{
    return r->blocks_free > r->block_pages / 4 || r->small_free >= large_from(r) / 2;
}

int rmq_arena_open(struct rmq_reader *r)
{
    const struct rmq_settings *s = r->context.settings;
    r->buffer_bytes = s->receive_buffer_bytes;
    r->buffer_count = s->receive_buffer_count;
    r->blocks_at = (uint64_t)r->buffer_bytes * r->buffer_count;
    r->block_pages = s->reassembly_bytes_max / RMQ_BLOCK_BYTES;
    if (!r->buffer_bytes || r->buffer_bytes % RMQ_BLOCK_BYTES || !r->buffer_count || r->buffer_count > 32768 ||
        (r->buffer_count & (r->buffer_count - 1)) || !r->block_pages ||
        r->context.plane->arena_bytes[r->context.port_number] < r->blocks_at + (uint64_t)r->block_pages * RMQ_BLOCK_BYTES)
        return -EINVAL;
    r->arena = (uint8_t *)r->context.plane->arenas[r->context.port_number];
    r->buffer_references = calloc(r->buffer_count, sizeof *r->buffer_references);
    r->block_used = calloc(r->block_pages, 1);
    r->buffer_stack = calloc(r->buffer_count, sizeof *r->buffer_stack);
    if (!r->buffer_references || !r->block_used || !r->buffer_stack)
        return -ENOMEM;
    r->blocks_free = r->block_pages;
    r->small_free = large_from(r);
    uint32_t border = large_from(r), end = r->block_pages;
    r->block_zones[0] = (struct rmq_zone){.to = border};
    r->block_zones[1] = (struct rmq_zone){border, end, border, border, border};
    if (r->context.generation > 1) { /* pages of the dead process; its requests in flight are drained before the first tick */
        r->block_zones[0] = (struct rmq_zone){0, border, border, border, 0};
        r->block_zones[1] = (struct rmq_zone){border, end, end, end, border};
    }
    for (uint32_t i = 0; i < r->buffer_count; i++)
        r->buffer_stack[i] = r->buffer_count - 1 - i;
    r->buffers_free = r->buffer_count;
    r->lend_target = r->buffer_count < LENT_MIN ? r->buffer_count : LENT_MIN;
    return 0;
}

void rmq_arena_close(struct rmq_reader *r)
{
    free(r->buffer_references);
    free(r->buffer_stack);
    free(r->block_used);
}

void rmq_buffer_drop(struct rmq_reader *r, uint32_t buffer)
{
    if (--r->buffer_references[buffer])
        return;
    r->buffer_stack[r->buffers_free++ - r->buffers_lent] = buffer;
}

void rmq_buffers_lend(struct rmq_reader *r)
{
    uint32_t there = r->buffers_free - r->buffers_lent, wanted = r->lend_target - r->buffers_lent;
    uint32_t count = there < wanted ? there : wanted;
    rmq_engine_lend(r->context.engine, r->buffer_stack + there - count, count);
    r->buffers_lent += count;
}

void rmq_buffers_short(struct rmq_reader *r)
{
    r->lend_target = r->lend_target < r->buffer_count / 2 ? r->lend_target * 2 : r->buffer_count;
    r->lend_calm = 0;
}

void rmq_buffers_tick(struct rmq_reader *r)
{
    if (++r->lend_calm < CALM_TICKS || r->lend_target / 2 < LENT_MIN)
        return;
    r->lend_target /= 2; /* those above it are used up first */
    r->lend_calm = 0;
}

/* First run of `pages` free pages in [from, to), or `to`. */
static uint32_t find_run(const struct rmq_reader *r, uint32_t from, uint32_t to, uint32_t pages)
{
    uint32_t run = 0;
    for (uint32_t i = from; i < to; i++) {
        run = r->block_used[i] ? 0 : run + 1;
        if (run == pages)
            return i + 1 - pages;
    }
    return to;
}

uint32_t rmq_block_pages_max(const struct rmq_reader *r) { return r->block_pages - large_from(r); }

static uint32_t pages_of(uint32_t bytes) { return (bytes + RMQ_BLOCK_BYTES - 1) / RMQ_BLOCK_BYTES; }

int rmq_block_is_large(uint32_t bytes) { return pages_of(bytes) > LARGE_PAGES; }

/* The first page that a frame of so many may have. */
static uint32_t first_page(const struct rmq_reader *r, uint32_t pages) { return pages > LARGE_PAGES ? large_from(r) : 0; }

uint32_t rmq_block_run(const struct rmq_reader *r, const struct rmq_frame_ref *ref, uint32_t bytes, int *crumb)
{
    uint32_t pages = pages_of(bytes), first = first_page(r, pages), from = ref->block, to = from + ref->block_pages;
    *crumb = 0;
    if (ref->block == RMQ_NONE || to <= first)
        return 0;
    from = from < first ? first : from;
    while (from > first && to - from < pages && !r->block_used[from - 1])
        from--;
    while (to < r->block_pages && to - from < pages && !r->block_used[to])
        to++;
    if (to - from >= pages)
        return pages;
    *crumb = pages > LARGE_PAGES && to - from < LARGE_PAGES;
    return to - from;
}

int rmq_block_fits(const struct rmq_reader *r, uint32_t bytes)
{
    uint32_t pages = pages_of(bytes);
    return pages <= r->blocks_free && find_run(r, first_page(r, pages), r->block_pages, pages) < r->block_pages;
}

/* Pages [at, end) are used. */
static void note_used(struct rmq_reader *r, uint32_t at, uint32_t end)
{
    for (struct rmq_zone *z = r->block_zones; z < r->block_zones + 2; z++) {
        uint32_t last = end < z->to ? end : z->to;
        if (at >= z->to || last <= z->peak)
            continue;
        z->peak = last;
        z->touched = last > z->touched ? last : z->touched;
    }
}

static uint32_t used_end(const struct rmq_reader *r, const struct rmq_zone *z)
{
    uint32_t end = z->touched;
    while (end > z->from && !r->block_used[end - 1])
        end--;
    return end;
}

void rmq_blocks_tick(struct rmq_reader *r)
{
    if (r->context.now_ms < r->given_next_ms || sysconf(_SC_PAGESIZE) != RMQ_BLOCK_BYTES)
        return;
    r->given_next_ms = r->context.now_ms + 1000;
    int is_over = r->context.now_ms >= r->zones_next_ms;
    for (struct rmq_zone *z = r->block_zones; z < r->block_zones + 2; z++) {
        if (is_over) {
            z->last_peak = z->peak;
            z->peak = used_end(r, z);
        }
        uint32_t kept = z->peak > z->last_peak ? z->peak : z->last_peak;
        if (z->touched <= kept)
            continue;
        uint32_t pages = z->touched - kept < GIVEN_PAGES_MAX ? z->touched - kept : GIVEN_PAGES_MAX;
        z->touched -= pages;
        /* where the system does not take them they stay, as they would without this */
        (void)madvise(r->arena + r->blocks_at + (uint64_t)z->touched * RMQ_BLOCK_BYTES, (size_t)pages * RMQ_BLOCK_BYTES,
                      MADV_REMOVE);
    }
    if (is_over)
        r->zones_next_ms = r->context.now_ms + ZONE_WINDOW_MS;
}

/* Pages [at, at + pages) become a frame's. */
static void mark_used(struct rmq_reader *r, uint32_t at, uint32_t pages)
{
    memset(r->block_used + at, 1, pages);
    r->blocks_free -= pages;
    r->small_free -= small_pages(r, at, pages);
    note_used(r, at, at + pages);
}

uint8_t *rmq_block_take(struct rmq_reader *r, uint32_t bytes, struct rmq_frame_ref *ref)
{
    uint32_t pages = pages_of(bytes);
    if (pages > r->blocks_free)
        return NULL;
    uint32_t first = first_page(r, pages), from = r->block_hint > first ? r->block_hint : first;
    uint32_t at = find_run(r, from, r->block_pages, pages);
    if (at == r->block_pages) {
        at = find_run(r, first, r->block_pages, pages);
        if (at == r->block_pages)
            return NULL;
    }
    mark_used(r, at, pages);
    if (pages <= LARGE_PAGES)
        r->block_hint = at + pages < r->block_pages ? at + pages : 0;
    *ref = (struct rmq_frame_ref){.buffer = RMQ_NONE, .block = at, .block_pages = pages};
    return r->arena + r->blocks_at + (uint64_t)at * RMQ_BLOCK_BYTES;
}

int rmq_block_grow(struct rmq_reader *r, struct rmq_frame_ref *ref, uint32_t used, uint32_t bytes)
{
    uint32_t pages = pages_of(bytes), end = ref->block + ref->block_pages, more = pages - ref->block_pages;
    if (ref->block >= first_page(r, pages) && more <= r->block_pages - end && !memchr(r->block_used + end, 1, more)) {
        mark_used(r, end, more);
        ref->block_pages = pages;
        if (r->block_hint >= end && r->block_hint < end + more)
            r->block_hint = end + more < r->block_pages ? end + more : 0;
        return 1;
    }
    struct rmq_frame_ref larger;
    uint8_t *to = rmq_block_take(r, bytes, &larger);
    if (!to)
        return 0;
    memcpy(to, r->arena + r->blocks_at + (uint64_t)ref->block * RMQ_BLOCK_BYTES, used);
    rmq_frame_ref_release(r, ref);
    *ref = larger;
    return 1;
}

void rmq_frame_ref_release(struct rmq_reader *r, struct rmq_frame_ref *ref)
{
    if (ref->buffer != RMQ_NONE) {
        rmq_buffer_drop(r, ref->buffer);
    } else if (ref->block != RMQ_NONE) {
        memset(r->block_used + ref->block, 0, ref->block_pages);
        r->blocks_free += ref->block_pages;
        r->small_free += small_pages(r, ref->block, ref->block_pages);
        r->blocks_came_free = 1;
        r->block_freed_ms = r->context.now_ms;
        if (ref->block < r->block_hint)
            r->block_hint = ref->block; /* low pages first: they are warm */
    }
    ref->buffer = ref->block = RMQ_NONE;
}

void rmq_frame_ref_retain(struct rmq_reader *r, struct rmq_frame_ref *from, struct rmq_frame_ref *to)
{
    *to = *from;
    if (from->buffer != RMQ_NONE)
        r->buffer_references[from->buffer]++;
    else
        from->block = RMQ_NONE;
}
