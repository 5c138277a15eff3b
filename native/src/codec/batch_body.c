#include "codec/batch_body.h"

#include <string.h>
#include <strings.h>

#include "codec/pair_separators.h"

static int is_for_single_messages(const uint8_t *name, size_t n, const uint8_t *value, size_t length)
{
    if (name[0] == 'D')
        return n == 5 && !memcmp(name, "DELAY", 5) && !(length == 1 && value[0] == '0');
    return n == 8 && !memcmp(name, "TRAN_MSG", 8) && length == 4 && !strncasecmp((const char *)value, "true", 4);
}

/* 0, or the reason why the pairs of an element may not be stored. Recovery would take the last record of the log for torn, or
 * the pairs ask for what only a single message may have. The reader and control check single messages. Stock ignores a timer in an
 * element: that of the whole batch counts. */
static uint32_t check_pairs(const uint8_t *at, uint32_t length)
{
    const uint8_t *end = at + length;
    while (at < end) {
        const uint8_t *split = rmq_find_mark(at, end), *stop = split;
        if (split == at || split == end || *split != 1)
            return RMQ_CAUSE_BATCH_PAIRS;
        do
            stop = rmq_find_mark(stop + 1, end);
        while (stop < end && *stop == 1); /* a value may hold 01 */
        if (stop < end && !*stop)
            return RMQ_CAUSE_BATCH_PAIRS;
        if ((at[0] == 'D' || at[0] == 'T') &&
            is_for_single_messages(at, (size_t)(split - at), split + 1, (size_t)(stop - split - 1)))
            return RMQ_CAUSE_BATCH_ALONE;
        at = stop < end ? stop + 1 : end;
    }
    return 0;
}

uint32_t rmq_batch_measure(uint8_t *body, uint32_t length, uint64_t record_bytes_max, struct rmq_record_in *in,
                           struct rmq_batch_size *out)
{
    uint8_t *at = body, *end = body + length;
    memset(out, 0, sizeof *out);
    while (at < end) {
        uint32_t bytes = rmq_batch_element_take(at, (uint32_t)(end - at), in);
        if (!bytes)
            return RMQ_CAUSE_BATCH_ELEMENT;
        uint32_t cause = check_pairs(in->properties[1], in->properties_length[1]);
        if (cause)
            return cause;
        int64_t size = rmq_record_size(in);
        if (size < 0 || (uint64_t)size > record_bytes_max || out->bytes + (uint64_t)size > INT32_MAX)
            return RMQ_CAUSE_MESSAGE_SIZE;
        out->bytes += (uint64_t)size;
        out->messages++;
        at += bytes;
    }
    return out->messages ? 0 : RMQ_CAUSE_BATCH_ELEMENT;
}

uint32_t rmq_batch_bytes_of(const uint8_t *body, uint32_t length, uint32_t count)
{
    uint32_t at = 0, step;
    while (count-- && at < length && (step = rmq_batch_element_bytes(body + at, length - at)))
        at += step;
    return at;
}
