/* half_table.c: the table of open half messages. Twin: services/transactions/half_table.py, records.py. */
#include "services/half_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/property_pairs.h"
#include "codec/record.h"
#include "plane/ports_layout.h"
#include "plane/ring.h"

#define ROWS_MIN 1024
#define NUMBER_DIGITS_MAX 18
#define CHECKS_MAX 0xffff
#define IS(text, name) rmq_text_is(text, name, sizeof name - 1)

/* An eighth more at a time. realloc moves a large piece without a copy. */
static int reserve(struct rmq_half_table *t)
{
    if (t->count < t->capacity)
        return 0;
    uint64_t capacity = t->capacity + t->capacity / 8 + ROWS_MIN;
    struct rmq_half_row *rows = realloc(t->rows, capacity * sizeof *rows);
    if (!rows)
        return -ENOMEM;
    t->rows = rows;
    t->capacity = capacity;
    return 0;
}

static void shrink(struct rmq_half_table *t)
{
    uint64_t capacity = t->count + t->count / 8 + ROWS_MIN;
    struct rmq_half_row *rows = capacity < t->capacity ? realloc(t->rows, capacity * sizeof *rows) : NULL;
    if (!rows)
        return;
    t->rows = rows;
    t->capacity = capacity;
}

static void count_row(struct rmq_half_table *t, const struct rmq_half_row *row, int by)
{
    t->open += (uint64_t)by;
    if (!t->shares)
        return;
    rmq_half_add(&t->shares->hosts, row->keys.host, by);
    rmq_half_add(&t->shares->groups, row->keys.group, by);
}

static int append(struct rmq_half_table *t, const struct rmq_half_row *row)
{
    if (reserve(t))
        return -ENOMEM;
    t->rows[t->count++] = *row;
    if (row->state)
        count_row(t, row, 1);
    return 0;
}

int rmq_half_table_add(struct rmq_half_table *t, const struct rmq_half_row *row)
{
    return t->count && row->first <= t->rows[t->count - 1].first ? -EINVAL : append(t, row);
}

/* --- records -------------------------------------------------------------------------------------------------------------- */

/* -1 unless the text is a number of at most 18 digits. */
static int64_t number_of(struct rmq_text text)
{
    int64_t number = 0;
    if (!text.length || text.length > NUMBER_DIGITS_MAX)
        return -1;
    for (uint32_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return -1;
        number = number * 10 + (text.at[i] - '0');
    }
    return number;
}

int64_t rmq_half_first(uint32_t role, int64_t prepared_transaction_offset, int64_t queue_offset)
{
    uint64_t mark = (uint64_t)prepared_transaction_offset;
    int64_t first = (int64_t)rmq_mark_offset(mark);
    if (prepared_transaction_offset < 0 || rmq_mark_range(mark) != role || rmq_mark_lane(mark) || first > queue_offset)
        return queue_offset;
    return first;
}

/* A record with another queue offset than its unit is damaged: no checksum covers that field. A row of it could have a `first` above
 * those of all halves to come, and none of them could be added. */
static int parse(const struct rmq_held_record *record, const struct rmq_queue_unit *unit, int with_body,
                 struct rmq_record_view *view)
{
    return rmq_record_parse(record->at, (uint64_t)unit->size, with_body, view) == RMQ_RECORD_OK &&
           view->queue_offset == unit->queue_offset;
}

static void read_row(const struct rmq_half_table *t, const uint8_t *record, const struct rmq_record_view *view,
                     struct rmq_half_row *row)
{
    const uint8_t *properties = record + view->properties_at, *at = properties, *end = at + view->properties_length;
    int64_t immunity_s = -1, checks = -1;
    int was_prepared = 0;
    struct rmq_pair pair;
    while (rmq_next_pair(&at, end, &pair)) {
        if (IS(pair.name, "CHECK_IMMUNITY_TIME_IN_SECONDS"))
            immunity_s = number_of(pair.value);
        else if (IS(pair.name, "TRANSACTION_CHECK_TIMES"))
            checks = number_of(pair.value);
        else if (IS(pair.name, "TRAN_PREPARED_QUEUE_OFFSET"))
            was_prepared = 1;
    }
    *row = (struct rmq_half_row){
        .first = rmq_half_first(t->role, view->prepared_transaction_offset, view->queue_offset), .newest = view->queue_offset,
        .born_ms = view->born_time_ms, .state = RMQ_HALF_OPEN,
        .immunity_s = immunity_s < 0 ? RMQ_HALF_NO_IMMUNITY : immunity_s < INT32_MAX ? (int32_t)immunity_s : INT32_MAX,
        .checks = (uint16_t)(checks < 0 ? 0 : checks < CHECKS_MAX ? checks : CHECKS_MAX),
        .is_stock_copy = (uint8_t)((checks > 0 || was_prepared) && !view->prepared_transaction_offset),
        .keys = rmq_half_keys_of(t->secret, record + view->born_host_at, view->sys_flag & RMQ_SYS_BORN_HOST_V6, properties,
                                 view->properties_length),
    };
}

int rmq_half_table_arrive(struct rmq_half_table *t, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                          uint32_t count)
{
    int result = 0;
    for (uint32_t i = 0; i < count && !result; i++) {
        struct rmq_record_view view;
        struct rmq_half_row row;
        if (!parse(&records[i], &units[i], 0, &view) || view.prepared_transaction_offset)
            continue;
        read_row(t, records[i].at, &view, &row);
        row.is_stock_copy = 0;
        row.checks = 0;
        result = rmq_half_table_add(t, &row);
    }
    return result;
}

int rmq_half_table_stage_row(struct rmq_half_table *t, const struct rmq_half_row *row, const struct rmq_done_halves *done)
{
    struct rmq_half_row staged = *row;
    uint64_t at = (uint64_t)(row->newest - done->low);
    t->stock_copies += row->is_stock_copy;
    if (at < done->count && done->done[at]) {
        if (row->first == row->newest)
            return 0;
        staged.state = RMQ_HALF_ENDED;
    }
    return append(t, &staged);
}

int rmq_half_table_stage(struct rmq_half_table *t, const struct rmq_held_record *records, const struct rmq_queue_unit *units,
                         uint32_t count, const struct rmq_done_halves *done, int64_t *damaged)
{
    int wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rmq_record_view view;
        struct rmq_half_row row;
        if ((uint64_t)(units[i].queue_offset - done->low) >= done->count)
            break;
        if (!parse(&records[i], &units[i], 1, &view)) {
            damaged[wrong++] = units[i].queue_offset;
            continue;
        }
        read_row(t, records[i].at, &view, &row);
        if (rmq_half_table_stage_row(t, &row, done))
            return -ENOMEM;
    }
    return wrong;
}

/* --- staged rows ---------------------------------------------------------------------------------------------------------- */

static int by_first(const void *one, const void *other)
{
    const struct rmq_half_row *a = one, *b = other;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->newest < b->newest ? -1 : a->newest > b->newest;
}

static int is_in_order(const struct rmq_half_table *t)
{
    for (uint64_t i = 1; i < t->count; i++)
        if (by_first(&t->rows[i - 1], &t->rows[i]) > 0)
            return 0;
    return 1;
}

uint64_t rmq_half_table_settle(struct rmq_half_table *t)
{
    uint64_t replaced = 0;
    if (!is_in_order(t))
        qsort(t->rows, t->count, sizeof *t->rows, by_first);
    for (uint64_t i = 0; i + 1 < t->count; i++) {
        if (t->rows[i].first != t->rows[i + 1].first || !t->rows[i].state)
            continue;
        t->rows[i].state = RMQ_HALF_REPLACED;
        t->open--;
        replaced++;
    }
    return replaced;
}

void rmq_half_table_take_replaced(struct rmq_half_table *t, int64_t *replaced)
{
    for (uint64_t i = 0; i < t->count; i++) {
        if (t->rows[i].state != RMQ_HALF_REPLACED)
            continue;
        *replaced++ = t->rows[i].newest;
        t->rows[i].state = RMQ_HALF_ENDED;
    }
    rmq_half_table_compact(t);
}

/* --- shares --------------------------------------------------------------------------------------------------------------- */

static void replace(struct rmq_half_cells *to, const struct rmq_half_cells *from)
{
    for (int row = 0; row < 2; row++)
        for (uint32_t at = 0; at < RMQ_HALF_CELLS; at++)
            if (to->row[row][at] != from->row[row][at])
                rmq_store_relaxed(&to->row[row][at], from->row[row][at]);
}

int rmq_half_table_share(struct rmq_half_table *t, struct rmq_half_shares *shares)
{
    struct rmq_half_cells *cells = calloc(2, sizeof *cells);
    if (!cells)
        return -ENOMEM;
    for (uint64_t i = 0; i < t->count; i++) {
        if (!t->rows[i].state)
            continue;
        rmq_half_add(&cells[0], t->rows[i].keys.host, 1);
        rmq_half_add(&cells[1], t->rows[i].keys.group, 1);
    }
    replace(&shares->hosts, &cells[0]);
    replace(&shares->groups, &cells[1]);
    free(cells);
    t->shares = shares;
    return 0;
}

/* --- open halves ---------------------------------------------------------------------------------------------------------- */

uint64_t rmq_half_table_from(const struct rmq_half_table *t, int64_t first)
{
    uint64_t low = 0, high = t->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (t->rows[middle].first < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t rmq_half_table_place(const struct rmq_half_table *t, int64_t first)
{
    uint64_t at = rmq_half_table_from(t, first);
    return at < t->count && t->rows[at].first == first && t->rows[at].state ? (int64_t)at : -1;
}

void rmq_half_table_end(struct rmq_half_table *t, uint64_t place)
{
    count_row(t, &t->rows[place], -1);
    t->rows[place].state = RMQ_HALF_ENDED;
}

void rmq_half_table_compact(struct rmq_half_table *t)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->rows[i].state)
            t->rows[kept++] = t->rows[i];
    t->count = kept;
    shrink(t);
}

int64_t rmq_half_table_lowest(const struct rmq_half_table *t)
{
    int64_t lowest = -1;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->rows[i].state && (lowest < 0 || t->rows[i].newest < lowest))
            lowest = t->rows[i].newest;
    return lowest;
}

void rmq_half_table_free(struct rmq_half_table *t)
{
    free(t->rows);
    memset(t, 0, sizeof *t);
}
