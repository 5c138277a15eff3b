/* sent_halves.c: half messages of producers. Twin: services/transactions/records.py. */
#include "sent_halves.h"

#include <string.h>

static const char IMMUNITY[] = "CHECK_IMMUNITY_TIME_IN_SECONDS";

uint32_t rmq_sent_halves(const struct rmq_held_record *records, const struct rmq_queue_unit *units, uint32_t count, uint32_t *next,
                         int64_t *queue_offsets, int64_t *born_ms)
{
    uint32_t found = 0;
    for (; *next < count; (*next)++) {
        struct rmq_record_view view;
        const uint8_t *at = records[*next].at;
        if (rmq_record_parse(at, (uint64_t)units[*next].size, 0, &view) != RMQ_RECORD_OK || view.prepared_transaction_offset)
            continue;
        if (memmem(at + view.properties_at, view.properties_length, IMMUNITY, sizeof IMMUNITY - 1))
            break;
        queue_offsets[found] = view.queue_offset;
        born_ms[found++] = view.born_time_ms;
    }
    return found;
}
