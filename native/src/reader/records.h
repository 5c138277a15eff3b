/* records.h: answers that name records of the log (RMQ_VERDICT_RECORDS). The frame is made of the answerer's bytes and of slices
 * of mapped log pages, so that no body is copied. Pulls map the log through the same reader of queues.
 *
 * What stays true:
 * - An answer goes out as a whole or not at all: every range is mapped and held before the first byte of it is put.
 * - Between two answers no range is held here. Output holds what it sends.
 */
#ifndef RMQ_RECORDS_H
#define RMQ_RECORDS_H

#include "plane/asks.h"
#include "queue/queue_reader.h"
#include "reader/output.h"

struct rmq_record_range {
    struct rmq_file_map *map;
    const uint8_t *at;
    uint32_t on_disk; /* perhaps */
};

struct rmq_records {
    struct rmq_read_context *context;
    struct rmq_outputs *outputs;
    struct rmq_queue_reader queues;
    struct rmq_record_range ranges[RMQ_RECORD_PIECES_MAX]; /* of the answer at hand */
    uint32_t range_count;
};

int rmq_records_open(struct rmq_records *records, struct rmq_outputs *outputs); /* 0 or -ENOMEM */
void rmq_records_close(struct rmq_records *records); /* after every output is forgotten */

/* The verdict's frame, or the answer that it names for the case that a record cannot be sent. `note`: of the frame, NULL = its
 * answerer wants to know nothing. */
void rmq_records_send(struct rmq_records *records, struct rmq_connection *c, const struct rmq_verdict *v,
                      const struct rmq_note *note);
#endif
