/* Sending: answers are encoded into chunks, log pages are referred to; one send in flight per connection takes all there is.
 * Old log pages are brought into memory first, by a helper thread of the kernel's: a send copies from them in this thread,
 * and with the socket locked. */
#include <malloc.h>
#include <stdlib.h>

#include "reader/reader_state.h"

#define CHUNKS_KEPT 1024u
#define OUTPUTS_KEPT 1024u
#define PIECES_FIRST 64u
#define VICTIMS_MAX 64u
#define FULL_PART 8                 /* of answer_bytes_max stays at RMQ_MEMORY_FULL */
#define TIGHT_BYTES (256u << 10)    /* limit of one connection's answers while all answers use half of their limit */
#define KEPT_BYTES (8u << 20)       /* so much less than at the worst: the rest goes back to the system */
#define KEPT_WINDOW_MS 400
#define READ_GAP_BYTES 65536 /* pieces that are not farther apart are read together: the disk would, too */

/* --- memory: of bytes in the mapped log only the pieces that refer to them count ---------------------------------- */

static void account(struct rmq_reader *r, struct rmq_output *out, int64_t bytes)
{
    uint64_t *all = out->is_closing ? &r->answers_closing : &r->answers_open;
    out->memory += (uint64_t)bytes;
    *all += (uint64_t)bytes;
}

void rmq_output_closing(struct rmq_reader *r, struct rmq_connection *c)
{
    struct rmq_output *out = c->output;
    if (!out || out->is_closing)
        return;
    out->is_closing = 1;
    r->answers_open -= out->memory;
    r->answers_closing += out->memory;
}

uint64_t rmq_output_memory(const struct rmq_reader *r)
{
    return r->answers_open + r->answers_closing + (uint64_t)r->chunk_free_count * (sizeof(struct rmq_chunk) + RMQ_CHUNK_BYTES) +
           (uint64_t)r->output_free_count * (sizeof(struct rmq_output) + PIECES_FIRST * sizeof(struct rmq_piece));
}

/* Freed answers leave holes in the heap: the allocator gives them back when it is asked. */
void rmq_outputs_tick(struct rmq_reader *r)
{
    if (r->context.now_ms < r->answers_window_ms)
        return;
    r->answers_window_ms = r->context.now_ms + KEPT_WINDOW_MS;
    uint64_t now = r->answers_open + r->answers_closing;
    if (r->answers_kept > r->answers_peak + KEPT_BYTES) {
        malloc_trim(0);
        r->answers_kept = r->answers_peak;
    }
    r->answers_kept = r->answers_peak > r->answers_kept ? r->answers_peak : r->answers_kept;
    r->answers_peak = now;
}

static struct rmq_chunk *chunk_take(struct rmq_reader *r, struct rmq_output *out, size_t bytes)
{
    struct rmq_chunk *chunk = r->chunk_free;
    if (bytes <= RMQ_CHUNK_BYTES && chunk) {
        r->chunk_free = chunk->next;
        r->chunk_free_count--;
    } else {
        uint32_t capacity = bytes <= RMQ_CHUNK_BYTES ? RMQ_CHUNK_BYTES : (uint32_t)bytes;
        chunk = malloc(sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        chunk->capacity = capacity;
    }
    chunk->references = 1;
    chunk->used = 0;
    account(r, out, (int64_t)(sizeof *chunk + chunk->capacity));
    return chunk;
}

static void chunk_drop(struct rmq_reader *r, struct rmq_output *out, struct rmq_chunk *chunk)
{
    if (--chunk->references)
        return;
    account(r, out, -(int64_t)(sizeof *chunk + chunk->capacity));
    if (chunk->capacity != RMQ_CHUNK_BYTES || r->chunk_free_count >= CHUNKS_KEPT) {
        free(chunk);
        return;
    }
    chunk->next = r->chunk_free;
    r->chunk_free = chunk;
    r->chunk_free_count++;
}

static struct rmq_output *output_of(struct rmq_reader *r, struct rmq_connection *c)
{
    struct rmq_output *out = c->output;
    if (out)
        return out;
    out = r->output_free;
    if (out) {
        r->output_free = out->next_free;
        r->output_free_count--;
    } else {
        out = calloc(1, sizeof *out);
        if (!out)
            return NULL;
        out->capacity = PIECES_FIRST;
        out->pieces = malloc(out->capacity * sizeof *out->pieces);
        if (!out->pieces) {
            free(out);
            return NULL;
        }
    }
    out->head = out->count = 0;
    out->bytes = out->memory = 0;
    out->reads = 0;
    out->is_closing = c->state != RMQ_CONNECTION_OPEN;
    account(r, out, (int64_t)(sizeof *out + out->capacity * sizeof *out->pieces));
    out->progress_ms = r->context.now_ms;
    r->outputs_used++;
    return c->output = out;
}

static void piece_release(struct rmq_reader *r, struct rmq_output *out, struct rmq_piece *piece)
{
    if (piece->chunk)
        chunk_drop(r, out, piece->chunk);
    else
        rmq_file_map_drop(piece->map);
}

static void output_release(struct rmq_reader *r, struct rmq_connection *c)
{
    struct rmq_output *out = c->output;
    for (uint32_t i = 0; i < out->count; i++)
        piece_release(r, out, &out->pieces[(out->head + i) & (out->capacity - 1)]);
    if (out->fill)
        chunk_drop(r, out, out->fill);
    out->fill = NULL;
    account(r, out, -(int64_t)out->memory);
    r->outputs_used--;
    c->output = NULL;
    if (r->output_free_count >= OUTPUTS_KEPT || out->capacity != PIECES_FIRST) {
        free(out->pieces);
        free(out);
        return;
    }
    out->next_free = r->output_free;
    r->output_free = out;
    r->output_free_count++;
}

static void mark_dirty(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->dirty)
        return;
    c->dirty = 1;
    r->dirty[r->dirty_count++] = rmq_connection_index(&r->connections, c);
}

static struct rmq_piece *last_piece(struct rmq_output *out)
{
    return out->count ? &out->pieces[(out->head + out->count - 1) & (out->capacity - 1)] : NULL;
}

static struct rmq_piece *piece_add(struct rmq_reader *r, struct rmq_output *out)
{
    if (out->count == out->capacity) {
        uint32_t capacity = out->capacity * 2;
        struct rmq_piece *pieces = malloc(capacity * sizeof *pieces);
        if (!pieces)
            return NULL;
        for (uint32_t i = 0; i < out->count; i++)
            pieces[i] = out->pieces[(out->head + i) & (out->capacity - 1)];
        free(out->pieces);
        account(r, out, (int64_t)((capacity - out->capacity) * sizeof *pieces));
        out->pieces = pieces;
        out->capacity = capacity;
        out->head = 0;
    }
    return &out->pieces[(out->head + out->count++) & (out->capacity - 1)];
}

uint8_t *rmq_output_reserve(struct rmq_reader *r, struct rmq_connection *c, size_t bytes)
{
    struct rmq_output *out = output_of(r, c);
    if (out && out->fill && out->fill->capacity - out->fill->used >= bytes)
        return out->fill->data + out->fill->used;
    struct rmq_chunk *chunk = out && bytes <= INT32_MAX ? chunk_take(r, out, bytes) : NULL;
    if (!chunk) {
        rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_MEMORY);
        return NULL;
    }
    if (out->fill)
        chunk_drop(r, out, out->fill);
    out->fill = chunk;
    return chunk->data;
}

void rmq_output_commit(struct rmq_reader *r, struct rmq_connection *c, size_t bytes)
{
    struct rmq_output *out = c->output;
    struct rmq_chunk *chunk = out->fill;
    const uint8_t *at = chunk->data + chunk->used;
    struct rmq_piece *last = last_piece(out);
    chunk->used += (uint32_t)bytes;
    out->bytes += bytes;
    if (last && last->chunk == chunk && last->at + last->length == at) {
        last->length += (uint32_t)bytes; /* a send in flight keeps its own vectors: only the rest grows */
    } else {
        struct rmq_piece *piece = piece_add(r, out);
        if (!piece) {
            rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_MEMORY);
            return;
        }
        *piece = (struct rmq_piece){.at = at, .length = (uint32_t)bytes, .chunk = chunk};
        chunk->references++;
    }
    mark_dirty(r, c);
}

void rmq_output_map(struct rmq_reader *r, struct rmq_connection *c, struct rmq_file_map *map, const uint8_t *at, uint32_t bytes,
                    int on_disk)
{
    struct rmq_output *out = c->output; /* the answer's header came first */
    struct rmq_piece *last = last_piece(out);
    out->bytes += bytes;
    if (last && last->map == map && last->at + last->length == at && last->length <= INT32_MAX - bytes &&
        !last->on_disk && !on_disk) {
        last->length += bytes;
        return;
    }
    struct rmq_piece *piece = piece_add(r, out);
    if (!piece) {
        rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_MEMORY);
        return;
    }
    *piece = (struct rmq_piece){.at = at, .length = bytes, .map = map, .on_disk = on_disk != 0};
    rmq_file_map_hold(map);
}

void rmq_output_bytes(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, size_t length)
{
    while (length && c->state == RMQ_CONNECTION_OPEN) {
        size_t part = length < RMQ_CHUNK_BYTES ? length : RMQ_CHUNK_BYTES;
        uint8_t *to = rmq_output_reserve(r, c, part);
        if (!to)
            return;
        memcpy(to, bytes, part);
        rmq_output_commit(r, c, part);
        bytes += part;
        length -= part;
    }
}

/* The bytes that the answers of all connections may take. An eighth of them while the broker is at ringmqMemoryMax. */
static uint64_t answers_most(const struct rmq_reader *r)
{
    uint64_t most = r->context.settings->answer_bytes_max;
    return rmq_load(&r->context.header->memory.level) == RMQ_MEMORY_FULL ? most / FULL_PART : most;
}

uint64_t rmq_output_soft_limit(const struct rmq_reader *r)
{
    uint64_t limit = r->context.settings->send_queue_bytes_max / 4;
    return r->answers_open > answers_most(r) / 2 && limit > TIGHT_BYTES ? TIGHT_BYTES : limit;
}

/* Closes at most VICTIMS_MAX connections, until all answers take seven eighths of their limit. Clients that have read
 * nothing for RMQ_FRAME_GRACE_MS go first, then the largest answers. */
static void close_largest(struct rmq_reader *r)
{
    struct {
        uint64_t rank;
        uint32_t connection;
    } victims[VICTIMS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->connections.used; i++) {
        const struct rmq_connection *c = rmq_connection_at(&r->connections, i);
        if (c->state != RMQ_CONNECTION_OPEN || !c->output)
            continue;
        uint64_t rank = rmq_answer_victim_rank(c->output->memory, (uint64_t)(r->context.now_ms - c->output->progress_ms));
        if (count == VICTIMS_MAX && rank <= victims[count - 1].rank)
            continue;
        uint32_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at && victims[at - 1].rank < rank; at--)
            victims[at] = victims[at - 1];
        victims[at].rank = rank;
        victims[at].connection = i;
    }
    uint64_t most = answers_most(r);
    for (uint32_t i = 0; i < count && r->answers_open > most - most / 8; i++)
        rmq_closings_evict(r, rmq_connection_at(&r->connections, victims[i].connection), RMQ_READ_CLOSED_ANSWERS);
}

static struct rmq_piece *piece_at(struct rmq_output *out, uint32_t i) { return &out->pieces[(out->head + i) & (out->capacity - 1)]; }

/* The cold pieces at the front, `count` at most, come into memory; nothing is sent meanwhile. */
static void read_next(struct rmq_reader *r, struct rmq_connection *c, uint32_t count, uint64_t tag)
{
    struct rmq_output *out = c->output;
    uint32_t i = 0;
    while (i < count && piece_at(out, i)->on_disk) {
        const struct rmq_piece *first = piece_at(out, i);
        const uint8_t *end = first->at + first->length;
        uint32_t next = i + 1;
        for (; next < count; next++) {
            const struct rmq_piece *piece = piece_at(out, next);
            if (!piece->on_disk || piece->map != first->map || piece->at < end || piece->at - end > READ_GAP_BYTES)
                break;
            end = piece->at + piece->length;
        }
        if (rmq_engine_read_mapped(r->context.engine, first->at, (uint32_t)(end - first->at), tag) < 0)
            break;
        out->reads++;
        i = next;
    }
    out->reading = i;
    c->sending = i != 0;
    if (!i)
        mark_dirty(r, c);
}

/* Hands `bytes` at most to the kernel. */
static void send_next(struct rmq_reader *r, struct rmq_connection *c, uint64_t bytes)
{
    struct rmq_output *out = c->output;
    uint32_t most = out->count < RMQ_SEND_PIECES ? out->count : RMQ_SEND_PIECES, count;
    uint64_t tag = (uint64_t)rmq_connection_index(&r->connections, c) << 32 | c->generation;
    for (count = 0; count < most && bytes; count++) {
        const struct rmq_piece *piece = piece_at(out, count);
        if (piece->on_disk)
            break;
        uint64_t part = piece->length < bytes ? piece->length : bytes;
        out->vectors[count] = (struct iovec){.iov_base = (void *)(uintptr_t)piece->at, .iov_len = part};
        bytes -= part;
    }
    if (!count) {
        read_next(r, c, most, tag);
        return;
    }
    out->message = (struct msghdr){.msg_iov = out->vectors, .msg_iovlen = count};
    if (rmq_engine_send(r->context.engine, c->fd, &out->message, tag) < 0) {
        mark_dirty(r, c);
        return;
    }
    c->sending = 1;
}

void rmq_output_flush(struct rmq_reader *r)
{
    uint32_t count = r->dirty_count;
    if (r->answers_open + r->answers_closing > r->answers_peak)
        r->answers_peak = r->answers_open + r->answers_closing;
    if (r->answers_open > answers_most(r))
        close_largest(r);
    uint64_t handed = 0;
    r->dirty_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, r->dirty[i]);
        c->dirty = 0;
        if (c->state != RMQ_CONNECTION_OPEN || !c->output || !c->output->count)
            continue;
        if (c->output->bytes > r->context.settings->send_queue_bytes_max) {
            rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_SLOW);
            continue;
        }
        if (c->sending)
            continue;
        uint64_t bytes = rmq_turn_send_bytes(c->output->bytes, handed);
        if (bytes)
            send_next(r, c, bytes);
        else
            mark_dirty(r, c); /* first in the next turn */
        handed += bytes;
    }
}

static void consume(struct rmq_reader *r, struct rmq_output *out, uint64_t sent)
{
    out->bytes -= sent;
    while (sent) {
        struct rmq_piece *piece = &out->pieces[out->head & (out->capacity - 1)];
        if (sent < piece->length) {
            piece->at += sent;
            piece->length -= (uint32_t)sent;
            return;
        }
        sent -= piece->length;
        piece_release(r, out, piece);
        out->head++;
        out->count--;
    }
}

void rmq_output_sent(struct rmq_reader *r, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(&r->connections, (uint32_t)(event->tag >> 32));
    if (c->generation != (uint32_t)event->tag)
        return;
    c->sending = 0;
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    if (event->result <= 0 && event->result != -EINTR && event->result != -EAGAIN) {
        rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_PEER);
        return;
    }
    struct rmq_output *out = c->output;
    if (event->result > 0) {
        r->context.counters[RMQ_READ_BYTES_OUT] += (uint64_t)event->result;
        out->progress_ms = c->active_ms = r->context.now_ms;
        consume(r, out, (uint64_t)event->result);
    }
    if (out->count)
        mark_dirty(r, c);
    else
        output_release(r, c);
}

/* Bytes that could not be read fail in the send, or are faulted in there. */
void rmq_output_read(struct rmq_reader *r, const struct rmq_event *event)
{
    struct rmq_connection *c = rmq_connection_at(&r->connections, (uint32_t)(event->tag >> 32));
    struct rmq_output *out = c->output; /* stays as long as `sending` is set */
    if (--out->reads)
        return;
    c->sending = 0;
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    for (uint32_t i = 0; i < out->reading; i++)
        piece_at(out, i)->on_disk = 0;
    out->progress_ms = r->context.now_ms;
    mark_dirty(r, c);
}

void rmq_output_forget(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->output)
        output_release(r, c);
}

void rmq_outputs_close(struct rmq_reader *r)
{
    while (r->output_free) {
        struct rmq_output *out = r->output_free;
        r->output_free = out->next_free;
        free(out->pieces);
        free(out);
    }
    while (r->chunk_free) {
        struct rmq_chunk *chunk = r->chunk_free;
        r->chunk_free = chunk->next;
        free(chunk);
    }
}
