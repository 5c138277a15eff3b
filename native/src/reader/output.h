/* output.h: answers on their way to clients: pieces that lie in chunks of private memory, or in mapped pages of the log.
 *
 * What stays true:
 * - A chunk has one reference of each piece that lies in it, and one while it is being filled.
 * - `bytes` of an output is the length of its pieces; `memory` counts its structure, the room for pieces and its chunks.
 * - `told` names the answers in their order. The one at the front begins at `taken` or behind it.
 * - `open` and `closing` are the sums of `memory` over the outputs of open and of closed connections.
 * - An open connection with pieces is sending or dirty. Its kernel operations use the pieces at the front, which stay
 *   meanwhile.
 */
#ifndef RMQ_OUTPUT_H
#define RMQ_OUTPUT_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "reader/connections.h"
#include "reader/unsent.h"

#define RMQ_CHUNK_BYTES 8192u         /* answers are encoded into these */
#define RMQ_SEND_PIECES 256u          /* iovecs of one send */

struct rmq_file_map;

/* The answer that begins at byte `at` is dropped unless that byte is taken by the kernel: then its answerer is told. */
struct rmq_told {
    uint64_t at;
    struct rmq_note note;
    struct rmq_told *next;
};

struct rmq_chunk {
    uint32_t references;
    uint32_t used;
    uint32_t capacity;
    struct rmq_chunk *next;
    uint8_t data[];
};

struct rmq_piece {
    const uint8_t *at;
    uint32_t length;
    uint8_t on_disk;           /* perhaps on disk only: to be read before it is sent */
    struct rmq_chunk *chunk;   /* one of the two owns the bytes */
    struct rmq_file_map *map;
};

/* Only connections with something to send have one. */
struct rmq_output {
    struct rmq_piece *pieces;  /* ring of `capacity`, a power of two */
    uint32_t head, count, capacity;
    uint64_t bytes;            /* not yet taken by the kernel */
    uint64_t taken;            /* those that it has */
    struct rmq_told *told, *told_last; /* answers of which it has taken no byte */
    uint64_t memory;
    uint8_t is_closing;        /* its connection is */
    int64_t progress_ms;       /* last time the kernel took some */
    uint32_t reads;            /* of the first `reading` pieces, under way */
    uint32_t reading;
    struct rmq_chunk *fill;
    struct rmq_output *next_free;
    struct msghdr message;
    struct iovec vectors[RMQ_SEND_PIECES];
};

struct rmq_outputs {
    struct rmq_read_context *context;
    struct rmq_connections *connections;
    struct rmq_unsents *unsents;
    uint32_t *dirty, dirty_count;  /* connections with output that is not being sent */
    struct rmq_output *output_free;
    struct rmq_chunk *chunk_free;
    uint32_t chunk_free_count, output_free_count;
    uint32_t used;
    uint64_t open, closing;        /* memory */
    uint64_t peak, kept;           /* in this window; in one before, and perhaps not given back yet */
    int64_t window_ms;
};

int rmq_outputs_open(struct rmq_outputs *o, struct rmq_connections *connections, struct rmq_unsents *unsents);
void rmq_outputs_close(struct rmq_outputs *o); /* after every connection has forgotten its output */

/* Room for `bytes` of an answer; NULL: no memory, c is closed. commit: so many of them are the answer. map: the next bytes
 * of the answer are pages of a log file. */
uint8_t *rmq_output_reserve(struct rmq_outputs *o, struct rmq_connection *c, size_t bytes);
void rmq_output_commit(struct rmq_outputs *o, struct rmq_connection *c, size_t bytes);
void rmq_output_map(struct rmq_outputs *o, struct rmq_connection *c, struct rmq_file_map *map, const uint8_t *at, uint32_t bytes,
                    int on_disk);
void rmq_output_bytes(struct rmq_outputs *o, struct rmq_connection *c, const uint8_t *bytes, size_t length);
/* The next answer is one whose answerer wants to know if it is dropped. 0: it is, and c is closed. */
int rmq_output_tell(struct rmq_outputs *o, struct rmq_connection *c, const struct rmq_note *note);
/* The kernel has taken so many bytes. left: the same, of a connection that is closed. */
void rmq_output_consume(struct rmq_outputs *o, struct rmq_output *out, uint64_t sent);
void rmq_output_left(struct rmq_outputs *o, struct rmq_output *out, uint64_t sent);
void rmq_output_forget(struct rmq_outputs *o, struct rmq_connection *c);
/* The reader ends, and takes no completion any more. What was handed to the kernel may have left, so no answerer is told of it. */
void rmq_output_end(struct rmq_outputs *o, struct rmq_connection *c);
void rmq_output_closing(struct rmq_outputs *o, struct rmq_connection *c); /* its answers count no more */

static inline struct rmq_piece *rmq_output_piece(struct rmq_output *out, uint32_t i)
{
    return &out->pieces[(out->head + i) & (out->capacity - 1)];
}

static inline void rmq_output_mark(struct rmq_outputs *o, struct rmq_connection *c)
{
    if (c->output.dirty)
        return;
    c->output.dirty = 1;
    o->dirty[o->dirty_count++] = rmq_connection_index(o->connections, c);
}

/* The bytes that the answers of all connections may take. An eighth of them while the broker is at ringmqMemoryMax. */
uint64_t rmq_outputs_most(const struct rmq_outputs *o);
/* A connection whose answers have more bytes is served no further. */
uint64_t rmq_output_soft_limit(const struct rmq_outputs *o);
static inline int rmq_output_is_full(const struct rmq_outputs *o, const struct rmq_connection *c)
{
    return c->output.queue && c->output.queue->bytes > rmq_output_soft_limit(o);
}
/* It was full, and has room for more answers by now. */
static inline int rmq_output_has_room(const struct rmq_outputs *o, const struct rmq_connection *c)
{
    return !c->output.queue || c->output.queue->bytes <= rmq_output_soft_limit(o) / 2;
}
static inline int rmq_output_is_empty(const struct rmq_connection *c) { return !c->output.queue; }
/* Operations of the kernel use it. */
static inline int rmq_output_is_sending(const struct rmq_connection *c) { return c->output.sending; }
/* Of a connection whose output is not empty: its memory; the time since its client has taken bytes. */
static inline uint64_t rmq_output_memory_of(const struct rmq_connection *c) { return c->output.queue->memory; }
static inline int64_t rmq_output_unread_ms(const struct rmq_connection *c, int64_t now_ms)
{
    return now_ms - c->output.queue->progress_ms;
}
/* Its client has taken nothing for longer than `most_ms`. The time of the disk is not the client's. */
static inline int rmq_output_is_stuck(const struct rmq_connection *c, int64_t now_ms, uint32_t most_ms)
{
    const struct rmq_output *out = c->output.queue;
    return out && out->count && !out->reads && now_ms - out->progress_ms > most_ms;
}
uint64_t rmq_output_memory(const struct rmq_outputs *o); /* private bytes of all answers, kept ones included */
void rmq_outputs_tick(struct rmq_outputs *o);            /* gives memory back */

/* sending.c */
void rmq_output_sent(struct rmq_outputs *o, const struct rmq_event *event);
void rmq_output_read(struct rmq_outputs *o, const struct rmq_event *event);
void rmq_output_flush(struct rmq_outputs *o);
#endif
