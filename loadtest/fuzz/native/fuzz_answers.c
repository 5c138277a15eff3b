#include "fuzz_answers.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/frame_header.h"
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

/* A poll goes into a slot, perhaps one that is taken; or some slot, perhaps an empty one, gets a word. */
static void hold(struct rmq_plane *plane, const struct waiting *w, int64_t now_ns)
{
    static uint8_t bytes[sizeof(struct rmq_hold) + 4096 + 64];
    struct rmq_hold head = {.slot = (uint32_t)fuzz_dice(SLOTS), .ask_bytes = w->ask_bytes, .answer_bytes = 8 + (uint32_t)fuzz_dice(50),
                            .deadline_ns = now_ns + (int64_t)fuzz_dice(2000) * 1000000 - 300000000};
    memcpy(bytes, &head, sizeof head);
    struct rmq_verdict v = {.type = RMQ_VERDICT_HOLD, .connection = w->connection, .pending = w->pending,
                            .connection_generation = w->connection_generation, .asker_generation = w->reader_generation,
                            .serial = (uint32_t)fuzz_dice(SERIALS)};
    rmq_verdict_put(plane, w->answerer, RMQ_ROLE_READ, &v, bytes, (uint32_t)sizeof head + head.ask_bytes + head.answer_bytes);
}

static void end_some_poll(struct rmq_plane *plane, uint32_t answerer)
{
    static const uint16_t types[] = {RMQ_VERDICT_SEND, RMQ_VERDICT_SEND, RMQ_VERDICT_RECORDS, RMQ_VERDICT_DROP, RMQ_VERDICT_REDO,
                                     RMQ_VERDICT_CLOSE};
    uint8_t records[RECORDS_MAX];
    uint32_t length = make_records(records);
    struct rmq_verdict v = {.type = types[fuzz_dice(fuzz_dice(8) ? 5 : 6)], .last = 1, .pending = (uint32_t)fuzz_dice(SLOTS),
                            .asker_generation = fuzz_dice(20) ? 1 : 0, .serial = (uint32_t)fuzz_dice(SERIALS),
                            .flags = RMQ_VERDICT_HELD | (fuzz_dice(2) ? RMQ_VERDICT_TELLS : 0)};
    rmq_verdict_put(plane, answerer, RMQ_ROLE_READ, &v, records, v.type == RMQ_VERDICT_RECORDS ? length : length / 2);
}

void fuzz_give_verdict(struct rmq_plane *plane, const struct waiting *w, int64_t now_ns)
{
    if (!fuzz_dice(3))
        end_some_poll(plane, w->answerer);
    if (w->ask_bytes && !fuzz_dice(2)) {
        hold(plane, w, now_ns);
        return;
    }
    static const uint16_t types[] = {RMQ_VERDICT_SEND, RMQ_VERDICT_SEND, RMQ_VERDICT_SEND, RMQ_VERDICT_REDO,
                                     RMQ_VERDICT_REDO, RMQ_VERDICT_RECORDS, RMQ_VERDICT_DROP};
    const struct fuzz_input *answer = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint16_t type = fuzz_dice(200) ? types[fuzz_dice(sizeof types / sizeof *types)] : RMQ_VERDICT_CLOSE;
    struct rmq_verdict v = {.type = type, .last = fuzz_dice(8) > 0, .connection = w->connection, .pending = w->pending,
                            .connection_generation = w->connection_generation, .asker_generation = w->reader_generation,
                            .rule = (uint16_t)fuzz_dice(RMQ_REDO_RULES),
                            .flags = fuzz_dice(2) ? RMQ_VERDICT_TELLS : 0};
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

/* Sends and pulls are kept, and are not held. */
int fuzz_may_hold(const struct rmq_inbox_record *record)
{
    struct rmq_frame_header h;
    if (record->type == RMQ_INBOX_HELD)
        return 1;
    if (record->frame_length != record->length - sizeof *record || record->frame_length > 4096)
        return 0;
    return rmq_frame_header_parse((const uint8_t *)(record + 1), record->frame_length, &h) == 0 && h.code != 10 && h.code != 310 &&
           h.code != 320 && h.code != 11 && h.code != 361;
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
