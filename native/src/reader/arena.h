/* arena.h: the memory that a read worker shares with write: counted receive buffers, then blocks of pages for frames that
 * straddle buffers or must be kept, then the scratch of requests under way.
 *
 * What stays true:
 * - A buffer is lent to the kernel, or has references, or is on the stack. buffers_free counts the lent ones and the stack.
 * - A page is free or belongs to one frame_ref. blocks_free and small_free count the free ones.
 * - A frame_ref owns one reference to a buffer, or its block, or nothing. The owner releases it once.
 */
#ifndef RMQ_ARENA_H
#define RMQ_ARENA_H

#include "reader/read_context.h"

#define RMQ_BLOCK_BYTES 4096u /* a page of a block */

/* The owner of a frame's bytes: a provided buffer (counted) or a block (owned). */
struct rmq_frame_ref {
    uint32_t buffer;       /* RMQ_NONE: block */
    uint32_t block;        /* first page of the reassembly area, RMQ_NONE: neither */
    uint32_t block_pages;
};

/* A part of the reassembly area, [from, to) in pages. Low pages are taken first; those that have not been needed for a
 * while go back to the system. */
struct rmq_zone {
    uint32_t from, to;
    uint32_t touched;      /* end of the pages that may have memory */
    uint32_t peak;         /* highest end of the used pages since the window began */
    uint32_t last_peak;    /* in the one before */
};

struct rmq_arena {
    const struct rmq_read_context *context;
    uint8_t *bytes;
    uint32_t buffer_bytes, buffer_count;
    uint32_t buffers_free;   /* without a user, lent ones included */
    uint32_t buffers_lent, lend_target, lend_calm;
    uint32_t *buffer_references;
    uint32_t *buffer_stack;  /* free and not lent; the top is the last one used */
    uint8_t *block_used;     /* one byte per page of the reassembly area */
    uint64_t blocks_at;      /* offset of the blocks */
    uint64_t scratch_at;     /* offset of what is behind them */
    uint32_t block_pages, blocks_free, block_hint;
    uint32_t small_free;     /* of blocks_free, in the quarter that large frames do not get */
    uint8_t blocks_came_free; /* since rmq_blocks_came_free was asked */
    int64_t block_freed_ms;  /* a block came free last */
    struct rmq_zone block_zones[2]; /* for small frames alone; the rest */
    int64_t zones_next_ms, given_next_ms;
};

/* 0, -ENOMEM, or -EINVAL if a setting is impossible or the port's arena is too small for the settings. */
int rmq_arena_open(struct rmq_arena *a, const struct rmq_read_context *context);
void rmq_arena_close(struct rmq_arena *a);

static inline uint64_t rmq_arena_offset(const struct rmq_arena *a, const void *at)
{
    return (uint64_t)((const uint8_t *)at - a->bytes);
}

static inline uint8_t *rmq_buffer_at(const struct rmq_arena *a, uint32_t buffer)
{
    return a->bytes + (uint64_t)buffer * a->buffer_bytes;
}

static inline uint8_t *rmq_block_at(const struct rmq_arena *a, uint32_t block)
{
    return a->bytes + a->blocks_at + (uint64_t)block * RMQ_BLOCK_BYTES;
}

/* --- receive buffers ------------------------------------------------------------------------------------------ */

/* The kernel gives a lent buffer back, with bytes. */
static inline void rmq_buffer_received(struct rmq_arena *a, uint32_t buffer)
{
    RMQ_INVARIANT(buffer < a->buffer_count && a->buffers_lent && !a->buffer_references[buffer], buffer, a->buffer_count,
                  a->buffers_lent);
    a->buffers_free--;
    a->buffers_lent--;
    a->buffer_references[buffer] = 1;
}

static inline void rmq_buffer_retain(struct rmq_arena *a, uint32_t buffer) { a->buffer_references[buffer]++; }
void rmq_buffer_drop(struct rmq_arena *a, uint32_t buffer);
void rmq_buffers_lend(struct rmq_arena *a);  /* up to the target */
void rmq_buffers_short(struct rmq_arena *a); /* the kernel found none: lend more from now on */
void rmq_buffers_tick(struct rmq_arena *a);

/* Few receive buffers are left: a frame that would keep one for long moves to a block. */
static inline int rmq_buffers_few(const struct rmq_arena *a) { return a->buffers_free <= a->buffer_count / 4; }

/* The last buffers: no frame keeps one of these, or the reader could receive nothing. */
static inline int rmq_buffers_last(const struct rmq_arena *a) { return a->buffers_free <= a->buffer_count / 8; }

/* --- blocks --------------------------------------------------------------------------------------------------- */

uint8_t *rmq_block_take(struct rmq_arena *a, uint32_t bytes, struct rmq_frame_ref *ref); /* NULL: no room */
/* The block that holds `used` bytes gets room for `bytes`, where it lies or elsewhere. 0 = there is none, nothing changed. */
int rmq_block_grow(struct rmq_arena *a, struct rmq_frame_ref *ref, uint32_t used, uint32_t bytes);
int rmq_block_is_large(uint32_t bytes); /* it stays out of the quarter for small frames */
int rmq_block_fits(const struct rmq_arena *a, uint32_t bytes); /* a block of that size is free */
/* The length of the run of free pages that would arise if the block were free. Only pages that a frame of `bytes` may have
 * count, and no more than it needs. 0 = no help for the frame. `crumb`: too few to help a large frame alone. */
uint32_t rmq_block_run(const struct rmq_arena *a, const struct rmq_frame_ref *ref, uint32_t bytes, int *crumb);
uint32_t rmq_block_pages_max(const struct rmq_arena *a); /* of one frame */
/* 1 if a block came free since the last call. */
static inline int rmq_blocks_came_free(struct rmq_arena *a)
{
    int came_free = a->blocks_came_free;
    a->blocks_came_free = 0;
    return came_free;
}
void rmq_blocks_tick(struct rmq_arena *a);
int rmq_blocks_for_control(const struct rmq_arena *a); /* enough of them that control may be given another frame */
static inline int rmq_blocks_many(const struct rmq_arena *a) { return a->blocks_free > a->block_pages / 2; }

/* --- owners --------------------------------------------------------------------------------------------------- */

void rmq_frame_ref_release(struct rmq_arena *a, struct rmq_frame_ref *ref);
/* The frame at `frame` gets a keeper of its own: a counted buffer reference, or the block moves over to `to`. */
void rmq_frame_ref_retain(struct rmq_arena *a, struct rmq_frame_ref *from, struct rmq_frame_ref *to);
#endif
