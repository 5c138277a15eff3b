/* spans.h: received bytes of a stalled connection, in the order of their arrival. Each span keeps a receive buffer, a block
 * of the arena, or a copy of its own.
 *
 * What stays true: `buffers_held` counts the spans that keep a receive buffer. No span is empty but the first, at which its
 * connection is at work.
 */
#ifndef RMQ_SPANS_H
#define RMQ_SPANS_H

#include "reader/arena.h"

#define RMQ_FEW_BYTES 256u /* of a frame or of a stalled connection: private memory holds them */

struct rmq_span {
    struct rmq_frame_ref ref;
    uint8_t *copy;         /* a few bytes: they hold nothing */
    uint32_t at, length;   /* in the held buffer or block, or in the copy */
};

struct rmq_spans {
    struct rmq_span *list;
    uint32_t head, count, capacity;
    uint32_t buffers_held;
};

/* NULL: none waits. */
static inline struct rmq_span *rmq_span_first(const struct rmq_spans *spans)
{
    return spans->count ? &spans->list[spans->head] : NULL;
}

static inline void rmq_spans_begin(struct rmq_spans *spans) { spans->head = spans->count = spans->buffers_held = 0; }

/* Receive buffers that it keeps. */
static inline uint32_t rmq_spans_buffers(const struct rmq_spans *spans) { return spans->buffers_held; }

/* Bytes [at, end) of the buffer wait. 0 or -ENOMEM. */
int rmq_span_push(struct rmq_arena *a, struct rmq_spans *spans, uint32_t buffer, uint32_t at, uint32_t end);
void rmq_span_pop(struct rmq_arena *a, struct rmq_spans *spans);
void rmq_spans_forget(struct rmq_arena *a, struct rmq_spans *spans); /* all of them */
#endif
