/* pull_filter.h: SQL92 conditions of pulls. A read worker copies a program once, verifies the copy and keeps it.
 *
 * What stays true: a program in `places` is whole, verified and this process's own, and of the slot and version beside it.
 */
#ifndef RMQ_PULL_FILTER_H
#define RMQ_PULL_FILTER_H

#include "filter/filter_program.h"
#include "reader/read_context.h"

/* Copies of programs, by slot: a later program takes the place of an earlier one. */
#define RMQ_FILTER_COPIES 256u
/* The work of one pull, about in bytes: some 2 ms of the worker's time. */
#define RMQ_FILTER_WORK_MAX (2u << 20)
/* So much costs a connection a unit of its share in a turn (turn_rules.h). */
#define RMQ_FILTER_WORK_OF_UNIT 512u
/* The time for which a pull is held when its records have to come from the disk. The kernel reads them meanwhile. */
#define RMQ_FILTER_DISK_MS 20

struct rmq_filter_place {
    uint32_t slot, version;
    struct rmq_filter_program *program; /* verified, and this process's own */
};

struct rmq_pull_filters {
    const struct rmq_read_context *context;
    struct rmq_filter_place *places; /* RMQ_FILTER_COPIES */
    void *room;                      /* RMQ_FILTER_PROGRAM_MAX bytes: of a copy that is not verified yet */
    uint8_t *text;                   /* expression of the pull at hand that came with JSON escapes */
};

struct rmq_pull;

int rmq_pull_filters_open(struct rmq_pull_filters *filters, const struct rmq_read_context *context);
void rmq_pull_filters_close(struct rmq_pull_filters *filters);
/* Finds the program of the pull's expression, or of its subscription of kind FILTER. 0 = control is asked. */
int rmq_filter_prepare(struct rmq_pull_filters *filters, struct rmq_pull *p);
/* 1 when a stored record matches. *work grows. */
int rmq_filter_wants(struct rmq_pull_filters *filters, const struct rmq_pull *p, const uint8_t *record, uint32_t size,
                     uint64_t *work);
#endif
