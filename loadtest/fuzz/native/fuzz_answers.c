#include "fuzz_answers.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "plane/asks.h"

/* A frame of bytes and of ranges of the log: some are there, some beyond its ends. Its length is right. */
static uint32_t make_records(uint8_t *to)
{
    struct rmq_records_head head = {.piece_count = 1 + (uint32_t)fuzz_dice(PIECES_MAX), .fallback_bytes = 8 + (uint32_t)fuzz_dice(64)};
    struct rmq_record_piece pieces[PIECES_MAX];
    uint32_t total = 0, inline_bytes = 0;
    for (uint32_t i = 0; i < head.piece_count; i++) {
        int is_inline = !i || !fuzz_dice(4);
        uint32_t size = 8 + (uint32_t)fuzz_dice(fuzz_dice(8) ? 600 : LOG_BYTES / 2);
        uint64_t file = fuzz_dice(8) ? 0 : (uint64_t)fuzz_dice(1000);
        pieces[i] = (struct rmq_record_piece){
            .position = is_inline ? RMQ_RECORD_INLINE : file * LOG_BYTES + (uint64_t)fuzz_dice(LOG_BYTES - size),
            .size = is_inline ? 8 + size % 64 : size, .messages = is_inline ? 0 : 1 + (uint32_t)fuzz_dice(3)};
        total += pieces[i].size;
        inline_bytes += is_inline ? pieces[i].size : 0;
    }
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, pieces, head.piece_count * sizeof *pieces);
    uint32_t at = (uint32_t)(sizeof head + head.piece_count * sizeof *pieces);
    memset(to + at, 0, inline_bytes + head.fallback_bytes);
    rmq_put32(to + at, total - 4);
    rmq_put32(to + at + inline_bytes, head.fallback_bytes - 4);
    return at + inline_bytes + head.fallback_bytes;
}

void fuzz_give_verdict(struct rmq_plane *plane, const struct waiting *w)
{
    static const uint16_t types[] = {RMQ_VERDICT_SEND, RMQ_VERDICT_SEND, RMQ_VERDICT_SEND, RMQ_VERDICT_REDO,
                                     RMQ_VERDICT_REDO, RMQ_VERDICT_RECORDS, RMQ_VERDICT_DROP};
    const struct fuzz_input *answer = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint16_t type = fuzz_dice(200) ? types[fuzz_dice(sizeof types / sizeof *types)] : RMQ_VERDICT_CLOSE;
    struct rmq_verdict v = {.type = type, .last = fuzz_dice(8) > 0, .connection = w->connection, .pending = w->pending,
                            .connection_generation = w->connection_generation, .asker_generation = w->reader_generation,
                            .rule = (uint16_t)fuzz_dice(RMQ_REDO_RULES)};
    uint32_t length = type == RMQ_VERDICT_SEND ? (answer->length < 4096 ? answer->length : 4096) : 0;
    uint8_t records[RECORDS_MAX];
    if (type == RMQ_VERDICT_RECORDS)
        length = make_records(records);
    rmq_verdict_put(plane, w->answerer, RMQ_ROLE_READ, &v, type == RMQ_VERDICT_RECORDS ? records : answer->bytes, length);
    if (type == RMQ_VERDICT_SEND && !v.last) {
        v.last = 1;
        rmq_verdict_put(plane, w->answerer, RMQ_ROLE_READ, &v, answer->bytes, length);
    }
    if (!fuzz_dice(20)) { /* a question of the answerer's own */
        v = (struct rmq_verdict){.type = RMQ_VERDICT_SEND, .last = 1, .connection = w->connection, .pending = RMQ_NONE,
                                 .connection_generation = w->connection_generation, .asker_generation = w->reader_generation};
        rmq_verdict_put(plane, w->answerer, RMQ_ROLE_READ, &v, answer->bytes, answer->length < 4096 ? answer->length : 4096);
    }
}

/* One file of a log. */
void fuzz_make_log(struct rmq_plane *plane, const char *folder)
{
    static uint8_t bytes[LOG_BYTES];
    char path[RMQ_PATH_MAX];
    snprintf(path, sizeof path, "%s/%020d", folder, 0);
    FILE *file = fopen(path, "w");
    fuzz_must(file && fwrite(bytes, sizeof bytes, 1, file) == 1 && fclose(file) == 0, "a file of the log");
    plane->watermarks->append_offset = LOG_BYTES;
}

/* Retention takes some of it, the end moves on. */
void fuzz_change_log(struct rmq_plane *plane)
{
    struct rmq_watermarks *w = plane->watermarks;
    w->append_offset += (uint64_t)fuzz_dice(4096);
    if (w->min_offset < LOG_BYTES / 2)
        w->min_offset += (uint64_t)fuzz_dice(256);
    rmq_header(plane)->settings.memory_window_bytes = fuzz_dice(2) ? 1 << 30 : LOG_BYTES / 2;
}
