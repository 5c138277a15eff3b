#include "pop/pop_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rmq_pop_layout rmq_pop_layout_of(uint32_t windows_max, uint32_t entries_max)
{
    struct rmq_pop_layout l = {.windows_at = RMQ_POP_PAGE_BYTES, .windows_max = windows_max, .entries_max = entries_max};
    uint64_t page = RMQ_POP_PAGE_BYTES - 1;
    l.orders_max = (windows_max < RMQ_POP_ORDERS_MAX ? windows_max : RMQ_POP_ORDERS_MAX) + 1; /* a new batch beside the old one */
    l.orders_at = (l.windows_at + (uint64_t)windows_max * sizeof(struct rmq_pop_window) + page) & ~page;
    l.entries_at = (l.orders_at + (uint64_t)l.orders_max * sizeof(struct rmq_pop_order) + page) & ~page;
    l.bytes = (l.entries_at + (uint64_t)entries_max * sizeof(struct rmq_pop_entry) + page) & ~page;
    l.mapped_bytes = (l.bytes + l.bytes / RMQ_POP_PAGE_BYTES + page) & ~page;
    return l;
}

/* --- memory ---------------------------------------------------------------------------------------------- */

int rmq_pop_pages_grow(struct rmq_pop_pages *p, uint64_t chunk)
{
    uint64_t at = chunk * RMQ_POP_CHUNK_BYTES, end = p->page_count * RMQ_POP_PAGE_BYTES;
    uint64_t bytes = end - at < RMQ_POP_CHUNK_BYTES ? end - at : RMQ_POP_CHUNK_BYTES;
    while (fallocate(p->segment, 0, (off_t)at, (off_t)bytes) < 0)
        if (errno != EINTR)
            return -errno;
    RMQ_CRASH("pop-chunk-reserved");
    p->chunks[chunk] = 1;
    return 0;
}

/* A chunk that is there in part gets the rest. Pages without memory are holes of the file. */
static int find_chunks(struct rmq_pop_pages *p)
{
    off_t end = (off_t)(p->page_count * RMQ_POP_PAGE_BYTES), at = 0;
    while (at < end) {
        at = lseek(p->segment, at, SEEK_DATA);
        if (at < 0)
            return errno == ENXIO ? 0 : -errno;
        if (at >= end)
            return 0;
        off_t hole = lseek(p->segment, at, SEEK_HOLE);
        if (hole < 0)
            return -errno;
        for (; at < hole && at < end; at = (at / RMQ_POP_CHUNK_BYTES + 1) * RMQ_POP_CHUNK_BYTES) {
            int rc = rmq_pop_pages_grow(p, (uint64_t)at / RMQ_POP_CHUNK_BYTES);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

struct rmq_pop_pages *rmq_pop_pages_open(uint8_t *memory, struct rmq_pop_layout layout, int segment)
{
    struct rmq_pop_pages *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->memory = memory;
    p->marks = memory + layout.bytes;
    p->segment = segment;
    p->page_count = layout.bytes / RMQ_POP_PAGE_BYTES;
    p->chunk_count = (layout.bytes + RMQ_POP_CHUNK_BYTES - 1) / RMQ_POP_CHUNK_BYTES;
    p->chunks = calloc(p->chunk_count, 1);
    int rc = p->chunks ? 0 : -ENOMEM;
    if (!rc && segment < 0)
        memset(p->chunks, 1, p->chunk_count);
    else if (!rc && !(rc = find_chunks(p)))
        rc = p->chunks[0] ? 0 : rmq_pop_pages_grow(p, 0);
    if (rc < 0) {
        rmq_pop_pages_close(p);
        errno = -rc;
        return NULL;
    }
    for (uint64_t page = 0; page < p->page_count; page++) /* a predecessor may have died in a snapshot */
        if (p->marks[page]) {
            p->marks[page] = RMQ_POP_PAGE_CHANGED | RMQ_POP_PAGE_UNSAVED;
            RMQ_CRASH("pop-page-reopened");
        }
    return p;
}

void rmq_pop_pages_close(struct rmq_pop_pages *p)
{
    if (!p)
        return;
    for (struct rmq_pop_block *block = p->first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(p->chunks);
    free(p);
}

int rmq_pop_pages_has(const struct rmq_pop_pages *p, const void *at) { return rmq_pop_is_there(p, at); }

void rmq_pop_pages_touch(struct rmq_pop_pages *p, const void *at) { rmq_pop_touch(p, at); }

/* --- snapshots ------------------------------------------------------------------------------------------- */

/* The first page from `page` on with one of the marks. Few of many pages change, so eight marks without any are passed at once. */
static uint64_t next_marked(const struct rmq_pop_pages *p, uint64_t page, uint8_t wanted)
{
    uint64_t mask = 0x0101010101010101u * wanted, eight;
    for (; page < p->page_count; page++) {
        while (page + 8 <= p->page_count && (memcpy(&eight, p->marks + page, 8), !(eight & mask)))
            page += 8;
        if (page < p->page_count && p->marks[page] & wanted)
            break;
    }
    return page < p->page_count ? page : p->page_count;
}

uint32_t rmq_pop_pages_changed(const struct rmq_pop_pages *p)
{
    const uint8_t wanted = RMQ_POP_PAGE_CHANGED | RMQ_POP_PAGE_UNSAVED;
    uint32_t count = 0;
    for (uint64_t page = next_marked(p, 0, wanted); page < p->page_count; page = next_marked(p, page + 1, wanted))
        count++;
    return count;
}

int rmq_pop_pages_is_changed(const struct rmq_pop_pages *p)
{
    return next_marked(p, 0, RMQ_POP_PAGE_CHANGED | RMQ_POP_PAGE_UNSAVED) < p->page_count;
}

uint32_t rmq_pop_pages_begin(struct rmq_pop_pages *p)
{
    const uint8_t wanted = RMQ_POP_PAGE_CHANGED | RMQ_POP_PAGE_UNSAVED;
    p->cursor = p->waiting = p->kept = 0;
    p->broken = 0;
    for (uint64_t page = next_marked(p, 0, wanted); page < p->page_count; page = next_marked(p, page + 1, wanted)) {
        p->marks[page] = RMQ_POP_PAGE_WAITS | RMQ_POP_PAGE_UNSAVED;
        RMQ_CRASH("pop-page-begun");
        p->waiting++;
    }
    return p->waiting;
}

static struct rmq_pop_block *block_with_room(struct rmq_pop_pages *p)
{
    if (p->last && p->last->count < RMQ_POP_BLOCK_PAGES)
        return p->last;
    struct rmq_pop_block *block = malloc(sizeof *block);
    if (!block)
        return NULL;
    block->next = NULL;
    block->count = 0;
    if (p->last)
        p->last->next = block;
    else
        p->first = block;
    p->last = block;
    return block;
}

void rmq_pop_pages_keep(struct rmq_pop_pages *p, uint64_t page)
{
    struct rmq_pop_block *block = p->broken ? NULL : block_with_room(p);
    p->marks[page] &= (uint8_t)~RMQ_POP_PAGE_WAITS;
    RMQ_CRASH("pop-page-kept");
    p->waiting--;
    if (!block) {
        p->broken = 1;
        return;
    }
    memcpy(block->data + (uint64_t)block->count * RMQ_POP_PAGE_BYTES, p->memory + page * RMQ_POP_PAGE_BYTES, RMQ_POP_PAGE_BYTES);
    block->numbers[block->count++] = (uint32_t)page;
    p->kept++;
}

uint32_t rmq_pop_pages_take(struct rmq_pop_pages *p, uint32_t room)
{
    for (; room && p->waiting && !p->broken; room--) {
        p->cursor = next_marked(p, p->cursor, RMQ_POP_PAGE_WAITS);
        rmq_pop_pages_keep(p, p->cursor);
    }
    return p->waiting;
}

struct rmq_pop_block *rmq_pop_pages_block(struct rmq_pop_pages *p)
{
    struct rmq_pop_block *block = p->first;
    if (p->broken || !block || (block->count < RMQ_POP_BLOCK_PAGES && p->waiting))
        return NULL;
    p->first = block->next;
    if (!p->first)
        p->last = NULL;
    p->kept -= block->count;
    block->next = NULL;
    return block;
}

void rmq_pop_block_free(struct rmq_pop_block *block) { free(block); }

uint32_t rmq_pop_pages_kept(const struct rmq_pop_pages *p) { return p->kept; }

int rmq_pop_pages_is_broken(const struct rmq_pop_pages *p) { return p->broken; }

void rmq_pop_pages_saved(struct rmq_pop_pages *p)
{
    for (uint64_t page = next_marked(p, 0, RMQ_POP_PAGE_UNSAVED); page < p->page_count;
         page = next_marked(p, page + 1, RMQ_POP_PAGE_UNSAVED)) {
        p->marks[page] &= (uint8_t)~RMQ_POP_PAGE_UNSAVED;
        RMQ_CRASH("pop-page-saved");
    }
}

void rmq_pop_pages_give_up(struct rmq_pop_pages *p)
{
    for (uint64_t page = next_marked(p, 0, RMQ_POP_PAGE_WAITS); page < p->page_count;
         page = next_marked(p, page + 1, RMQ_POP_PAGE_WAITS)) {
        p->marks[page] &= (uint8_t)~RMQ_POP_PAGE_WAITS;
        RMQ_CRASH("pop-page-given-up");
    }
    while (p->first) {
        struct rmq_pop_block *block = p->first;
        p->first = block->next;
        free(block);
    }
    p->last = NULL;
    p->waiting = p->kept = 0;
    p->broken = 0;
}

/* --- files ----------------------------------------------------------------------------------------------- */

static int copy_bytes(int image, uint64_t image_at, int journal, uint64_t journal_at, uint64_t bytes, uint8_t *room)
{
    while (bytes) {
        ssize_t n = pread(journal, room, bytes < RMQ_POP_CHUNK_BYTES ? bytes : RMQ_POP_CHUNK_BYTES, (off_t)journal_at);
        if (n == 0)
            return -EIO; /* the caller has seen the file's end behind these pages */
        for (ssize_t written = 0; n > 0 && written < n;) {
            ssize_t w = pwrite(image, room + written, (size_t)(n - written), (off_t)image_at + written);
            if (w < 0 && errno != EINTR)
                return -errno;
            written += w > 0 ? w : 0;
        }
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            image_at += (uint64_t)n, journal_at += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return 0;
}

/* Pages from `numbers` on that lie behind each other in the image, too. */
static uint32_t run_of(const uint32_t *numbers, uint32_t count)
{
    uint32_t run = 1;
    while (run < count && numbers[run] == numbers[0] + run)
        run++;
    return run;
}

/* fallocate dirties the inode even where nothing is missing, and the next fdatasync would wait for the file system's journal. So
 * only ranges with a hole take room. */
int rmq_pop_pages_room(int image, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0, run; i < count; i += run) {
        run = run_of(numbers + i, count - i);
        off_t at = (off_t)numbers[i] * RMQ_POP_PAGE_BYTES, bytes = (off_t)run * RMQ_POP_PAGE_BYTES;
        if (lseek(image, at, SEEK_HOLE) >= at + bytes)
            continue;
        while (fallocate(image, 0, at, bytes) < 0) {
            if (errno == EOPNOTSUPP)
                return 0; /* a write tells it */
            if (errno != EINTR)
                return -errno;
        }
    }
    return 0;
}

int rmq_pop_pages_apply(int image, int journal, uint64_t at, const uint32_t *numbers, uint32_t count)
{
    uint8_t *room = malloc(RMQ_POP_CHUNK_BYTES);
    int rc = room ? 0 : -ENOMEM;
    for (uint32_t i = 0, run; !rc && i < count; i += run, at += (uint64_t)run * RMQ_POP_PAGE_BYTES) {
        run = run_of(numbers + i, count - i);
        rc = copy_bytes(image, (uint64_t)numbers[i] * RMQ_POP_PAGE_BYTES, journal, at, (uint64_t)run * RMQ_POP_PAGE_BYTES, room);
    }
    free(room);
    return rc;
}
