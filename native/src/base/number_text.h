/* number_text.h: numbers as decimal text, read and written. C only. */
#ifndef RMQ_NUMBER_TEXT_H
#define RMQ_NUMBER_TEXT_H

#include <stdint.h>
#include <string.h>

#define RMQ_DECIMAL_MAX 20 /* bytes of the longest number */

/* Writes at most RMQ_DECIMAL_MAX bytes; returns where they end. */
static inline uint8_t *rmq_put_decimal(uint8_t *to, int64_t value)
{
    uint8_t text[RMQ_DECIMAL_MAX];
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t at = sizeof text;
    do
        text[--at] = (uint8_t)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        text[--at] = '-';
    memcpy(to, text + at, sizeof text - at);
    return to + (sizeof text - at);
}

/* Java's Integer.parseInt for ASCII digits with an optional sign; 0 for any other text. */
static inline int32_t rmq_small_number(const uint8_t *text, uint32_t length)
{
    int64_t value = 0;
    uint32_t i = 0;
    int negative = length > 1 && text[0] == '-';
    if (length > 1 && (text[0] == '-' || text[0] == '+'))
        i = 1;
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        value = value * 10 + (text[i] - '0');
        if (value > INT32_MAX)
            return 0;
    }
    return (int32_t)(negative ? -value : value);
}

#endif
