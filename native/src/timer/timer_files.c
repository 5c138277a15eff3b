#include "timer/timer_files.h"

#include "base/bytes.h"
#include "codec/record.h"

#define SIZE_AT 0
#define PREVIOUS_AT 4
#define MAGIC_AT 12
#define ENQUEUE_AT 16
#define DELAY_AT 24
#define OFFSET_AT 28
#define RECORD_BYTES_AT 36
#define HASH_AT 40
#define SEAL_AT 44
#define MAGICS (RMQ_TIMER_DEFAULT | RMQ_TIMER_ROLL | RMQ_TIMER_DELETE)

/* Of a slot. */
#define TIME_AT 0
#define FIRST_AT 8
#define LAST_AT 16
#define COUNT_AT 24
#define SLOT_MAGIC_AT 28

static int64_t floor_to(int64_t time_ms, int64_t step_ms) { return time_ms - time_ms % step_ms; }

struct rmq_timer_place rmq_timer_place(const struct rmq_timer_files *f, int64_t out_ms, int64_t write_ms, int64_t open_ms,
                                       uint32_t is_delete)
{
    int64_t step = f->precision_ms, slots = f->window_slots, asked_ms = floor_to(out_ms, step);
    int64_t beyond_ms = asked_ms - write_ms - slots * step;
    struct rmq_timer_place place = {asked_ms, RMQ_TIMER_DEFAULT, 0};
    if (beyond_ms >= 0 && asked_ms > open_ms) {
        place.magic |= RMQ_TIMER_ROLL;
        place.slot_ms = write_ms + (beyond_ms < slots / 3 * step ? slots / 2 : slots) * step;
    }
    if (place.slot_ms < open_ms)
        place.slot_ms = open_ms;
    if (is_delete)
        place.magic |= RMQ_TIMER_DELETE;
    return place;
}

static uint32_t index_of(const struct rmq_timer_files *f, int64_t slot_ms)
{
    return (uint32_t)(slot_ms / f->precision_ms % RMQ_TIMER_SLOTS);
}

static uint32_t round_of(const struct rmq_timer_files *f, int64_t slot_ms)
{
    return (uint32_t)(slot_ms / f->precision_ms / RMQ_TIMER_SLOTS) + 1;
}

static uint8_t *slot_at(const struct rmq_timer_files *f, int64_t slot_ms)
{
    return f->wheel + (uint64_t)index_of(f, slot_ms) * RMQ_TIMER_SLOT_BYTES;
}

/* The chain of a slot, NULL while the place is another slot's. */
static struct rmq_timer_chain *chain_of(const struct rmq_timer_files *f, int64_t slot_ms)
{
    struct rmq_timer_chain *chain = &f->chains[index_of(f, slot_ms)];
    return chain->round == round_of(f, slot_ms) ? chain : NULL;
}

int64_t rmq_timer_last(const struct rmq_timer_files *f, int64_t slot_ms)
{
    const struct rmq_timer_chain *chain = chain_of(f, slot_ms);
    return chain ? chain->last : RMQ_TIMER_NO_UNIT;
}

int32_t rmq_timer_count(const struct rmq_timer_files *f, int64_t slot_ms)
{
    const struct rmq_timer_chain *chain = chain_of(f, slot_ms);
    return chain ? chain->count : 0;
}

static int64_t time_of(uint32_t index, const struct rmq_timer_chain *chain)
{
    return ((int64_t)chain->round - 1) * RMQ_TIMER_SLOTS + index;
}

/* More than a round: the clock has jumped. Each place of the wheel holds one slot of any round. */
static int64_t first_of_all(const struct rmq_timer_files *f, int64_t from_ms, int64_t to_ms)
{
    int64_t first_ms = -1;
    for (uint32_t i = 0; i < RMQ_TIMER_SLOTS; i++) {
        const struct rmq_timer_chain *chain = &f->chains[i];
        int64_t slot_ms = time_of(i, chain) * f->precision_ms;
        if (chain->round && slot_ms >= from_ms && slot_ms < to_ms && (first_ms < 0 || slot_ms < first_ms) &&
            chain->last != RMQ_TIMER_NO_UNIT)
            first_ms = slot_ms;
    }
    return first_ms;
}

int64_t rmq_timer_next_used(const struct rmq_timer_files *f, int64_t from_ms, int64_t to_ms)
{
    if (to_ms - from_ms > (int64_t)RMQ_TIMER_SLOTS * f->precision_ms)
        return first_of_all(f, from_ms, to_ms);
    for (int64_t slot_ms = from_ms; slot_ms < to_ms; slot_ms += f->precision_ms)
        if (rmq_timer_last(f, slot_ms) != RMQ_TIMER_NO_UNIT)
            return slot_ms;
    return -1;
}

/* --- the log ---------------------------------------------------------------------------------------------- */

static uint8_t *bytes_at(const struct rmq_timer_files *f, int64_t position, uint64_t count)
{
    if (position < (int64_t)f->log_begin)
        return NULL;
    uint64_t from_begin = (uint64_t)position - f->log_begin, file = from_begin / f->file_bytes;
    if (file >= f->file_count || f->file_bytes - from_begin % f->file_bytes < count)
        return NULL;
    return f->log[file] + from_begin % f->file_bytes;
}

static int64_t file_end(const struct rmq_timer_files *f, int64_t position)
{
    return position - position % (int64_t)f->file_bytes + (int64_t)f->file_bytes;
}

/* Twin: timer_log.seal. Each word is mixed by steps that can be undone, so one bit that differs changes the seal. */
static uint64_t seal(const uint8_t *at, int64_t position)
{
    uint64_t mixed = (uint64_t)position + 1;
    for (int i = PREVIOUS_AT; i < SEAL_AT; i += 8) {
        mixed = (mixed ^ rmq_get64(at + i)) * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 32;
    }
    return mixed ? mixed : 1;
}

int rmq_timer_unit_at(const struct rmq_timer_files *f, int64_t position, struct rmq_timer_unit *unit)
{
    const uint8_t *at = bytes_at(f, position, RMQ_TIMER_UNIT_BYTES);
    if (!at || rmq_get32(at + SIZE_AT) != RMQ_TIMER_UNIT_BYTES || rmq_get32(at + MAGIC_AT) > MAGICS)
        return 0;
    uint64_t sealed = rmq_get64(at + SEAL_AT);
    if (sealed && sealed != seal(at, position))
        return 0;
    *unit = (struct rmq_timer_unit){
        .position = position,
        .previous = (int64_t)rmq_get64(at + PREVIOUS_AT),
        .enqueue_ms = (int64_t)rmq_get64(at + ENQUEUE_AT),
        .commit_log_offset = (int64_t)rmq_get64(at + OFFSET_AT),
        .magic = rmq_get32(at + MAGIC_AT),
        .size = (int32_t)rmq_get32(at + RECORD_BYTES_AT),
        .topic_hash = (int32_t)rmq_get32(at + HASH_AT),
        .is_sealed = sealed != 0,
    };
    unit->slot_ms = (int64_t)((uint64_t)unit->enqueue_ms + (uint64_t)(int64_t)(int32_t)rmq_get32(at + DELAY_AT));
    return 1;
}

static uint64_t units_per_file(const struct rmq_timer_files *f)
{
    return (f->file_bytes - RMQ_TIMER_BLANK_BYTES) / RMQ_TIMER_UNIT_BYTES;
}

uint64_t rmq_timer_number(const struct rmq_timer_files *f, int64_t position)
{
    return (uint64_t)position / f->file_bytes * units_per_file(f) + (uint64_t)position % f->file_bytes / RMQ_TIMER_UNIT_BYTES;
}

int64_t rmq_timer_position(const struct rmq_timer_files *f, uint64_t number)
{
    return (int64_t)(number / units_per_file(f) * f->file_bytes + number % units_per_file(f) * RMQ_TIMER_UNIT_BYTES);
}

int rmq_timer_unit_of(const struct rmq_timer_files *f, int64_t commit_log_offset, struct rmq_timer_unit *unit)
{
    uint64_t low = rmq_timer_number(f, (int64_t)f->log_begin), high = rmq_timer_number(f, (int64_t)f->log_end);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (!rmq_timer_unit_at(f, rmq_timer_position(f, middle), unit))
            return 0;
        if (unit->commit_log_offset == commit_log_offset)
            return 1;
        if (unit->commit_log_offset < commit_log_offset)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Bytes of the newest file from the log's end on, NULL if it is full or there is none. */
static uint8_t *end_of_log(const struct rmq_timer_files *f)
{
    return bytes_at(f, (int64_t)f->log_end, RMQ_TIMER_UNIT_BYTES + RMQ_TIMER_BLANK_BYTES);
}

int rmq_timer_is_full(struct rmq_timer_files *f)
{
    if (end_of_log(f))
        return 0;
    uint8_t *at = bytes_at(f, (int64_t)f->log_end, RMQ_TIMER_BLANK_BYTES);
    if (at && f->log_end % f->file_bytes) {
        rmq_put64(at + 4, 0);
        rmq_put32(at + 12, RMQ_MAGIC_BLANK);
        rmq_put32(at, (uint32_t)(file_end(f, (int64_t)f->log_end) - (int64_t)f->log_end));
        f->log_end = (uint64_t)file_end(f, (int64_t)f->log_end);
    }
    return 1;
}

static void put_fields(uint8_t *at, const struct rmq_timer_unit *unit)
{
    rmq_put64(at + PREVIOUS_AT, (uint64_t)unit->previous);
    rmq_put32(at + MAGIC_AT, unit->magic);
    rmq_put64(at + ENQUEUE_AT, (uint64_t)unit->enqueue_ms);
    rmq_put32(at + DELAY_AT, (uint32_t)(unit->slot_ms - unit->enqueue_ms));
    rmq_put64(at + OFFSET_AT, (uint64_t)unit->commit_log_offset);
    rmq_put32(at + RECORD_BYTES_AT, (uint32_t)unit->size);
    rmq_put32(at + HASH_AT, (uint32_t)unit->topic_hash);
    rmq_put64(at + SEAL_AT, seal(at, unit->position));
}

/* A slot of another time is empty. Its time comes last: until then the slot is still the old one. */
static void begin_slot(const struct rmq_timer_files *f, uint8_t *slot, int64_t slot_ms, int64_t position)
{
    rmq_put64(slot + FIRST_AT, (uint64_t)position);
    rmq_put64(slot + LAST_AT, (uint64_t)position);
    rmq_put64(slot + COUNT_AT, 0);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    RMQ_CRASH("timer-slot-begun");
    rmq_put64(slot + TIME_AT, (uint64_t)(slot_ms / f->precision_ms));
}

/* Makes a unit the last one of its slot in memory. */
static struct rmq_timer_chain *extend(const struct rmq_timer_files *f, const struct rmq_timer_unit *unit)
{
    struct rmq_timer_chain *chain = &f->chains[index_of(f, unit->slot_ms)];
    if (chain->round != round_of(f, unit->slot_ms) || chain->last == RMQ_TIMER_NO_UNIT)
        *chain = (struct rmq_timer_chain){.round = round_of(f, unit->slot_ms)};
    chain->last = unit->position;
    chain->count += unit->magic & RMQ_TIMER_DELETE ? -1 : 1;
    return chain;
}

int rmq_timer_append(struct rmq_timer_files *f, struct rmq_timer_unit *unit)
{
    uint8_t *at = end_of_log(f);
    if (!at || f->log_end + RMQ_TIMER_UNIT_BYTES + RMQ_TIMER_BLANK_BYTES > f->log_room)
        return 0;
    unit->position = (int64_t)f->log_end;
    unit->previous = rmq_timer_last(f, unit->slot_ms);
    put_fields(at, unit);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    RMQ_CRASH("timer-unit-filled");
    rmq_put32(at + SIZE_AT, RMQ_TIMER_UNIT_BYTES);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    RMQ_CRASH("timer-unit-appended");
    uint8_t *slot = slot_at(f, unit->slot_ms);
    if (unit->previous == RMQ_TIMER_NO_UNIT)
        begin_slot(f, slot, unit->slot_ms, unit->position);
    else
        rmq_put64(slot + LAST_AT, (uint64_t)unit->position);
    RMQ_CRASH("timer-slot-moved");
    rmq_put32(slot + COUNT_AT, (uint32_t)extend(f, unit)->count);
    f->log_end += RMQ_TIMER_UNIT_BYTES;
    return 1;
}

uint32_t rmq_timer_wheel_precision(const struct rmq_timer_files *f)
{
    struct rmq_timer_unit unit;
    int64_t newest = RMQ_TIMER_NO_UNIT;
    uint32_t found = 0;
    for (uint32_t i = 0; i < RMQ_TIMER_SLOTS; i++) {
        const uint8_t *slot = f->wheel + (uint64_t)i * RMQ_TIMER_SLOT_BYTES;
        int64_t time = (int64_t)rmq_get64(slot + TIME_AT), last = (int64_t)rmq_get64(slot + LAST_AT);
        if (time <= 0 || last <= newest || !rmq_timer_unit_at(f, last, &unit) || unit.slot_ms < time ||
            unit.slot_ms % time || unit.slot_ms / time > UINT32_MAX)
            continue;
        newest = last;
        found = (uint32_t)(unit.slot_ms / time);
    }
    return found;
}

/* --- recovery --------------------------------------------------------------------------------------------- */

static int is_blank(const struct rmq_timer_files *f, int64_t position)
{
    const uint8_t *at = bytes_at(f, position, RMQ_TIMER_BLANK_BYTES);
    return at && rmq_get32(at) == (uint32_t)(file_end(f, position) - position) && !rmq_get64(at + 4) &&
           rmq_get32(at + 12) == RMQ_MAGIC_BLANK;
}

/* A unit leads back to an older one, unless its bytes are torn. */
static int is_sound(const struct rmq_timer_unit *unit)
{
    return unit->magic & RMQ_TIMER_DEFAULT && unit->slot_ms >= 0 && unit->slot_ms <= RMQ_TIMER_TIME_MAX_MS &&
           unit->previous < unit->position && unit->previous >= RMQ_TIMER_NO_UNIT && unit->size > 0 && unit->commit_log_offset >= 0;
}

/* 1 if the unit follows the last one of its slot. Of a slot before open_ms earlier units may lie before the scan. */
static int follows(const struct rmq_timer_files *f, struct rmq_timer_scan *scan, const struct rmq_timer_unit *unit)
{
    const struct rmq_timer_chain *chain = chain_of(f, unit->slot_ms);
    if (chain)
        return unit->previous == chain->last;
    if (unit->previous == RMQ_TIMER_NO_UNIT)
        return 1;
    if (unit->previous < (int64_t)f->log_begin && unit->slot_ms >= scan->open_ms && scan->cut == RMQ_TIMER_NO_UNIT)
        scan->cut = unit->position;
    return unit->previous < (int64_t)f->log_begin || (unit->previous < scan->begin && unit->slot_ms < scan->open_ms);
}

void rmq_timer_scan_begin(struct rmq_timer_scan *scan)
{
    *scan = (struct rmq_timer_scan){
        .begin = scan->begin, .sound_until = scan->sound_until, .open_ms = scan->open_ms, .is_of_stock = scan->is_of_stock,
        .position = scan->begin, .cut = RMQ_TIMER_NO_UNIT,
    };
}

void rmq_timer_scan(struct rmq_timer_files *f, struct rmq_timer_scan *scan, uint64_t limit)
{
    struct rmq_timer_unit unit;
    for (; limit && !scan->is_over; limit--) {
        if (rmq_timer_unit_at(f, scan->position, &unit) && is_sound(&unit) && follows(f, scan, &unit)) {
            extend(f, &unit);
            scan->position += RMQ_TIMER_UNIT_BYTES;
            scan->units++;
            scan->unsealed += !unit.is_sealed;
        } else if (is_blank(f, scan->position)) {
            scan->position = file_end(f, scan->position);
        } else {
            scan->is_over = 1;
            scan->is_damaged = scan->position < scan->sound_until;
            f->log_end = (uint64_t)scan->position;
        }
    }
}

/* The first unit of a chain. */
static int64_t first_of(const struct rmq_timer_files *f, int64_t position)
{
    struct rmq_timer_unit unit;
    while (rmq_timer_unit_at(f, position, &unit) && unit.previous >= (int64_t)f->log_begin && unit.previous < position)
        position = unit.previous;
    return position;
}

static void write_slot(const struct rmq_timer_files *f, uint32_t index)
{
    const struct rmq_timer_chain *chain = &f->chains[index];
    uint8_t *slot = f->wheel + (uint64_t)index * RMQ_TIMER_SLOT_BYTES;
    memset(slot, 0, RMQ_TIMER_SLOT_BYTES);
    if (!chain->round || chain->last == RMQ_TIMER_NO_UNIT)
        return;
    rmq_put64(slot + FIRST_AT, (uint64_t)first_of(f, chain->last));
    rmq_put64(slot + LAST_AT, (uint64_t)chain->last);
    rmq_put32(slot + COUNT_AT, (uint32_t)chain->count);
    rmq_put64(slot + TIME_AT, (uint64_t)time_of(index, chain));
}

/* 1 if the position is that of the first unit of the slot, or of one that retention has taken. */
static int is_first(const struct rmq_timer_files *f, int64_t position, int64_t time)
{
    struct rmq_timer_unit unit;
    if (position >= 0 && position < (int64_t)f->log_begin)
        return 1;
    return rmq_timer_unit_at(f, position, &unit) && unit.slot_ms / f->precision_ms == time && unit.previous < (int64_t)f->log_begin;
}

/* A slot of the wheel whose chain does not end where the slot says. Which of both is wrong? */
static void look_for(const struct rmq_timer_files *f, const struct rmq_timer_scan *scan, const uint8_t *slot,
                     struct rmq_timer_wheel_check *found)
{
    int64_t last = (int64_t)rmq_get64(slot + LAST_AT);
    struct rmq_timer_unit unit;
    if (last >= 0 && last < (int64_t)f->log_begin)
        found->lost = last;
    if (last >= scan->begin && rmq_timer_unit_at(f, last, &unit) && !unit.is_sealed &&
        unit.slot_ms / f->precision_ms != (int64_t)rmq_get64(slot + TIME_AT))
        found->contradicts = last;
}

static void check_slot(const struct rmq_timer_files *f, const struct rmq_timer_scan *scan, uint32_t index, int mends,
                       struct rmq_timer_wheel_check *found)
{
    const struct rmq_timer_chain *chain = &f->chains[index];
    const uint8_t *slot = f->wheel + (uint64_t)index * RMQ_TIMER_SLOT_BYTES;
    int64_t open = scan->open_ms / f->precision_ms, time = (int64_t)rmq_get64(slot + TIME_AT), of_chain = time_of(index, chain);
    int64_t last = (int64_t)rmq_get64(slot + LAST_AT);
    int is_used = chain->round && chain->last != RMQ_TIMER_NO_UNIT && of_chain >= open, is_of = is_used && time == of_chain;
    if (!is_used && (time < open || last == RMQ_TIMER_NO_UNIT))
        return;
    int is_same = is_of && last == chain->last && is_first(f, (int64_t)rmq_get64(slot + FIRST_AT), time) &&
                  !rmq_get32(slot + SLOT_MAGIC_AT);
    int is_counted = is_of && (int32_t)rmq_get32(slot + COUNT_AT) == chain->count;
    if (is_same && is_counted)
        return;
    if (time >= open && (!is_of || last != chain->last))
        look_for(f, scan, slot, found);
    int64_t newest = is_used ? chain->last : last; /* a death may have left the slots of later units behind */
    int are_counts_ours = !scan->is_of_stock && !scan->unsealed; /* a recovery of stock leaves counts that are too low */
    if (newest < scan->sound_until && (!is_same || are_counts_ours)) {
        found->differs += !is_same;
        found->miscounted += is_same;
        int64_t slot_ms = (is_used ? of_chain : time) * (int64_t)f->precision_ms;
        found->first_ms = found->first_ms < 0 || slot_ms < found->first_ms ? slot_ms : found->first_ms;
    }
    if (mends)
        write_slot(f, index);
}

void rmq_timer_check_wheel(struct rmq_timer_files *f, const struct rmq_timer_scan *scan, int mends,
                           struct rmq_timer_wheel_check *found)
{
    *found = (struct rmq_timer_wheel_check){.first_ms = -1, .lost = RMQ_TIMER_NO_UNIT, .contradicts = RMQ_TIMER_NO_UNIT};
    for (uint32_t i = 0; i < RMQ_TIMER_SLOTS; i++)
        check_slot(f, scan, i, mends, found);
}

void rmq_timer_latest(const struct rmq_timer_files *f, int64_t from, int64_t *opened_ms, int64_t *late_ms)
{
    struct rmq_timer_unit unit;
    *opened_ms = *late_ms = -1;
    for (int64_t position = from; position < (int64_t)f->log_end;) {
        if (!rmq_timer_unit_at(f, position, &unit)) {
            position = file_end(f, position);
            continue;
        }
        if (unit.slot_ms == unit.enqueue_ms - 1 && unit.slot_ms > *opened_ms)
            *opened_ms = unit.slot_ms;
        if (unit.slot_ms <= unit.enqueue_ms && unit.slot_ms > *late_ms)
            *late_ms = unit.slot_ms;
        position += RMQ_TIMER_UNIT_BYTES;
    }
}

void rmq_timer_drop_last(struct rmq_timer_files *f, const struct rmq_timer_unit *unit)
{
    struct rmq_timer_chain *chain = chain_of(f, unit->slot_ms);
    uint8_t *at = bytes_at(f, unit->position, RMQ_TIMER_UNIT_BYTES);
    if (chain && chain->last == unit->position) {
        chain->last = unit->previous;
        chain->count -= unit->magic & RMQ_TIMER_DELETE ? -1 : 1;
    }
    if (at)
        memset(at, 0, RMQ_TIMER_UNIT_BYTES);
    f->log_end = (uint64_t)unit->position;
}
