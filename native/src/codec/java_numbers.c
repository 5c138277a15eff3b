#include "codec/java_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES 256u

/* Zeros of the digits that Character.digit accepts in a Java char; nine more follow each. */
static const uint16_t ZEROS[] = {
    0x30,   0x660,  0x6F0,  0x7C0,  0x966,  0x9E6,  0xA66,  0xAE6,  0xB66,  0xBE6,  0xC66,  0xCE6,  0xD66,
    0xDE6,  0xE50,  0xED0,  0xF20,  0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50,
    0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
};

static int digit_of(uint32_t point)
{
    for (size_t i = 0; i < sizeof ZEROS / sizeof *ZEROS; i++)
        if (point >= ZEROS[i] && point < ZEROS[i] + 10u)
            return (int)(point - ZEROS[i]);
    return -1;
}

static int is_tail(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* The digit at *at, which moves behind it. -1 = no digit is there. */
static int next_digit(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    if (*p < 0x80) {
        *at = p + 1;
        return *p >= '0' && *p <= '9' ? *p - '0' : -1;
    }
    if (*p >= 0xC2 && *p < 0xE0 && end - p >= 2 && is_tail(p[1])) {
        *at = p + 2;
        return digit_of((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu));
    }
    if (*p >= 0xE0 && *p < 0xF0 && end - p >= 3 && is_tail(p[1]) && is_tail(p[2]) && (*p != 0xE0 || p[1] >= 0xA0)) {
        *at = p + 3;
        return digit_of((p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu));
    }
    return -1;
}

int rmq_java_integer(const uint8_t *text, uint32_t length, int64_t low, int64_t high, int64_t *out)
{
    const uint8_t *at = text, *end = text + length;
    int is_negative = length && *at == '-';
    uint64_t limit = is_negative ? (uint64_t)0 - (uint64_t)low : (uint64_t)high, number = 0;
    if (length && (*at == '-' || *at == '+'))
        at++;
    if (at == end)
        return 0;
    while (at < end) {
        int digit = next_digit(&at, end);
        if (digit < 0 || number > (limit - (uint64_t)digit) / 10)
            return 0;
        number = number * 10 + (uint64_t)digit;
    }
    *out = (int64_t)(is_negative ? (uint64_t)0 - number : number);
    return 1;
}

int rmq_java_true(const uint8_t *text, uint32_t length)
{
    return length == 4 && (text[0] | 0x20) == 't' && (text[1] | 0x20) == 'r' && (text[2] | 0x20) == 'u' && (text[3] | 0x20) == 'e';
}

static int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static int is_hex(uint8_t byte) { return is_digit(byte) || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f'); }

static const uint8_t *skip(const uint8_t *at, const uint8_t *end, int (*wanted)(uint8_t))
{
    while (at < end && wanted(*at))
        at++;
    return at;
}

/* Behind an exponent of the letter at `at`, with at least one digit. NULL = there is none. */
static const uint8_t *exponent_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *digits = at + 1;
    if (digits < end && (*digits == '+' || *digits == '-'))
        digits++;
    const uint8_t *stop = skip(digits, end, is_digit);
    return stop > digits ? stop : NULL;
}

/* Behind the number's last byte without a type suffix; NULL = no number is there. */
static const uint8_t *number_end(const uint8_t *at, const uint8_t *end)
{
    int is_hexadecimal = end - at >= 2 && at[0] == '0' && (at[1] | 0x20) == 'x';
    int (*wanted)(uint8_t) = is_hexadecimal ? is_hex : is_digit;
    const uint8_t *whole = is_hexadecimal ? at + 2 : at, *stop = skip(whole, end, wanted);
    int64_t digits = stop - whole;
    if (stop < end && *stop == '.') {
        const uint8_t *fraction = stop + 1;
        stop = skip(fraction, end, wanted);
        digits += stop - fraction;
    }
    if (!digits)
        return NULL;
    if (stop < end && (*stop | 0x20) == (is_hexadecimal ? 'p' : 'e'))
        return exponent_end(stop, end);
    return is_hexadecimal ? NULL : stop;
}

static int text_is(const uint8_t *at, const uint8_t *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - at) == length && !memcmp(at, word, length);
}

static int converted(const uint8_t *from, size_t length, double *out)
{
    char near[COPY_BYTES], *copy = length < sizeof near ? near : malloc(length + 1);
    if (!copy)
        return 0;
    memcpy(copy, from, length);
    copy[length] = 0;
    *out = strtod(copy, NULL);
    if (copy != near)
        free(copy);
    return 1;
}

int rmq_java_double(const uint8_t *text, uint32_t length, double *out)
{
    const uint8_t *from = text, *end = text + length;
    while (from < end && *from <= ' ')
        from++;
    while (end > from && end[-1] <= ' ')
        end--;
    const uint8_t *at = from;
    int is_negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (text_is(at, end, "NaN") || text_is(at, end, "Infinity")) {
        *out = *at == 'N' ? (double)NAN : is_negative ? -(double)INFINITY : (double)INFINITY;
        return 1;
    }
    const uint8_t *stop = number_end(at, end);
    if (!stop)
        return 0;
    const uint8_t *rest = stop;
    if (rest < end && ((*rest | 0x20) == 'f' || (*rest | 0x20) == 'd'))
        rest++;
    return rest == end && converted(from, (size_t)(stop - from), out);
}
