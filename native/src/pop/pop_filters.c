#include "pop/pop_filters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/name_hash.h"

#define CELLS (4 * RMQ_POP_FILTERS_MAX)

struct rmq_pop_filters {
    uint64_t secret[2];
    uint32_t count, bytes;
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

static void clear(struct rmq_pop_filters *filters)
{
    for (uint32_t i = 0; i < filters->count; i++) {
        free(filters->filters[i].program);
        free(filters->filters[i].text);
    }
    memset(filters->cells, 0, sizeof filters->cells);
    filters->count = filters->bytes = 0;
}

void rmq_pop_filters_close(struct rmq_pop_filters *filters)
{
    if (filters)
        clear(filters);
    free(filters);
}

static uint32_t cell_of(const struct rmq_pop_filters *filters, const uint8_t *text, uint32_t length)
{
    uint32_t at = rmq_name_hash(filters->secret, text, length) % CELLS;
    for (; filters->cells[at]; at = (at + 1) % CELLS) {
        const struct rmq_pop_filter *filter = &filters->filters[filters->cells[at] - 1];
        if (filter->text_length == length && !memcmp(filter->text, text, length))
            break;
    }
    return at;
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
    if (filters->count == RMQ_POP_FILTERS_MAX || filters->bytes + filter.bytes > RMQ_POP_FILTERS_BYTES_MAX)
        clear(filters);
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
    filters->filters[filters->count++] = filter;
    filters->cells[cell_of(filters, text, length)] = (uint16_t)filters->count;
    filters->bytes += filter.bytes;
    return 0;
}

uint32_t rmq_pop_filters_count(const struct rmq_pop_filters *filters) { return filters->count; }
