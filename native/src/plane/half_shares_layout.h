/* half_shares_layout.h: how many half messages are open, of all producers, of each host and of each producer group. Readers refuse
 * sends of half messages by it (half_shares.h).
 *
 * `transactions` alone writes, and counts a half when it reads it in the half queue. Halves behind `arrived` have arrived in the
 * queue, and count as open for all producers together. A dead worker leaves `open` and `arrived` of its last whole turn. Its cells
 * may be a turn ahead of them, and one half may be counted in one row alone. Its replacement counts from the log again and
 * replaces one cell after the other, `arrived` last.
 */
#ifndef RMQ_HALF_SHARES_LAYOUT_H
#define RMQ_HALF_SHARES_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_HALF_CELLS 65536 /* half_shares.h takes 16 bits of a hash for each row */

/* A key has one cell in each row, by a hash with the plane's secret. Its count is the smaller one of both cells: it is never too
 * small, and only a key that shares each of its cells with other keys has a larger one. So no number of names needs more memory. */
struct rmq_half_cells {
    uint32_t row[2][RMQ_HALF_CELLS];
};

struct rmq_half_shares {
    uint64_t open;               /* halves in the worker's table */
    uint64_t arrived;            /* half-queue offset behind the last half in the table; before the first run: no half below it is open */
    uint8_t pad[48];
    struct rmq_half_cells hosts, groups;
};
/* cdef-end */
#endif
