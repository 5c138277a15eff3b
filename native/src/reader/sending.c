/* Sending: one send in flight per connection takes all there is. Old log pages are brought into memory first, by a helper
 * thread of the kernel's: a send copies from them in this thread, and with the socket locked. */
#include "reader/output.h"
#include "reader/turn_rules.h"

#define READ_GAP_BYTES 65536 /* pieces that are not farther apart are read together: the disk would, too */

/* The cold pieces at the front, `count` at most, come into memory; nothing is sent meanwhile. */
static void read_next(struct rmq_outputs *o, struct rmq_connection *c, uint32_t count, uint64_t tag)
{
    struct rmq_output *out = c->output.queue;
    uint32_t i = 0;
    while (i < count && rmq_output_piece(out, i)->on_disk) {
        const struct rmq_piece *first = rmq_output_piece(out, i);
        const uint8_t *end = first->at + first->length;
        uint32_t next = i + 1;
        for (; next < count; next++) {
            const struct rmq_piece *piece = rmq_output_piece(out, next);
            if (!piece->on_disk || piece->map != first->map || piece->at < end || piece->at - end > READ_GAP_BYTES)
                break;
            end = piece->at + piece->length;
        }
        if (rmq_engine_read_mapped(o->context->engine, first->at, (uint32_t)(end - first->at), tag) < 0)
            break;
        out->reads++;
        i = next;
    }
    out->reading = i;
    c->output.sending = i != 0;
    if (!i)
        rmq_output_mark(o, c);
}

/* Hands `bytes` at most to the kernel. */
static void send_next(struct rmq_outputs *o, struct rmq_connection *c, uint64_t bytes)
{
    struct rmq_output *out = c->output.queue;
    uint32_t most = out->count < RMQ_SEND_PIECES ? out->count : RMQ_SEND_PIECES, count;
    uint64_t tag = rmq_connection_tag(o->connections, c);
    for (count = 0; count < most && bytes; count++) {
        const struct rmq_piece *piece = rmq_output_piece(out, count);
        if (piece->on_disk)
            break;
        uint64_t part = piece->length < bytes ? piece->length : bytes;
        out->vectors[count] = (struct iovec){.iov_base = (void *)(uintptr_t)piece->at, .iov_len = part};
        bytes -= part;
    }
    if (!count) {
        read_next(o, c, most, tag);
        return;
    }
    out->message = (struct msghdr){.msg_iov = out->vectors, .msg_iovlen = count};
    if (rmq_engine_send(o->context->engine, c->fd, &out->message, tag) < 0) {
        rmq_output_mark(o, c);
        return;
    }
    c->output.sending = 1;
}

void rmq_output_flush(struct rmq_outputs *o)
{
    uint32_t count = o->dirty_count;
    if (o->open + o->closing > o->peak)
        o->peak = o->open + o->closing;
    uint64_t handed = 0;
    o->dirty_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_connection *c = rmq_connection_at(o->connections, o->dirty[i]);
        c->output.dirty = 0;
        if (c->state != RMQ_CONNECTION_OPEN || !c->output.queue || !c->output.queue->count)
            continue;
        if (c->output.queue->bytes > o->context->settings->send_queue_bytes_max) {
            rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_SLOW);
            continue;
        }
        if (c->output.sending)
            continue;
        uint64_t bytes = rmq_turn_send_bytes(c->output.queue->bytes, handed);
        if (bytes)
            send_next(o, c, bytes);
        else
            rmq_output_mark(o, c); /* first in the next turn */
        handed += bytes;
    }
}

void rmq_output_sent(struct rmq_outputs *o, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(o->connections, (uint32_t)(event->tag >> 32));
    if (c->generation != (uint32_t)event->tag)
        return;
    c->output.sending = 0;
    if (c->state != RMQ_CONNECTION_OPEN) {
        if (event->result > 0 && c->output.queue)
            rmq_output_left(o, c->output.queue, (uint64_t)event->result);
        return;
    }
    if (event->result <= 0 && event->result != -EINTR && event->result != -EAGAIN) {
        rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_PEER);
        return;
    }
    struct rmq_output *out = c->output.queue;
    if (event->result > 0) {
        o->context->counters[RMQ_READ_BYTES_OUT] += (uint64_t)event->result;
        out->progress_ms = o->context->now_ms;
        rmq_connection_note_active(c, o->context->now_ms);
        rmq_output_consume(o, out, (uint64_t)event->result);
    }
    if (out->count)
        rmq_output_mark(o, c);
    else
        rmq_output_forget(o, c);
}

/* Bytes that could not be read fail in the send, or are faulted in there. */
void rmq_output_read(struct rmq_outputs *o, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(o->connections, (uint32_t)(event->tag >> 32));
    struct rmq_output *out = c->output.queue; /* stays as long as `sending` is set */
    if (--out->reads)
        return;
    c->output.sending = 0;
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    for (uint32_t i = 0; i < out->reading; i++)
        rmq_output_piece(out, i)->on_disk = 0;
    out->progress_ms = o->context->now_ms;
    rmq_output_mark(o, c);
}
