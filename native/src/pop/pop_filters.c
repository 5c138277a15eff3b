#include "pop/pop_filters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/name_hash.h"

#define CELLS (4 * RMQ_POP_FILTERS_MAX)

struct rmq_pop_filters {
    uint64_t secret[2];
    uint32_t first, count, bytes; /* first: the oldest. The others follow it, around the end of the array */
    uint16_t cells[CELLS]; /* number of the filter + 1, 0: free */
    struct rmq_pop_filter filters[RMQ_POP_FILTERS_MAX];
};

struct rmq_pop_filters *rmq_pop_filters_open(const uint64_t *secret)
{
    struct rmq_pop_filters *filters = calloc(1, sizeof *filters);
    if (filters)
        memcpy(filters->secret, secret, sizeof filters->secret);
    return filters;
}

static uint32_t home_of(const struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length)
{
    return (uint32_t)(rmq_name_hash(filters->secret, text, length) % CELLS);
}

static uint32_t cell_of(const struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length)
{
    uint32_t at = home_of(filters, text, length);
    for (; filters->cells[at]; at = (at + 1) % CELLS) {
        const struct rmq_pop_filter *filter = &filters->filters[filters->cells[at] - 1];
        if (filter->text_length == length && !memcmp(filter->text, text, length))
            break;
    }
    return at;
}

/* Frees a cell. Those behind it that a search would not find any more move forward. */
static void free_cell(struct rmq_pop_filters *filters, uint32_t free)
{
    for (uint32_t at = (free + 1) % CELLS; filters->cells[at]; at = (at + 1) % CELLS) {
        const struct rmq_pop_filter *filter = &filters->filters[filters->cells[at] - 1];
        uint32_t home = home_of(filters, filter->text, filter->text_length);
        if ((at - home) % CELLS < (at - free) % CELLS)
            continue; /* it lies between */
        filters->cells[free] = filters->cells[at];
        free = at;
    }
    filters->cells[free] = 0;
}

static void forget_oldest(struct rmq_pop_filters *filters)
{
    struct rmq_pop_filter *oldest = &filters->filters[filters->first];
    free_cell(filters, cell_of(filters, oldest->text, oldest->text_length));
    filters->first = (filters->first + 1) % RMQ_POP_FILTERS_MAX;
    filters->count--;
    filters->bytes -= oldest->bytes;
    free(oldest->program);
    free(oldest->text);
}

void rmq_pop_filters_close(struct rmq_pop_filters *filters)
{
    while (filters && filters->count)
        forget_oldest(filters);
    free(filters);
}

const struct rmq_pop_filter *rmq_pop_filter_find(const struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length)
{
    uint32_t number = filters->cells[cell_of(filters, text, length)];
    return number ? &filters->filters[number - 1] : NULL;
}

int rmq_pop_filter_put(struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length,
                       const struct rmq_subscription_copy *wanted, const void *program, uint32_t program_bytes)
{
    struct rmq_pop_filter filter = {.wanted = *wanted, .text_length = length, .bytes = length + program_bytes};
    filter.text = malloc(length ? length : 1);
    filter.program = program_bytes ? malloc(program_bytes) : NULL;
    if (!filter.text || (program_bytes && !filter.program)) {
        free(filter.text);
        free(filter.program);
        return -ENOMEM;
    }
    memcpy(filter.text, text, length);
    if (program_bytes)
        memcpy(filter.program, program, program_bytes);
    if (wanted->kind == RMQ_SUBSCRIPTION_FILTER && (!program_bytes || rmq_filter_verify(filter.program, program_bytes) < 0)) {
        free(filter.text);
        free(filter.program);
        return -EINVAL;
    }
    while (filters->count == RMQ_POP_FILTERS_MAX || (filters->count && filters->bytes + filter.bytes > RMQ_POP_FILTERS_BYTES_MAX))
        forget_oldest(filters);
    uint32_t number = (filters->first + filters->count++) % RMQ_POP_FILTERS_MAX;
    filters->cells[cell_of(filters, text, length)] = (uint16_t)(number + 1);
    filters->filters[number] = filter;
    filters->bytes += filter.bytes;
    return 0;
}

uint32_t rmq_pop_filters_count(const struct rmq_pop_filters *filters) { return filters->count; }
