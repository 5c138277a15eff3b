/* Frames that are damaged, decoded by tables of fields: GOLDEN SEED INPUTS. Each input is one frame.
 *
 * GOLDEN holds requests 36, 37 and of POP. The frame goes through the table of its code, or through a wide one with all types.
 * Frame, record and text lie in memory of exactly their size. A record that is read becomes an answer, which must parse.
 */
#include "codec/answer.h"
#include "codec/frame_header.h"
#include "fuzz.h"
#include "services/plain_ends.h"
#include "services/send_backs.h"

struct wide {
    struct rmq_plain_head head;
    int64_t offset, born_time;
    int32_t level, choice;
    uint32_t is_ordered;
    struct rmq_plain_text group, topic, extra;
};
RMQ_PLAIN_CHECK_RECORD(wide);

#define ROWS(ROW, record) \
    ROW(record, offset, "offset", RMQ_FIELD_INT64, 0, 0) \
    ROW(record, born_time, "bornTime", RMQ_FIELD_INT64, 0, 0) \
    ROW(record, level, "delayLevel", RMQ_FIELD_INT32, 0, 0, .version_min = 100) \
    ROW(record, choice, "commitOrRollback", RMQ_FIELD_CHOICE, 0, UINT64_C(1) << 8 | UINT64_C(1) << 63) \
    ROW(record, is_ordered, "order", RMQ_FIELD_BOOL, 0, 0) \
    ROW(record, head, "msgId", RMQ_FIELD_UNKEPT, 0, 0) \
    ROW(record, group, "consumerGroup", RMQ_FIELD_TEXT, 0, 20) \
    ROW(record, topic, "topic", RMQ_FIELD_TEXT, 1, 255) \
    ROW(record, extra, "extraInfo", RMQ_FIELD_TEXT, 0, 60000)

static struct rmq_plain_table wide = {.header = "Wide", RMQ_PLAIN_ROWS(ROWS, wide)};
static uint64_t read_count, odd, refused, answers;

/* Bytes of their own, so that a read beyond them is a report. */
static uint8_t *own(const uint8_t *bytes, uint32_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    return copy;
}

/* The table of the frame's code, or the wide one with this code. */
static const struct rmq_plain_table *table_of(const uint8_t *frame, uint32_t length)
{
    struct rmq_frame_header h;
    int32_t code = rmq_frame_header_parse(frame, length, &h) < 0 ? 0 : h.code;
    if (code == RMQ_CODE_SEND_BACK && fuzz_dice(4))
        return &rmq_send_back_table;
    if (code == RMQ_CODE_END_TRANSACTION && fuzz_dice(4))
        return &rmq_end_table;
    wide.code = code;
    return &wide;
}

static void check_field(const struct rmq_plain_table *table, const struct rmq_plain_field *field, const uint8_t *record,
                        const uint8_t *text)
{
    int32_t small;
    struct rmq_plain_text place;
    if (field->type != RMQ_FIELD_UNKEPT && field->type != RMQ_FIELD_TEXT) {
        memcpy(&small, record + field->at, sizeof small);
        fuzz_must(field->type != RMQ_FIELD_BOOL || small == 0 || small == 1, "a boolean is 0 or 1");
        fuzz_must(field->type != RMQ_FIELD_CHOICE || (small >= 0 && small < 64 && (field->limit >> small & 1)), "a choice is allowed");
    } else if (field->type == RMQ_FIELD_TEXT) {
        memcpy(&place, record + field->at, sizeof place);
        fuzz_must(place.length <= field->limit && place.at + place.length <= table->text_bytes_max, "a text is within its limit");
        for (uint32_t i = 0; i < place.length; i++)
            fuzz_must(text[place.at + i] >= 0x20 && text[place.at + i] <= 0x7e, "a text is printable");
    }
}

static void check_answer(const struct rmq_plain_table *table, const uint8_t *record, const uint8_t *text)
{
    struct rmq_frame_header h;
    struct rmq_answer_head head = {.code = (int32_t)fuzz_dice(300), .opaque = (int32_t)fuzz_edge(), .serialise = (uint32_t)fuzz_dice(2),
                                   .remark = "no\n\"", .remark_length = (uint32_t)fuzz_dice(5)};
    size_t bound = rmq_fields_answer_bound(&head, table, record);
    uint8_t *frame = malloc(bound);
    size_t length = rmq_fields_answer_put(frame, &head, table, record, text);
    fuzz_must(length <= bound, "an answer is within its bound");
    fuzz_must(!rmq_frame_header_parse(frame, (uint32_t)length, &h) && !h.unusual, "an answer parses");
    fuzz_must(h.code == head.code && h.opaque == head.opaque && h.ext_count <= table->field_count, "an answer is what was given");
    answers += h.ext_count > 0;
    free(frame);
}

static void decode_one(void)
{
    const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint8_t *bytes = own(golden->bytes, golden->length);
    uint32_t length = fuzz_dice(3) ? fuzz_damage(bytes, golden->length) : golden->length;
    if (fuzz_dice(2) && length > 8)
        length = 8 + fuzz_damage(bytes + 8, length - 8);
    const struct rmq_plain_table *table = table_of(bytes, length);
    uint8_t *frame = own(bytes, length), *record = malloc(table->record_bytes), *text = malloc(table->text_bytes_max);
    struct rmq_plain_asked asked;
    int result = rmq_plain_decode(table, frame, length, &asked, record, text);
    fuzz_must(result <= RMQ_PLAIN_READ && result >= -(int)table->field_count, "a result");
    odd += result == RMQ_PLAIN_ODD;
    refused += result < RMQ_PLAIN_ODD;
    if (result == RMQ_PLAIN_READ) {
        const struct rmq_plain_head *head = (const void *)record;
        read_count++;
        fuzz_must(!(head->present >> table->field_count) && head->text_bytes <= table->text_bytes_max, "a head");
        fuzz_must(asked.code == table->code && asked.is_oneway <= 1 && asked.serialise == frame[4], "what stands beside it");
        for (uint32_t i = 0; i < table->field_count; i++) {
            int is_present = head->present >> i & 1;
            fuzz_must(is_present || !table->fields[i].required, "no required field is missing");
            if (is_present)
                check_field(table, &table->fields[i], record, text);
        }
        check_answer(table, record, text);
    }
    free(bytes);
    free(frame);
    free(record);
    free(text);
}

int main(int argc, char **argv)
{
    fuzz_must(argc == 4, "GOLDEN SEED INPUTS");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    long long inputs = atoll(argv[3]);
    for (long long n = 0; n < inputs; n++)
        decode_one();
    printf("{\"inputs\": %lld, \"read\": %llu, \"odd\": %llu, \"refused\": %llu, \"answers\": %llu}\n", inputs,
           (unsigned long long)read_count, (unsigned long long)odd, (unsigned long long)refused, (unsigned long long)answers);
    return 0;
}
