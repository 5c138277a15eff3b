/* Requests 36 and the records that they name, damaged, as the batches of the service take them: GOLDEN SEED INPUTS.
 *
 * GOLDEN holds a frame with its length in front, and a record behind. Each input is one batch of rows, some of which are read
 * from damaged frames. Each row becomes a request for write, is left to Python, waits for the next batch, or is dropped, and none
 * twice.
 */
#include "fuzz.h"
#include "services/send_backs.h"

enum { ROWS = 8, CASES = 3, EDITS = 2, ARENA_MAX = 1 << 16 };

static const uint8_t hidden[] = "\x13SCHEDULE_TOPIC_XXXX\x01T";
static const uint8_t texts[] = "RETRY_TOPICDELAY";
static const struct rmq_pair_edit edits[EDITS] = {
    {.kind = RMQ_EDIT_DEFAULT, .value_from = RMQ_FROM_TOPIC, .name_length = 11},
    {.kind = RMQ_EDIT_SET, .value_from = RMQ_FROM_NUMBER, .name_at = 11, .name_length = 5, .number = 3}};
static uint64_t plain, sound, hidden_or_half, made, left, later, dropped, no_room;

/* Bytes of their own, so that a read beyond them is a report. */
static uint8_t *own(const uint8_t *bytes, uint32_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    return copy;
}

static uint8_t *damaged(const uint8_t *bytes, uint32_t *length)
{
    uint8_t *copy = own(bytes, *length);
    *length = fuzz_dice(3) ? fuzz_damage(copy, *length) : *length;
    uint8_t *exact = own(copy, *length);
    free(copy);
    return exact;
}

static void read_frame(const uint8_t *frame, uint32_t length, struct rmq_send_back *row)
{
    uint8_t *bytes = damaged(frame, &length);
    struct rmq_inbox_record *record = malloc(sizeof *record + length);
    *record = (struct rmq_inbox_record){.type = fuzz_dice(50) ? RMQ_INBOX_COLD_FRAME : RMQ_INBOX_CLOSED,
                                        .length = (int32_t)(sizeof *record + length)};
    memcpy(record + 1, bytes, length);
    if (rmq_send_back_read(record, row)) {
        plain++;
        fuzz_must(row->case_number == RMQ_SEND_BACK_NO_CASE && !row->source.map, "a row begins without a source");
    }
    free(record);
    free(bytes);
}

/* The source of a row, and its case if it is sound. Returns its bytes, which the caller frees. */
static uint8_t *choose_source(struct rmq_send_backs *s, struct rmq_send_back *row, const uint8_t *record, uint32_t length)
{
    uint8_t *bytes = damaged(record, &length);
    memset(row, 0, sizeof *row);
    row->case_number = RMQ_SEND_BACK_NO_CASE;
    row->source.at = bytes;
    row->source_bytes = length;
    for (int i = 28; length >= 36 && i < 36; i++)
        row->fields.offset = (int64_t)((uint64_t)row->fields.offset << 8 | bytes[i]);
    if (rmq_send_back_is_sound(s, bytes, length, row->fields.offset, &row->reconsume_times)) {
        sound++;
        row->case_number = fuzz_dice(10) ? (uint32_t)fuzz_dice(CASES) : RMQ_SEND_BACK_LATER;
    } else {
        hidden_or_half++;
    }
    return bytes;
}

static void check_batch(const struct rmq_send_backs *s, const struct rmq_request *requests, uint32_t count, uint32_t taken)
{
    uint32_t seen = 0, released = s->unused_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)requests[i].token;
        fuzz_must(slot < ROWS && !(seen >> slot & 1) && requests[i].token >> 32 == 5, "each row has one request");
        fuzz_must(requests[i].kind == RMQ_APPEND_SINGLE, "a request is made");
        seen |= 1u << slot;
    }
    for (uint32_t i = 0; i < s->left_count; i++) {
        fuzz_must(s->left[i] < ROWS && !(seen >> s->left[i] & 1), "a row that is left has no request");
        seen |= 1u << s->left[i];
    }
    for (uint32_t i = 0; i < s->ready_count; i++) {
        fuzz_must(s->ready[i] < ROWS && !(seen >> s->ready[i] & 1), "a row that waits has no request, and is not left");
        fuzz_must(!i || s->ready[i] > s->ready[i - 1], "rows that wait keep their order");
        seen |= 1u << s->ready[i];
    }
    fuzz_must(count + s->left_count + released == s->taken_count, "each row goes one way");
    fuzz_must(s->taken_count + s->ready_count == taken, "the others wait for the next batch");
    fuzz_must(s->open[3] == count, "the batch waits for its copies");
    made += count;
    left += s->left_count;
    later += s->ready_count;
    dropped += released;
}

static void send_back_batch(void)
{
    struct rmq_send_back rows[ROWS];
    uint32_t unused[ROWS], open[ROWS] = {0}, ready[ROWS], taken[ROWS], copied[ROWS], rest[ROWS];
    struct rmq_send_backs s = {.rows = rows, .unused = unused, .open = open, .ready = ready, .taken = taken, .copied = copied, .left = rest,
                               .hidden = hidden, .hidden_bytes = sizeof hidden - 1, .capacity = ROWS, .cases_count = CASES};
    struct rmq_send_back_target targets[CASES * 2] = {{.topic_id = 1, .edits_count = EDITS}, {.topic_id = 2}, {.topic_id = 3}};
    struct rmq_record_copy copies[ROWS];
    struct rmq_request requests[ROWS];
    uint8_t *sources[ROWS];
    uint32_t count = 1 + (uint32_t)fuzz_dice(ROWS), room = (uint32_t)fuzz_dice(fuzz_dice(4) ? ARENA_MAX : 600);
    for (uint32_t i = 0; i < CASES; i++)
        s.cases[i] = (struct rmq_send_back_case){.action = i, .targets_from = (uint32_t)fuzz_dice(CASES), .targets_count = 1 + (uint32_t)fuzz_dice(CASES)};
    for (uint32_t i = 0; i < count; i++) {
        const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
        uint32_t frame_length;
        memcpy(&frame_length, golden->bytes, sizeof frame_length);
        const uint8_t *frame = golden->bytes + sizeof frame_length;
        read_frame(frame, frame_length, &rows[i]);
        sources[i] = choose_source(&s, &rows[i], frame + frame_length, golden->length - frame_length - (uint32_t)sizeof frame_length);
        taken[s.taken_count++] = i;
    }
    struct rmq_copy_batch batch = {.edits = edits, .texts = texts, .arena = malloc(room + 1), .arena_end = room, .edits_count = EDITS,
                                   .texts_bytes = sizeof texts - 1, .body_bytes_max = 1 << 20,
                                   .properties_bytes_max = RMQ_PROPERTIES_BYTES_MAX};
    uint32_t filled = rmq_send_backs_fill(&s, targets, copies);
    uint32_t done = rmq_record_copies(copies, filled, &batch, requests);
    no_room += done < filled;
    check_batch(&s, requests, rmq_send_backs_tokens(&s, copies, requests, done, (uint64_t)5 << 32, 3), count);
    for (uint32_t i = 0; i < count; i++)
        free(sources[i]);
    free(batch.arena);
}

int main(int argc, char **argv)
{
    fuzz_must(argc == 4, "GOLDEN SEED INPUTS");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    long long inputs = atoll(argv[3]);
    for (long long n = 0; n < inputs; n++)
        send_back_batch();
    printf("{\"inputs\": %lld, \"plain\": %llu, \"sound\": %llu, \"unsound\": %llu, \"made\": %llu, \"left\": %llu, \"later\": %llu, \"dropped\": %llu, \"no_room\": %llu}\n",
           inputs, (unsigned long long)plain, (unsigned long long)sound, (unsigned long long)hidden_or_half, (unsigned long long)made,
           (unsigned long long)left, (unsigned long long)later,
           (unsigned long long)dropped, (unsigned long long)no_room);
    return 0;
}
