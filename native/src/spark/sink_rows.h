/* sink_rows.h: rows of Arrow columns as the body of a batch (request 320), properties and UNIQ_KEYs included.
 *
 * Columns are Arrow's own buffers (binary or utf8 with 32-bit offsets), borrowed for the call. The element of a row equals the
 * one that the Python SDK makes of the same message: KEYS, TAGS, headers in their order, UNIQ_KEY, WAIT=true.
 */
#ifndef RMQ_SINK_ROWS_H
#define RMQ_SINK_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
/* Element i is data[offsets[first + i] .. offsets[first + i + 1]), null where bit first + i of `valid` (NULL = all set) is 0.
 * offsets NULL: the column is not there. */
struct rmq_sink_text {
    const uint8_t *data;
    const int32_t *offsets;
    const uint8_t *valid;
    int64_t first;
};

struct rmq_sink_rows {
    struct rmq_sink_text value;
    struct rmq_sink_text key;
    struct rmq_sink_text tags;
    struct rmq_sink_text header_names;   /* row i has elements header_offsets[header_first + i] .. [header_first + i + 1) */
    struct rmq_sink_text header_values;
    const int32_t *header_offsets;       /* NULL: no headers */
    const uint8_t *header_valid;
    int64_t header_first;
    uint32_t element_bytes_max;          /* body, properties and 22 bytes */
    uint32_t properties_bytes_max;
};

/* Source of UNIQ_KEYs: hex of address, pid and a number of the process; then ms of the month and a counter. */
struct rmq_sink_keys {
    char prefix[56];
    uint32_t prefix_length;
    uint32_t month_ms;
    uint32_t counter;
    uint32_t reserved;
};

#define RMQ_SINK_VALUE 0
#define RMQ_SINK_KEY 1
#define RMQ_SINK_TAGS 2
#define RMQ_SINK_HEADERS 3

#define RMQ_SINK_ROOM -1     /* not a fault: the next element needs `size` bytes, fewer are left */
#define RMQ_SINK_EMPTY 1     /* null or no bytes where some are needed */
#define RMQ_SINK_MARK 2      /* holds a byte 0, 1 or 2, which properties cannot carry */
#define RMQ_SINK_LARGE 3     /* over the limit */

struct rmq_sink_fault {
    int64_t row;
    int32_t problem;             /* 0: none */
    uint32_t column;
    uint64_t size;
    uint64_t limit;
};

/* Appends elements of rows index[0..count) (NULL: rows 0..count) to `to`, which has `room` bytes. Returns the rows encoded and
 * adds their bytes to `*used`; why it stopped before `count` says `fault`. */
int64_t rmq_sink_encode(const struct rmq_sink_rows *rows, const int32_t *index, int64_t count, struct rmq_sink_keys *keys,
                        uint8_t *to, uint64_t room, uint64_t *used, struct rmq_sink_fault *fault);

/* java.lang.String.hashCode of each element, 0 for null. */
void rmq_sink_hashes(const struct rmq_sink_text *text, int64_t count, int32_t *hashes);
/* cdef-end */

_Static_assert(sizeof(struct rmq_sink_fault) == 32, "rmq_sink_fault");

#endif
