/* timer_record.h: the fields of a record of the timer topic that say when and where it goes. Twin: timer/timer_record.py. */
#ifndef RMQ_TIMER_RECORD_H
#define RMQ_TIMER_RECORD_H

#include "codec/record.h"

/* cdef-begin */
#define RMQ_TIMER_NO_TIME -1

struct rmq_timer_record {
    int64_t out_ms;              /* TIMER_OUT_MS; RMQ_TIMER_NO_TIME: the record has none, so it can never be due */
    int64_t exact_ms;            /* millisecond of the delivery, in (out_ms, out_ms + step], with the step of its admission */
    int64_t queue_offset;
    int64_t store_time_ms;
    int64_t born_time_ms;
    int64_t prepared_transaction_offset;
    int32_t topic_hash;          /* Java's hash of REAL_TOPIC, 0 without one */
    uint32_t is_delete;          /* 1 = it has TIMER_DEL_UNIQKEY */
    uint32_t has_key;
    uint32_t target_key_length;
    uint32_t rolls;              /* TIMER_ROLL_TIMES, 0 without it */
    uint32_t reserved;
    uint64_t key[2];             /* hashed with the secret: of a delete the key that it names, else REAL_TOPIC, "+", UNIQ_KEY */
    const uint8_t *target_key;   /* in the record: UNIQ_KEY of the message that a delete names. NULL if it names none of its own
                                  * REAL_TOPIC */
};

/* Reads the record of `size` bytes. 0 = it is damaged. `coarsest_ms`: the largest precision that any waiting record was admitted by.
 * The key is found if `secret` is not NULL (16 bytes that no client knows). */
int rmq_timer_record_read(const uint8_t *record, uint32_t size, uint32_t coarsest_ms, const uint64_t *secret,
                          struct rmq_timer_record *out);
/* Raises latest_ms[0] to the latest slot of delivered messages, and latest_ms[1] to a time not before that of rolled ones, among the
 * records with marks of `range` that begin in [from, limit) of one mapped log file (published_marks.h has the other arguments). A
 * message that came too late counts with its own slot. */
void rmq_timer_latest_copies(uint32_t range, const uint8_t *file, uint64_t from, uint64_t limit, uint64_t end, int64_t file_start,
                             uint32_t precision_ms, int64_t *latest_ms);
/* SipHash-2-4 with 128 bits, as the keys are hashed. */
void rmq_siphash128(const uint8_t *bytes, uint64_t count, const uint64_t *secret, uint64_t *out);
/* cdef-end */

_Static_assert(sizeof(struct rmq_timer_record) == 96, "rmq_timer_record");
#endif
