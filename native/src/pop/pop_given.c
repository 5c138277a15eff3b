#include "pop/pop_given.h"

#include <stdlib.h>

#include "plane/tables_layout.h"

struct pop {
    uint32_t place, window_id;
    int64_t start_offset, pop_time_ms;
};

struct answer {
    uint64_t first; /* number of its first pop */
    uint32_t serial, count;
};

struct rmq_pop_given {
    uint64_t pops_end;
    uint32_t serial, current; /* the last number; the answer whose pops follow */
    struct answer answers[RMQ_POP_GIVEN_ANSWERS];
    struct pop pops[RMQ_POP_GIVEN_POPS];
};

struct rmq_pop_given *rmq_pop_given_open(void) { return calloc(1, sizeof(struct rmq_pop_given)); }

void rmq_pop_given_close(struct rmq_pop_given *given) { free(given); }

uint32_t rmq_pop_given_serial(struct rmq_pop_given *given) { return ++given->serial; }

void rmq_pop_given_begin(struct rmq_pop_given *given, uint32_t serial)
{
    given->current = serial;
    given->answers[serial % RMQ_POP_GIVEN_ANSWERS] = (struct answer){.first = given->pops_end, .serial = serial};
}

void rmq_pop_given_add(struct rmq_pop_given *given, uint32_t place, uint32_t window_id, int64_t start_offset, int64_t pop_time_ms)
{
    given->pops[given->pops_end++ % RMQ_POP_GIVEN_POPS] = (struct pop){place, window_id, start_offset, pop_time_ms};
    given->answers[given->current % RMQ_POP_GIVEN_ANSWERS].count++;
}

static int is_known(const struct rmq_pop_given *given, const struct answer *answer, uint32_t serial)
{
    return answer->serial == serial && given->pops_end - answer->first <= RMQ_POP_GIVEN_POPS;
}

uint32_t rmq_pop_given_place(const struct rmq_pop_given *given, uint32_t serial)
{
    const struct answer *answer = &given->answers[serial % RMQ_POP_GIVEN_ANSWERS];
    return is_known(given, answer, serial) && answer->count ? given->pops[answer->first % RMQ_POP_GIVEN_POPS].place : RMQ_NONE;
}

uint32_t rmq_pop_given_unsent(struct rmq_pop_given *given, struct rmq_pop_windows *windows, uint32_t serial)
{
    struct answer *answer = &given->answers[serial % RMQ_POP_GIVEN_ANSWERS];
    uint32_t returned = 0;
    if (!is_known(given, answer, serial))
        return 0;
    for (uint32_t i = 0; i < answer->count; i++) {
        const struct pop *pop = &given->pops[(answer->first + i) % RMQ_POP_GIVEN_POPS];
        const struct rmq_pop_window *window = rmq_pop_window_at(windows, pop->place);
        if (window && window->id == pop->window_id)
            returned += (uint32_t)rmq_pop_unsent(windows, pop->place, pop->start_offset, pop->pop_time_ms);
    }
    answer->count = 0; /* a read worker and its replacement may both tell */
    return returned;
}
