#include "metrics/series_text.h"

#include <string.h>

#include "base/number_text.h"

static char *put(char *at, const char *bytes, uint64_t length) {
    memcpy(at, bytes, length);
    return at + length;
}

uint64_t rmq_series_text(char *out, uint64_t room, const struct rmq_series_column *columns, uint32_t column_count,
                         const char *labels, const uint64_t *ends, const int64_t *values, uint64_t rows,
                         uint64_t *row) {
    char *at = out;
    uint64_t fixed = 0, i = *row;
    for (uint32_t c = 0; c < column_count; c++)
        fixed += columns[c].head_bytes + columns[c].tail_bytes + RMQ_SERIES_VALUE_MAX;
    for (; i < rows; i++) {
        const char *text = labels + (i ? ends[i - 1] : 0);
        uint64_t length = (uint64_t)(labels + ends[i] - text);
        if (fixed + length * column_count > room - (uint64_t)(at - out))
            break;
        for (uint32_t c = 0; c < column_count; c++) {
            at = put(at, columns[c].head, columns[c].head_bytes);
            at = put(at, text, length);
            at = put(at, columns[c].tail, columns[c].tail_bytes);
            at = (char *)rmq_put_decimal((uint8_t *)at, values[i * column_count + c]);
            *at++ = '\n';
        }
    }
    *row = i;
    return (uint64_t)(at - out);
}
