/* Times of sends, records of the timer topic, the messages of a slot, and TimerLog with wheel: GOLDEN SEED INPUTS.
 *
 * Each input is one send, some damaged records that go into a slot, and a log whose bytes are damaged before its recovery.
 */
#include "admission/admission_time.h"
#include "fuzz.h"
#include "timer/timer_files.h"
#include "timer/timer_slot.h"

enum { RECORDS = 6, UNITS = 40, FILES = 3, FILE_BYTES = 16 * RMQ_TIMER_UNIT_BYTES + RMQ_TIMER_BLANK_BYTES + 5, MESSAGES_MAX = 16 };

static const int64_t now_ms = 1800000000000;
static const uint64_t secret[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
static uint64_t later, passed, refused, full, timed, keyed, taken, left_out, cut, walked;

/* --- sends ------------------------------------------------------------------------------------------------- */

static uint32_t choose_value(char *text, uint32_t room)
{
    static const char *const odd[] = {"", "-", "+", "1.5", " 5", "abc", "9223372036854775808", "-9223372036854775809", "\xff\x00"};
    int64_t near = now_ms + (int64_t)fuzz_dice(200000) - 100000;
    if (!fuzz_dice(4))
        return (uint32_t)snprintf(text, room, "%s", odd[fuzz_dice(sizeof odd / sizeof *odd)]);
    return (uint32_t)snprintf(text, room, "%lld", (long long)(fuzz_dice(2) ? fuzz_edge() : fuzz_dice(2) ? near : (int64_t)fuzz_dice(90)));
}

static void ask_time(void)
{
    static const char *const names[] = {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_OUT_MS", "DELAY"};
    static const uint32_t precisions[] = {0, 100, 200, 500, 1000};
    struct rmq_send send = {0};
    struct rmq_admission_rule rule = {.precision_ms = precisions[fuzz_dice(5)], .delay_max_ms = 1 + (int64_t)fuzz_dice(86400000),
                                      .slot_messages_max = (int32_t)fuzz_dice(fuzz_dice(2) ? 100 : INT32_MAX)};
    struct rmq_admitted admitted = {0};
    char values[4][64], remark[RMQ_TIME_REMARK_MAX];
    send.reserved_count = (uint32_t)fuzz_dice(5);
    for (uint32_t i = 0; i < send.reserved_count; i++) {
        const char *name = names[fuzz_dice(fuzz_dice(3) ? 3 : 6)];
        send.reserved[i] = (struct rmq_reserved_pair){(const uint8_t *)name, (const uint8_t *)values[i], (uint32_t)strlen(name),
                                                      choose_value(values[i], sizeof values[i])};
    }
    uint32_t asked = rmq_time_asked(&send, &rule, now_ms, &admitted);
    later += asked == RMQ_TIME_LATER;
    passed += asked == RMQ_TIME_PASSED;
    if (asked == RMQ_TIME_LATER) {
        fuzz_must(admitted.out_ms % rule.precision_ms == 0, "a slot is on a step");
        fuzz_must(admitted.out_ms + rule.precision_ms > now_ms && admitted.out_ms < now_ms + rule.delay_max_ms, "a time is in range");
        rmq_admit_slot(&rule, (int64_t)fuzz_dice(300), (uint32_t)fuzz_dice(RMQ_CHANCES), &admitted);
        full += admitted.verdict == RMQ_ADMIT_REFUSE;
    } else if (asked >= RMQ_TIME_DISABLED) {
        admitted.time_fault = asked;
        refused++;
    }
    if (admitted.time_fault) {
        memset(remark, 'x', sizeof remark);
        rmq_time_remark(remark, &send, &rule, &admitted);
        fuzz_must(memchr(remark, 0, sizeof remark) != NULL && rmq_time_code(admitted.time_fault) != 0, "a refusal has its remark");
    }
}

/* --- a slot ------------------------------------------------------------------------------------------------ */

static int read_damaged(struct rmq_timer_record *record)
{
    const struct fuzz_input *golden = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint32_t length = golden->length;
    uint8_t *copy = malloc(length + 1);
    memcpy(copy, golden->bytes, length);
    if (fuzz_dice(2))
        length = fuzz_damage(copy, length);
    uint8_t *exact = malloc(length ? length : 1); /* bytes of their own, so that a read beyond them is a report */
    memcpy(exact, copy, length);
    int is_read = rmq_timer_record_read(exact, length, 1000, secret, record);
    free(copy);
    free(exact);
    return is_read && record->out_ms != RMQ_TIMER_NO_TIME;
}

static void fill_slot(void)
{
    int64_t slot_ms = (now_ms + fuzz_edge() % 100000000) / 1000 * 1000, before_ms = INT64_MIN;
    struct rmq_timer_slot *slot = rmq_timer_slot_open(slot_ms, 2 + (uint32_t)fuzz_dice(MESSAGES_MAX), fuzz_dice(RECORDS), secret);
    uint64_t keys[RECORDS];
    for (uint64_t unit = 0; unit < RECORDS; unit++) {
        struct rmq_timer_record record;
        if (!read_damaged(&record))
            continue;
        timed++;
        keyed += record.has_key != 0;
        fuzz_must(record.exact_ms > record.out_ms && record.exact_ms <= record.out_ms + 1000, "the exact time is in the step");
        uint32_t magic = record.is_delete ? RMQ_TIMER_DEFAULT | RMQ_TIMER_DELETE : RMQ_TIMER_DEFAULT;
        fuzz_must(!(fuzz_dice(2) ? rmq_timer_slot_found : rmq_timer_slot_add)(slot, unit, magic, &record), "there is memory");
        (void)rmq_timer_slot_deletes(slot, record.key);
    }
    uint32_t count = rmq_timer_slot_take(slot, fuzz_dice(2) ? INT64_MAX : now_ms, keys, RECORDS);
    taken += count;
    for (uint32_t i = 0; i < count; i++) {
        int64_t at_ms = rmq_timer_slot_exact_ms(slot, keys[i]);
        fuzz_must(at_ms >= before_ms && rmq_timer_slot_unit(keys[i]) < RECORDS, "messages are in order");
        before_ms = at_ms;
    }
    fuzz_must(!rmq_timer_slot_return(slot, keys, count), "there is memory");
    left_out += rmq_timer_slot_left_out(slot);
    rmq_timer_slot_walk_again(slot);
    (void)rmq_timer_slot_next_ms(slot);
    rmq_timer_slot_close(slot);
}

/* --- files ------------------------------------------------------------------------------------------------- */

/* Empties the places of the wheel and the chains that the units name. */
static void forget_units(struct rmq_timer_files *files)
{
    struct rmq_timer_unit unit;
    for (int64_t file = 0; file < FILES; file++)
        for (int64_t at = 0; at + RMQ_TIMER_UNIT_BYTES <= FILE_BYTES; at += RMQ_TIMER_UNIT_BYTES)
            if (rmq_timer_unit_at(files, file * FILE_BYTES + at, &unit) && unit.slot_ms >= 0) {
                uint64_t index = (uint64_t)unit.slot_ms / 1000 % RMQ_TIMER_SLOTS;
                memset(files->wheel + index * RMQ_TIMER_SLOT_BYTES, 0, RMQ_TIMER_SLOT_BYTES);
                files->chains[index] = (struct rmq_timer_chain){0};
            }
}

/* Units of stock have no seal. */
static void unseal(uint8_t **log)
{
    for (uint32_t i = 0; i < FILES; i++)
        for (uint32_t at = 0; at + RMQ_TIMER_UNIT_BYTES <= FILE_BYTES; at += RMQ_TIMER_UNIT_BYTES)
            memset(log[i] + at + RMQ_TIMER_UNIT_BYTES - 8, 0, 8);
}

static void walk_chains(struct rmq_timer_files *files, const int64_t *slots, uint32_t count)
{
    struct rmq_timer_unit unit;
    for (uint32_t i = 0; i < count; i++) {
        int64_t position = rmq_timer_last(files, slots[i]);
        while (rmq_timer_unit_at(files, position, &unit) && unit.previous < position) {
            position = unit.previous;
            walked++;
        }
    }
}

static void recover_log(uint8_t *wheel, struct rmq_timer_chain *chains, uint8_t **log)
{
    struct rmq_timer_files files = {.wheel = wheel, .log = log, .file_bytes = FILE_BYTES, .log_room = FILES * FILE_BYTES, .chains = chains,
                                    .file_count = FILES, .precision_ms = 1000, .coarsest_ms = 1000, .window_slots = 20};
    struct rmq_timer_unit unit;
    int64_t opened_ms, late_ms, slots[UNITS];
    for (uint32_t i = 0; i < FILES; i++)
        memset(log[i], 0, FILE_BYTES);
    uint32_t count = 0;
    while (count < UNITS) {
        int64_t slot_ms = slots[count] = now_ms + (int64_t)fuzz_dice(12) * 1000;
        unit = (struct rmq_timer_unit){.enqueue_ms = now_ms + (int64_t)fuzz_dice(5) * 1000, .slot_ms = slot_ms, .size = 100,
                                       .magic = RMQ_TIMER_DEFAULT | (uint32_t)fuzz_dice(8), .commit_log_offset = (int64_t)count * 100};
        if (rmq_timer_append(&files, &unit))
            count++;
        else if (!rmq_timer_is_full(&files) || files.log_end >= FILES * FILE_BYTES)
            break;
    }
    uint64_t written = files.log_end;
    for (uint32_t i = 0; i < count; i++)
        chains[slots[i] / 1000 % RMQ_TIMER_SLOTS] = (struct rmq_timer_chain){0};
    if (!fuzz_dice(3))
        unseal(log);
    if (fuzz_dice(4))
        fuzz_damage(log[fuzz_dice(FILES)], FILE_BYTES);
    struct rmq_timer_scan scan = {.sound_until = (int64_t)written, .open_ms = fuzz_dice(2) ? now_ms : 0};
    rmq_timer_scan_begin(&scan);
    while (!scan.is_over)
        rmq_timer_scan(&files, &scan, 1 + (uint64_t)fuzz_dice(UNITS));
    cut += files.log_end < written;
    fuzz_must(files.log_end <= FILES * FILE_BYTES && files.log_end == (uint64_t)scan.position, "the log ends in its files");
    fuzz_must(!(files.log_end < written) == !scan.is_damaged, "a log that was longer is damaged");
    if (!fuzz_dice(50)) {
        struct rmq_timer_wheel_check check;
        rmq_timer_check_wheel(&files, &scan, (int)fuzz_dice(2), &check);
        (void)rmq_timer_wheel_precision(&files);
    }
    rmq_timer_latest(&files, 0, &opened_ms, &late_ms);
    (void)rmq_timer_next_used(&files, now_ms, now_ms + (fuzz_dice(50) ? 20000 : (int64_t)RMQ_TIMER_SLOTS * 2000));
    walk_chains(&files, slots, count);
    if (count && rmq_timer_unit_at(&files, rmq_timer_last(&files, slots[0]), &unit) && unit.position + RMQ_TIMER_UNIT_BYTES == (int64_t)files.log_end)
        rmq_timer_drop_last(&files, &unit);
    forget_units(&files);
    for (uint32_t i = 0; i < count; i++) { /* those that damage has taken */
        chains[slots[i] / 1000 % RMQ_TIMER_SLOTS] = (struct rmq_timer_chain){0};
        memset(wheel + (uint64_t)(slots[i] / 1000 % RMQ_TIMER_SLOTS) * RMQ_TIMER_SLOT_BYTES, 0, RMQ_TIMER_SLOT_BYTES);
    }
}

int main(int argc, char **argv)
{
    fuzz_must(argc == 4, "GOLDEN SEED INPUTS");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    long long inputs = atoll(argv[3]);
    uint8_t *wheel = calloc(RMQ_TIMER_SLOTS, RMQ_TIMER_SLOT_BYTES), *log[FILES];
    struct rmq_timer_chain *chains = calloc(RMQ_TIMER_SLOTS, sizeof *chains);
    for (uint32_t i = 0; i < FILES; i++)
        log[i] = malloc(FILE_BYTES);
    for (long long n = 0; n < inputs; n++) {
        ask_time();
        if (n % 4 == 0)
            fill_slot();
        if (n % 64 == 0)
            recover_log(wheel, chains, log);
    }
    printf("{\"inputs\": %lld, \"later\": %llu, \"passed\": %llu, \"refused\": %llu, \"full\": %llu, \"timed\": %llu, \"keyed\": %llu, \"taken\": %llu, \"left_out\": %llu, \"cut\": %llu, \"walked\": %llu}\n",
           inputs, (unsigned long long)later, (unsigned long long)passed, (unsigned long long)refused, (unsigned long long)full,
           (unsigned long long)timed, (unsigned long long)keyed, (unsigned long long)taken, (unsigned long long)left_out,
           (unsigned long long)cut, (unsigned long long)walked);
    for (uint32_t i = 0; i < FILES; i++)
        free(log[i]);
    free(chains);
    free(wheel);
    return 0;
}
