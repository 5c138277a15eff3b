/* pop_pages.h: which pages of POP's memory have changed, and snapshots of them.
 *
 * A snapshot is the memory as it was at one moment. `begin` only notes the moment. Later turns take the pages that have changed
 * since the last snapshot, some a turn. The owner calls `touch` before it changes a page: a page of the snapshot that still waits
 * is copied out first.
 *
 * The marks lie behind the memory in the same mapping, so they outlive the process, too. A page is marked before it changes
 * [pop-page-marked]. It keeps UNSAVED from the begin of a snapshot [pop-page-begun] until that is on disk [pop-page-saved], also
 * when it is copied out [pop-page-kept] or the snapshot is given up [pop-page-given-up]. A replacement takes all marked pages into
 * its first snapshot [pop-page-reopened].
 *
 * The segment is sparse. A store into a page for which the machine has no memory ends the process by SIGBUS, and even a read
 * takes memory. So memory is reserved in chunks: `reserve` comes before the first store into a window or an entry that was never
 * used, and nothing reads a chunk that is not there. A start finds a chunk that was reserved and not used [pop-chunk-reserved].
 */
#ifndef RMQ_POP_PAGES_H
#define RMQ_POP_PAGES_H
#include <stdint.h>

#include "plane/plane.h" /* crash points of the test build */
#include "pop/pop_layout.h"

/* cdef-begin */
#define RMQ_POP_CHUNK_BYTES 262144
#define RMQ_POP_BLOCK_PAGES 64

#define RMQ_POP_PAGE_CHANGED 1 /* since the last snapshot was begun */
#define RMQ_POP_PAGE_WAITS 2   /* it belongs to the snapshot under way, and is not copied out yet */
#define RMQ_POP_PAGE_UNSAVED 4 /* it belongs to a snapshot that is not on disk */

struct rmq_pop_pages;
/* Pages as they were at the moment of a snapshot. */
struct rmq_pop_block {
    struct rmq_pop_block *next;
    uint32_t count;
    uint32_t numbers[RMQ_POP_BLOCK_PAGES];
    uint8_t data[RMQ_POP_BLOCK_PAGES * RMQ_POP_PAGE_BYTES];
};

/* `memory`: layout.mapped_bytes of memory. `segment`: its descriptor, or -1 for memory that is all there. It duplicates nothing:
 * the descriptor stays open until `close`. NULL with errno: no memory for it or for a chunk that is there in part. */
struct rmq_pop_pages *rmq_pop_pages_open(uint8_t *memory, struct rmq_pop_layout layout, int segment);
void rmq_pop_pages_close(struct rmq_pop_pages *pages);
/* 1: the object at `at` may be read. */
int rmq_pop_pages_has(const struct rmq_pop_pages *pages, const void *at);
/* rmq_pop_touch for Python. */
void rmq_pop_pages_touch(struct rmq_pop_pages *pages, const void *at);

/* Pages that the next snapshot would have. */
uint32_t rmq_pop_pages_changed(const struct rmq_pop_pages *pages);
/* 1 if it would have any. */
int rmq_pop_pages_is_changed(const struct rmq_pop_pages *pages);
/* Begins a snapshot, which ends by `saved` or `give_up`. Returns its number of pages. */
uint32_t rmq_pop_pages_begin(struct rmq_pop_pages *pages);
/* Copies out at most `room` pages that wait. Returns how many wait still. */
uint32_t rmq_pop_pages_take(struct rmq_pop_pages *pages, uint32_t room);
/* The oldest full block, and the last one when no page waits. The caller frees it, in any thread. NULL: there is none now. */
struct rmq_pop_block *rmq_pop_pages_block(struct rmq_pop_pages *pages);
void rmq_pop_block_free(struct rmq_pop_block *block);
/* Pages in blocks that no one has taken. */
uint32_t rmq_pop_pages_kept(const struct rmq_pop_pages *pages);
/* 1: there was no memory for a page's copy, so this snapshot has to be given up. */
int rmq_pop_pages_is_broken(const struct rmq_pop_pages *pages);
/* The snapshot is on disk. */
void rmq_pop_pages_saved(struct rmq_pop_pages *pages);
/* There is no snapshot under way any more: the next one has its pages, too. */
void rmq_pop_pages_give_up(struct rmq_pop_pages *pages);
/* Takes room on the disk for `count` pages of the image, so that no later write of them finds it full. 0 or -errno. */
int rmq_pop_pages_room(int image, const uint32_t *numbers, uint32_t count);
/* Copies `count` pages, which lie behind each other in a file from `at` on, to their places in the image. 0 or -errno. */
int rmq_pop_pages_apply(int image, int journal, uint64_t at, const uint32_t *numbers, uint32_t count);
/* cdef-end */

struct rmq_pop_pages {
    uint8_t *memory;
    uint8_t *marks;          /* a byte for each page: RMQ_POP_PAGE_* */
    uint8_t *chunks;         /* a byte for each chunk: 1 = it is there */
    uint64_t page_count, chunk_count;
    int segment;
    /* the snapshot under way */
    int broken;
    uint64_t cursor;         /* no page before it waits, unless it was marked later: none is */
    uint32_t waiting, kept;
    struct rmq_pop_block *first, *last;
};

void rmq_pop_pages_keep(struct rmq_pop_pages *pages, uint64_t page);
int rmq_pop_pages_grow(struct rmq_pop_pages *pages, uint64_t chunk);

/* Call it before a change of the object at `at`, which lies in one page. */
static inline void rmq_pop_touch(struct rmq_pop_pages *pages, const void *at)
{
    uint64_t page = (uint64_t)((const uint8_t *)at - pages->memory) / RMQ_POP_PAGE_BYTES;
    if (pages->marks[page] & RMQ_POP_PAGE_WAITS)
        rmq_pop_pages_keep(pages, page);
    pages->marks[page] |= RMQ_POP_PAGE_CHANGED;
    RMQ_CRASH("pop-page-marked");
}

/* 1: the object at `at` may be read, because its chunk is there. A chunk that is not there holds zeros. */
static inline int rmq_pop_is_there(const struct rmq_pop_pages *pages, const void *at)
{
    return pages->chunks[(uint64_t)((const uint8_t *)at - pages->memory) / RMQ_POP_CHUNK_BYTES];
}

/* Call it before the first store into a window or entry that is not in use. 0, or -ENOSPC: the machine has no memory for it. */
static inline int rmq_pop_reserve(struct rmq_pop_pages *pages, const void *at)
{
    uint64_t chunk = (uint64_t)((const uint8_t *)at - pages->memory) / RMQ_POP_CHUNK_BYTES;
    return pages->chunks[chunk] ? 0 : rmq_pop_pages_grow(pages, chunk);
}
#endif
