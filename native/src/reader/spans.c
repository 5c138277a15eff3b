#include "reader/spans.h"

#include <stdlib.h>
#include <string.h>

static struct rmq_span *span_add(struct rmq_connection *c)
{
    if (c->span_head + c->span_count == c->span_capacity) {
        if (c->span_head) {
            memmove(c->spans, c->spans + c->span_head, c->span_count * sizeof *c->spans);
            c->span_head = 0;
        } else {
            uint32_t capacity = c->span_capacity ? c->span_capacity * 2 : 8;
            struct rmq_span *spans = realloc(c->spans, capacity * sizeof *spans);
            if (!spans)
                return NULL;
            c->spans = spans;
            c->span_capacity = capacity;
        }
    }
    return &c->spans[c->span_head + c->span_count++];
}

/* The block for bytes of a stalled connection, NULL when they stay in their receive buffer. Few bytes move because they
 * would keep a whole buffer. Many bytes move only when buffers run short and half of the blocks is free. Connections
 * need blocks to go on, so waiting bytes must never take them all. */
static uint8_t *span_block(struct rmq_arena *a, uint32_t bytes, struct rmq_frame_ref *ref)
{
    int is_little = bytes <= a->buffer_bytes / 4;
    int may = rmq_blocks_many(a) ? is_little || rmq_buffers_few(a) : is_little && rmq_blocks_for_control(a);
    return may ? rmq_block_take(a, bytes, ref) : NULL;
}

int rmq_span_push(struct rmq_arena *a, struct rmq_connection *c, uint32_t buffer, uint32_t at, uint32_t end)
{
    struct rmq_span *span = span_add(c);
    if (!span)
        return -ENOMEM;
    const uint8_t *bytes = rmq_buffer_at(a, buffer) + at;
    *span = (struct rmq_span){.ref = {RMQ_NONE, RMQ_NONE, 0}, .length = end - at};
    span->copy = end - at <= RMQ_FEW_BYTES ? malloc(end - at) : NULL;
    uint8_t *to = span->copy ? span->copy : span_block(a, end - at, &span->ref);
    if (to) {
        memcpy(to, bytes, end - at);
        return 0;
    }
    span->ref = (struct rmq_frame_ref){.buffer = buffer, .block = RMQ_NONE};
    span->at = at;
    rmq_buffer_retain(a, buffer);
    c->buffers_held++;
    return 0;
}

void rmq_span_pop(struct rmq_arena *a, struct rmq_connection *c)
{
    struct rmq_span *first = &c->spans[c->span_head];
    c->buffers_held -= first->ref.buffer != RMQ_NONE;
    rmq_frame_ref_release(a, &first->ref);
    free(first->copy);
    c->span_head++;
    c->span_count--;
    if (!c->span_count)
        c->span_head = 0;
}

void rmq_spans_forget(struct rmq_arena *a, struct rmq_connection *c)
{
    while (c->span_count)
        rmq_span_pop(a, c);
    free(c->early);
    c->early = NULL;
    free(c->spans);
    c->spans = NULL;
    c->span_head = c->span_capacity = 0;
    rmq_frame_ref_release(a, &c->block);
    c->frame_bytes = c->filled = c->head_length = 0;
    c->stall = 0;
}
