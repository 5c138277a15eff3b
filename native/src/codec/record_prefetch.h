/* Prefetch of the cache lines of a record that a reader of its properties needs. C only. */
#ifndef RMQ_RECORD_PREFETCH_H
#define RMQ_RECORD_PREFETCH_H

#include <stdint.h>

#define RMQ_LINE_BYTES 64

/* Two lines of the head, and the last `tail_bytes`, where topic and properties are. The bytes may be unmapped. */
static inline void rmq_prefetch_record(const uint8_t *record, int64_t size, int64_t tail_bytes)
{
    __builtin_prefetch(record);
    __builtin_prefetch(record + RMQ_LINE_BYTES);
    __builtin_prefetch(record + size - 1);
    for (int64_t back = RMQ_LINE_BYTES; back < tail_bytes && size > back + RMQ_LINE_BYTES; back += RMQ_LINE_BYTES)
        __builtin_prefetch(record + size - back - 1);
}

#endif
