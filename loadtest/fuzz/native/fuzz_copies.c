/* Stored records that are damaged, copied under sanitizers: GOLDEN SEED INPUTS. Each input is one batch of copies.
 *
 * GOLDEN holds records of a CommitLog. Three in four are damaged or cut; edits are sound or not, rooms too small or not. A copy
 * that is made lies in its room, and write's encoder makes a record of it that recovery takes.
 */
#include "codec/property_pairs.h"
#include "fuzz.h"
#include "services/record_copy.h"

enum { COPIES_MAX = 8, EDITS = 12, TEXTS = 200, ARENA_MAX = 1 << 16 };

static uint64_t made, refused[16], no_room;

/* Bytes of their own, so that a read beyond them is a report. */
static uint8_t *own(const uint8_t *bytes, uint32_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    return copy;
}

static void choose_texts(uint8_t *texts)
{
    static const char words[] = "DELAYREAL_TOPICREAL_QIDTAGSKEYSUNIQ_KEYWAITRETRY_TOPIC";
    for (uint32_t i = 0; i < TEXTS; i++)
        texts[i] = (uint8_t)words[i % (sizeof words - 1)];
    if (!fuzz_dice(8))
        texts[fuzz_dice(TEXTS)] = (uint8_t)fuzz_dice(3);
}

static void choose_edits(struct rmq_pair_edit *edits)
{
    static const uint16_t places[EDITS][2] = {{0, 5}, {5, 10}, {15, 8}, {23, 4}, {27, 4}, {31, 8},
                                         {39, 4}, {43, 11}, {0, 4}, {5, 9}, {15, 7}, {43, 5}};
    memset(edits, 0, EDITS * sizeof *edits);
    for (uint32_t i = 0; i < EDITS; i++) {
        const uint16_t *place = places[fuzz_dice(60) ? i : fuzz_dice(EDITS)];
        edits[i] = (struct rmq_pair_edit){.kind = (uint16_t)(1 + fuzz_dice(5)), .value_from = (uint16_t)fuzz_dice(6),
                                          .name_at = place[0], .name_length = place[1], .value_at = (uint32_t)fuzz_dice(150),
                                          .value_length = (uint16_t)(1 + fuzz_dice(50)), .number = fuzz_edge()};
        if (fuzz_dice(40))
            continue;
        switch (fuzz_dice(4)) {
        case 0: edits[i].kind = (uint16_t)fuzz_edge(); break;
        case 1: edits[i].name_at = (uint32_t)fuzz_edge(); break;
        case 2: edits[i].value_length = (uint16_t)fuzz_edge(); break;
        default: edits[i].name_length = (uint16_t)fuzz_edge();
        }
    }
}

/* A record, damaged or not, and how it is copied. Returns its bytes, which the caller frees. */
static uint8_t *choose_copy(struct rmq_record_copy *copy)
{
    const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint8_t *bytes = own(golden->bytes, golden->length);
    uint32_t length = fuzz_dice(4) ? fuzz_damage(bytes, golden->length) : golden->length;
    if (fuzz_dice(2) && length > 200) { /* most pairs are in there */
        uint32_t from = length - 200;
        length = from + fuzz_damage(bytes + from, length - from);
    }
    uint8_t *exact = own(bytes, length);
    free(bytes);
    memset(copy, 0, sizeof *copy);
    copy->record = exact;
    copy->record_bytes = length;
    copy->position = -1;
    copy->flags = (uint32_t)fuzz_dice(256);
    copy->edits_from = (uint32_t)fuzz_dice(EDITS);
    copy->edits_count = fuzz_dice(60) ? (uint32_t)fuzz_dice(EDITS + 1 - copy->edits_from) : (uint32_t)fuzz_edge();
    copy->sys_flag_clear = (uint32_t)fuzz_dice(16);
    copy->sys_flag_set = fuzz_dice(20) ? (uint32_t)fuzz_dice(16) : (uint32_t)fuzz_edge();
    copy->reconsume_times = (int32_t)fuzz_edge();
    return exact;
}

static void check_request(const struct rmq_request *q, const struct rmq_copy_batch *batch, uint64_t begin)
{
    struct rmq_record_view view;
    fuzz_must(q->body_at >= begin && q->properties_at == q->body_at + q->body_length &&
                  q->properties_at + q->properties_length <= batch->arena_at && batch->arena_at <= batch->arena_end,
              "a copy lies in its room");
    const uint8_t *properties = batch->arena + q->properties_at;
    fuzz_must(rmq_properties_state(properties, q->properties_length) == RMQ_PROPERTIES_WHOLE, "recovery takes the properties");
    fuzz_must(q->properties_length <= batch->properties_bytes_max && q->body_length <= batch->body_bytes_max, "limits hold");
    struct rmq_record_in in = {.body = batch->arena + q->body_at, .body_length = q->body_length, .topic = (const uint8_t *)"T",
                               .topic_length = 1, .sys_flag = q->sys_flag, .reconsume_times = q->reconsume_times};
    in.properties[0] = properties;
    in.properties_length[0] = q->properties_length;
    int64_t size = rmq_record_size(&in);
    fuzz_must(size > 0, "a copy has a size");
    uint8_t *record = malloc((size_t)size);
    fuzz_must(rmq_record_encode(record, (size_t)size, &in) == size, "a copy can be encoded");
    fuzz_must(rmq_record_parse(record, (size_t)size, 1, &view) == RMQ_RECORD_OK, "what was encoded is a record");
    fuzz_must(view.properties_length == q->properties_length, "the encoder adds nothing");
    free(record);
}

static void copy_batch(void)
{
    struct rmq_pair_edit edits[EDITS];
    uint8_t texts[TEXTS];
    struct rmq_record_copy copies[COPIES_MAX];
    struct rmq_request requests[COPIES_MAX];
    uint8_t *records[COPIES_MAX];
    uint32_t count = 1 + (uint32_t)fuzz_dice(COPIES_MAX), room = (uint32_t)fuzz_dice(fuzz_dice(4) ? ARENA_MAX : 600);
    uint64_t begin = fuzz_dice(20);
    choose_texts(texts);
    choose_edits(edits);
    for (uint32_t i = 0; i < count; i++)
        records[i] = choose_copy(&copies[i]);
    struct rmq_copy_batch batch = {.edits = edits, .texts = texts, .arena = malloc(begin + room + 1), .arena_at = begin,
                                   .arena_end = begin + room, .edits_count = EDITS, .texts_bytes = TEXTS,
                                   .body_bytes_max = fuzz_dice(8) ? 1 << 20 : (uint32_t)fuzz_dice(300),
                                   .properties_bytes_max = fuzz_dice(8) ? RMQ_PROPERTIES_BYTES_MAX : (uint32_t)fuzz_dice(400)};
    uint32_t done = rmq_record_copies(copies, count, &batch, requests);
    fuzz_must(done <= count && (done == count) == !batch.needed, "what is left over needs room");
    no_room += done < count;
    for (uint32_t i = 0; i < done; i++) {
        fuzz_must(copies[i].cause < 16 && !copies[i].cause == (requests[i].kind == RMQ_APPEND_SINGLE), "made or refused");
        refused[copies[i].cause]++;
        if (copies[i].cause)
            continue;
        check_request(&requests[i], &batch, begin);
        made++;
    }
    for (uint32_t i = 0; i < count; i++)
        free(records[i]);
    free(batch.arena);
}

int main(int argc, char **argv)
{
    fuzz_must(argc == 4, "GOLDEN SEED INPUTS");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    long long inputs = atoll(argv[3]);
    for (long long n = 0; n < inputs; n++)
        copy_batch();
    printf("{\"inputs\": %lld, \"made\": %llu, \"no_room\": %llu", inputs, (unsigned long long)made, (unsigned long long)no_room);
    static const char *const causes[] = {"damaged", "inner_batch", "body", "nul", "properties", "edit"};
    static const uint32_t numbers[] = {RMQ_COPY_DAMAGED, RMQ_COPY_INNER_BATCH, RMQ_COPY_BODY, RMQ_COPY_NUL, RMQ_COPY_PROPERTIES,
                                       RMQ_COPY_EDIT};
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        printf(", \"%s\": %llu", causes[i], (unsigned long long)refused[numbers[i]]);
    printf("}\n");
    return 0;
}
