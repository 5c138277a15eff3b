#include "reader/spans.h"

#include <stdlib.h>
#include <string.h>

static struct rmq_span *span_add(struct rmq_spans *spans)
{
    if (spans->head + spans->count == spans->capacity) {
        if (spans->head) {
            memmove(spans->list, spans->list + spans->head, spans->count * sizeof *spans->list);
            spans->head = 0;
        } else {
            uint32_t capacity = spans->capacity ? spans->capacity * 2 : 8;
            struct rmq_span *list = realloc(spans->list, capacity * sizeof *list);
            if (!list)
                return NULL;
            spans->list = list;
            spans->capacity = capacity;
        }
    }
    return &spans->list[spans->head + spans->count++];
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

int rmq_span_push(struct rmq_arena *a, struct rmq_spans *spans, uint32_t buffer, uint32_t at, uint32_t end)
{
    struct rmq_span *span = span_add(spans);
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
    spans->buffers_held++;
    return 0;
}

void rmq_span_pop(struct rmq_arena *a, struct rmq_spans *spans)
{
    struct rmq_span *first = &spans->list[spans->head];
    spans->buffers_held -= first->ref.buffer != RMQ_NONE;
    rmq_frame_ref_release(a, &first->ref);
    free(first->copy);
    spans->head++;
    spans->count--;
    if (!spans->count)
        spans->head = 0;
}

void rmq_spans_forget(struct rmq_arena *a, struct rmq_spans *spans)
{
    while (spans->count)
        rmq_span_pop(a, spans);
    free(spans->list);
    spans->list = NULL;
    spans->head = spans->capacity = 0;
}
