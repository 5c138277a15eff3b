#include "reader/output.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "log/file_map.h"

#define CHUNKS_KEPT 1024u
#define OUTPUTS_KEPT 1024u
#define PIECES_FIRST 64u
#define FULL_PART 8                 /* of answer_bytes_max stays at RMQ_MEMORY_FULL */
#define TIGHT_BYTES (256u << 10)    /* limit of one connection's answers while all answers use half of their limit */
#define KEPT_BYTES (8u << 20)       /* so much less than at the worst: the rest goes back to the system */
#define KEPT_WINDOW_MS 400

/* --- memory: of bytes in the mapped log only the pieces that refer to them count ---------------------------------- */

static void account(struct rmq_outputs *o, struct rmq_output *out, int64_t bytes)
{
    uint64_t *all = out->is_closing ? &o->closing : &o->open;
    out->memory += (uint64_t)bytes;
    *all += (uint64_t)bytes;
}

void rmq_output_closing(struct rmq_outputs *o, struct rmq_connection *c)
{
    struct rmq_output *out = c->output.queue;
    if (!out || out->is_closing)
        return;
    out->is_closing = 1;
    o->open -= out->memory;
    o->closing += out->memory;
}

uint64_t rmq_output_memory(const struct rmq_outputs *o)
{
    return o->open + o->closing + (uint64_t)o->chunk_free_count * (sizeof(struct rmq_chunk) + RMQ_CHUNK_BYTES) +
           (uint64_t)o->output_free_count * (sizeof(struct rmq_output) + PIECES_FIRST * sizeof(struct rmq_piece));
}

/* Freed answers leave holes in the heap: the allocator gives them back when it is asked. */
void rmq_outputs_tick(struct rmq_outputs *o)
{
    if (o->context->now_ms < o->window_ms)
        return;
    o->window_ms = o->context->now_ms + KEPT_WINDOW_MS;
    uint64_t now = o->open + o->closing;
    if (o->kept > o->peak + KEPT_BYTES) {
        malloc_trim(0);
        o->kept = o->peak;
    }
    o->kept = o->peak > o->kept ? o->peak : o->kept;
    o->peak = now;
}

static struct rmq_chunk *chunk_take(struct rmq_outputs *o, struct rmq_output *out, size_t bytes)
{
    struct rmq_chunk *chunk = o->chunk_free;
    if (bytes <= RMQ_CHUNK_BYTES && chunk) {
        o->chunk_free = chunk->next;
        o->chunk_free_count--;
    } else {
        uint32_t capacity = bytes <= RMQ_CHUNK_BYTES ? RMQ_CHUNK_BYTES : (uint32_t)bytes;
        chunk = malloc(sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        chunk->capacity = capacity;
    }
    chunk->references = 1;
    chunk->used = 0;
    account(o, out, (int64_t)(sizeof *chunk + chunk->capacity));
    return chunk;
}

static void chunk_drop(struct rmq_outputs *o, struct rmq_output *out, struct rmq_chunk *chunk)
{
    if (--chunk->references)
        return;
    account(o, out, -(int64_t)(sizeof *chunk + chunk->capacity));
    if (chunk->capacity != RMQ_CHUNK_BYTES || o->chunk_free_count >= CHUNKS_KEPT) {
        free(chunk);
        return;
    }
    chunk->next = o->chunk_free;
    o->chunk_free = chunk;
    o->chunk_free_count++;
}

static struct rmq_output *output_of(struct rmq_outputs *o, struct rmq_connection *c)
{
    struct rmq_output *out = c->output.queue;
    if (out)
        return out;
    out = o->output_free;
    if (out) {
        o->output_free = out->next_free;
        o->output_free_count--;
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
    out->bytes = out->memory = out->taken = 0;
    out->reads = 0;
    out->is_closing = c->state != RMQ_CONNECTION_OPEN;
    account(o, out, (int64_t)(sizeof *out + out->capacity * sizeof *out->pieces));
    out->progress_ms = o->context->now_ms;
    o->used++;
    return c->output.queue = out;
}

static void piece_release(struct rmq_outputs *o, struct rmq_output *out, struct rmq_piece *piece)
{
    if (piece->chunk)
        chunk_drop(o, out, piece->chunk);
    else
        rmq_file_map_drop(piece->map);
}

static void told_pop(struct rmq_outputs *o, struct rmq_output *out)
{
    struct rmq_told *first = out->told;
    out->told = first->next;
    account(o, out, -(int64_t)sizeof *first);
    free(first);
}

static void output_release(struct rmq_outputs *o, struct rmq_connection *c)
{
    struct rmq_output *out = c->output.queue;
    for (uint32_t i = 0; i < out->count; i++)
        piece_release(o, out, rmq_output_piece(out, i));
    if (out->fill)
        chunk_drop(o, out, out->fill);
    out->fill = NULL;
    for (; out->told; told_pop(o, out))
        rmq_unsent_tell(o->unsents, &out->told->note, RMQ_UNSENT_GONE);
    account(o, out, -(int64_t)out->memory);
    o->used--;
    c->output.queue = NULL;
    if (o->output_free_count >= OUTPUTS_KEPT || out->capacity != PIECES_FIRST) {
        free(out->pieces);
        free(out);
        return;
    }
    out->next_free = o->output_free;
    o->output_free = out;
    o->output_free_count++;
}

static struct rmq_piece *last_piece(struct rmq_output *out)
{
    return out->count ? &out->pieces[(out->head + out->count - 1) & (out->capacity - 1)] : NULL;
}

static struct rmq_piece *piece_add(struct rmq_outputs *o, struct rmq_output *out)
{
    if (out->count == out->capacity) {
        uint32_t capacity = out->capacity * 2;
        struct rmq_piece *pieces = malloc(capacity * sizeof *pieces);
        if (!pieces)
            return NULL;
        for (uint32_t i = 0; i < out->count; i++)
            pieces[i] = out->pieces[(out->head + i) & (out->capacity - 1)];
        free(out->pieces);
        account(o, out, (int64_t)((capacity - out->capacity) * sizeof *pieces));
        out->pieces = pieces;
        out->capacity = capacity;
        out->head = 0;
    }
    return &out->pieces[(out->head + out->count++) & (out->capacity - 1)];
}

uint8_t *rmq_output_reserve(struct rmq_outputs *o, struct rmq_connection *c, size_t bytes)
{
    struct rmq_output *out = output_of(o, c);
    if (out && out->fill && out->fill->capacity - out->fill->used >= bytes)
        return out->fill->data + out->fill->used;
    struct rmq_chunk *chunk = out && bytes <= INT32_MAX ? chunk_take(o, out, bytes) : NULL;
    if (!chunk) {
        rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_MEMORY);
        return NULL;
    }
    if (out->fill)
        chunk_drop(o, out, out->fill);
    out->fill = chunk;
    return chunk->data;
}

void rmq_output_commit(struct rmq_outputs *o, struct rmq_connection *c, size_t bytes)
{
    struct rmq_output *out = c->output.queue;
    struct rmq_chunk *chunk = out->fill;
    const uint8_t *at = chunk->data + chunk->used;
    struct rmq_piece *last = last_piece(out);
    chunk->used += (uint32_t)bytes;
    out->bytes += bytes;
    if (last && last->chunk == chunk && last->at + last->length == at) {
        last->length += (uint32_t)bytes; /* a send in flight keeps its own vectors: only the rest grows */
    } else {
        struct rmq_piece *piece = piece_add(o, out);
        if (!piece) {
            rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_MEMORY);
            return;
        }
        *piece = (struct rmq_piece){.at = at, .length = (uint32_t)bytes, .chunk = chunk};
        chunk->references++;
    }
    rmq_output_mark(o, c);
}

void rmq_output_map(struct rmq_outputs *o, struct rmq_connection *c, struct rmq_file_map *map, const uint8_t *at, uint32_t bytes,
                    int on_disk)
{
    struct rmq_output *out = c->output.queue; /* the answer's header came first */
    struct rmq_piece *last = last_piece(out);
    out->bytes += bytes;
    if (last && last->map == map && last->at + last->length == at && last->length <= INT32_MAX - bytes &&
        !last->on_disk && !on_disk) {
        last->length += bytes;
        return;
    }
    struct rmq_piece *piece = piece_add(o, out);
    if (!piece) {
        rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_MEMORY);
        return;
    }
    *piece = (struct rmq_piece){.at = at, .length = bytes, .map = map, .on_disk = on_disk != 0};
    rmq_file_map_hold(map);
}

void rmq_output_bytes(struct rmq_outputs *o, struct rmq_connection *c, const uint8_t *bytes, size_t length)
{
    while (length && c->state == RMQ_CONNECTION_OPEN) {
        size_t part = length < RMQ_CHUNK_BYTES ? length : RMQ_CHUNK_BYTES;
        uint8_t *to = rmq_output_reserve(o, c, part);
        if (!to)
            return;
        memcpy(to, bytes, part);
        rmq_output_commit(o, c, part);
        bytes += part;
        length -= part;
    }
}

uint64_t rmq_outputs_most(const struct rmq_outputs *o)
{
    uint64_t most = o->context->settings->answer_bytes_max;
    return rmq_load(&o->context->header->memory.level) == RMQ_MEMORY_FULL ? most / FULL_PART : most;
}

uint64_t rmq_output_soft_limit(const struct rmq_outputs *o)
{
    uint64_t limit = o->context->settings->send_queue_bytes_max / 4;
    return o->open > rmq_outputs_most(o) / 2 && limit > TIGHT_BYTES ? TIGHT_BYTES : limit;
}

int rmq_output_tell(struct rmq_outputs *o, struct rmq_connection *c, const struct rmq_note *note)
{
    struct rmq_output *out = output_of(o, c);
    struct rmq_told *told = out ? malloc(sizeof *told) : NULL;
    if (!told) {
        rmq_unsent_tell(o->unsents, note, RMQ_UNSENT_GONE);
        rmq_connection_close(o->connections, c, RMQ_READ_CLOSED_MEMORY);
        return 0;
    }
    *told = (struct rmq_told){.at = out->taken + out->bytes, .note = *note};
    if (out->told)
        out->told_last->next = told;
    else
        out->told = told;
    out->told_last = told;
    account(o, out, (int64_t)sizeof *told);
    return 1;
}

void rmq_output_left(struct rmq_outputs *o, struct rmq_output *out, uint64_t sent)
{
    out->taken += sent;
    while (out->told && out->told->at < out->taken)
        told_pop(o, out);
}

void rmq_output_consume(struct rmq_outputs *o, struct rmq_output *out, uint64_t sent)
{
    rmq_output_left(o, out, sent);
    out->bytes -= sent;
    while (sent) {
        struct rmq_piece *piece = &out->pieces[out->head & (out->capacity - 1)];
        if (sent < piece->length) {
            piece->at += sent;
            piece->length -= (uint32_t)sent;
            return;
        }
        sent -= piece->length;
        piece_release(o, out, piece);
        out->head++;
        out->count--;
    }
}

void rmq_output_forget(struct rmq_outputs *o, struct rmq_connection *c)
{
    if (c->output.queue)
        output_release(o, c);
}

void rmq_output_end(struct rmq_outputs *o, struct rmq_connection *c)
{
    struct rmq_output *out = c->output.queue;
    if (!out)
        return;
    for (size_t i = 0; c->output.sending && !out->reads && i < out->message.msg_iovlen; i++)
        rmq_output_left(o, out, out->vectors[i].iov_len);
    output_release(o, c);
}

int rmq_outputs_open(struct rmq_outputs *o, struct rmq_connections *connections, struct rmq_unsents *unsents)
{
    o->context = connections->context;
    o->connections = connections;
    o->unsents = unsents;
    o->dirty = calloc(connections->max, sizeof *o->dirty);
    return o->dirty ? 0 : -ENOMEM;
}

void rmq_outputs_close(struct rmq_outputs *o)
{
    free(o->dirty);
    while (o->output_free) {
        struct rmq_output *out = o->output_free;
        o->output_free = out->next_free;
        free(out->pieces);
        free(out);
    }
    while (o->chunk_free) {
        struct rmq_chunk *chunk = o->chunk_free;
        o->chunk_free = chunk->next;
        free(chunk);
    }
}
