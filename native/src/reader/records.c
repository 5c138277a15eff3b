#include "reader/records.h"

#include "base/bytes.h"

#define SEGMENTS_MAPPED 256u
#define QUEUES_MAPPED 2048u
#define FRAME_BYTES_MIN 8u /* two lengths */

/* The payload of a verdict. */
struct named {
    const struct rmq_record_piece *pieces;
    uint32_t piece_count;
    const uint8_t *inline_bytes, *fallback;
    uint32_t fallback_bytes;
};

int rmq_records_open(struct rmq_records *records, struct rmq_outputs *outputs)
{
    records->context = outputs->context;
    records->outputs = outputs;
    return rmq_queue_reader_init(&records->queues, records->context->plane, SEGMENTS_MAPPED, QUEUES_MAPPED);
}

void rmq_records_close(struct rmq_records *records) { rmq_queue_reader_fini(&records->queues); }

/* The answerer is a process of this broker: what it has written is whole, or its memory is broken. */
static void read_payload(const struct rmq_verdict *v, struct named *n)
{
    const struct rmq_records_head *head = (const struct rmq_records_head *)(v + 1);
    uint64_t bytes = v->length - sizeof *v, inline_bytes = 0, total = 0;
    RMQ_INVARIANT(bytes >= sizeof *head, bytes);
    n->piece_count = head->piece_count;
    n->pieces = (const struct rmq_record_piece *)(head + 1);
    RMQ_INVARIANT(n->piece_count && n->piece_count <= RMQ_RECORD_PIECES_MAX &&
                      sizeof *head + n->piece_count * sizeof *n->pieces <= bytes, n->piece_count, bytes);
    for (uint32_t i = 0; i < n->piece_count; i++) {
        int is_inline = n->pieces[i].position == RMQ_RECORD_INLINE;
        RMQ_INVARIANT(n->pieces[i].size && is_inline == !n->pieces[i].messages, i, n->pieces[i].size, n->pieces[i].messages);
        total += n->pieces[i].size;
        inline_bytes += is_inline ? n->pieces[i].size : 0;
    }
    n->fallback_bytes = head->fallback_bytes;
    n->inline_bytes = (const uint8_t *)(n->pieces + n->piece_count);
    n->fallback = n->inline_bytes + inline_bytes;
    RMQ_INVARIANT(n->fallback_bytes >= FRAME_BYTES_MIN &&
                      sizeof *head + n->piece_count * sizeof *n->pieces + inline_bytes + n->fallback_bytes == bytes,
                  n->fallback_bytes, inline_bytes, bytes);
    RMQ_INVARIANT(n->pieces[0].position == RMQ_RECORD_INLINE && n->pieces[0].size >= FRAME_BYTES_MIN, n->pieces[0].size);
    uint32_t frame_bytes = rmq_get32(n->inline_bytes);
    RMQ_INVARIANT(frame_bytes + 4ull == total, frame_bytes, total);
}

static void release(struct rmq_records *records)
{
    while (records->range_count)
        rmq_file_map_drop(records->ranges[--records->range_count].map);
}

/* Maps one range and holds it. 0: retention has taken it, it may not be read yet, or its file cannot be mapped now. */
static int hold(struct rmq_records *records, const struct rmq_record_piece *piece, uint64_t log_min, uint64_t log_end,
                uint64_t confirm)
{
    uint64_t segment_bytes = records->context->settings->segment_bytes, at = piece->position % segment_bytes;
    struct rmq_record_range *range = &records->ranges[records->range_count];
    RMQ_INVARIANT(piece->size <= segment_bytes && at <= segment_bytes - piece->size, piece->position, piece->size);
    if (piece->position > confirm || piece->size > confirm - piece->position)
        return 0; /* a slave's may fall */
    range->at = rmq_queue_reader_log_at(&records->queues, piece->position, piece->size, log_min, &range->map);
    if (!range->at)
        return 0;
    range->on_disk = !rmq_is_in_memory(records->context->settings, log_end, piece->position);
    rmq_file_map_hold(range->map);
    records->range_count++;
    return 1;
}

/* 0, or RMQ_UNSENT_*: why the frame cannot be sent. */
static uint32_t hold_all(struct rmq_records *records, const struct named *n)
{
    const struct rmq_watermarks *w = records->context->plane->watermarks;
    uint64_t log_min = rmq_load(&w->min_offset), confirm = rmq_confirm_offset(w), log_end = rmq_load(&w->append_offset);
    uint64_t bytes = 0;
    uint32_t messages = 0;
    for (uint32_t i = 0; i < n->piece_count; i++) {
        const struct rmq_record_piece *piece = &n->pieces[i];
        bytes += piece->size;
        if (piece->position == RMQ_RECORD_INLINE)
            continue;
        messages += piece->messages;
        if (rmq_records_exceed(records->context->settings, log_end, piece->position, messages, bytes))
            return RMQ_UNSENT_BOUNDS;
        if (!hold(records, piece, log_min, log_end, confirm))
            return RMQ_UNSENT_RECORD;
    }
    records->context->counters[RMQ_READ_NAMED_MESSAGES] += messages;
    return 0;
}

static void put(struct rmq_records *records, struct rmq_connection *c, const struct named *n)
{
    const uint8_t *bytes = n->inline_bytes;
    for (uint32_t i = 0, range = 0; i < n->piece_count && c->state == RMQ_CONNECTION_OPEN; i++) {
        const struct rmq_record_piece *piece = &n->pieces[i];
        if (piece->position == RMQ_RECORD_INLINE) {
            rmq_output_bytes(records->outputs, c, bytes, piece->size);
            bytes += piece->size;
            continue;
        }
        const struct rmq_record_range *from = &records->ranges[range++];
        rmq_output_map(records->outputs, c, from->map, from->at, piece->size, (int)from->on_disk);
    }
}

void rmq_records_send(struct rmq_records *records, struct rmq_connection *c, const struct rmq_verdict *v,
                      const struct rmq_note *note)
{
    struct named n;
    read_payload(v, &n);
    uint32_t reason = hold_all(records, &n);
    if (reason && note)
        rmq_unsent_tell(records->outputs->unsents, note, reason);
    if (reason)
        rmq_output_bytes(records->outputs, c, n.fallback, n.fallback_bytes);
    else if (!note || rmq_output_tell(records->outputs, c, note))
        put(records, c, &n);
    release(records);
}
