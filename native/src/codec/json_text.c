#include "codec/json_text.h"

#include <string.h>

static int hex4(const uint8_t *at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = at[i], digit = c - '0';
        if (digit > 9) {
            digit = (c | 0x20) - 'a';
            if (digit > 5)
                return -1;
            digit += 10;
        }
        value = value << 4 | (int)digit;
    }
    return value;
}

static uint8_t *put_utf8(uint8_t *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (uint8_t)c;
    } else if (c < 0x800) {
        *to++ = (uint8_t)(0xc0 | c >> 6);
        *to++ = (uint8_t)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (uint8_t)(0xe0 | c >> 12);
        *to++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (c & 0x3f));
    } else {
        *to++ = (uint8_t)(0xf0 | c >> 18);
        *to++ = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        *to++ = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (c & 0x3f));
    }
    return to;
}

/* A surrogate without the other half becomes "?", as in the bytes of Java's strings. */
static const uint8_t *unescape_unicode(const uint8_t *at, const uint8_t *end, uint8_t **to)
{
    int unit = end - at >= 4 ? hex4(at) : -1;
    if (unit < 0)
        return NULL;
    at += 4;
    uint32_t c = (uint32_t)unit;
    if (unit >= 0xd800 && unit <= 0xdfff) {
        int low = unit <= 0xdbff && end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2) : -1;
        int is_pair = low >= 0xdc00 && low <= 0xdfff;
        c = is_pair ? 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00) : '?';
        at += is_pair ? 6 : 0;
    }
    *to = put_utf8(*to, c);
    return at;
}

int64_t rmq_json_unescape(uint8_t *text, uint32_t length) { return rmq_json_unescape_to(text, text, length); }

int64_t rmq_json_unescape_to(uint8_t *to, const uint8_t *text, uint32_t length)
{
    const uint8_t *at = text, *end = text + length, *from = to;
    while (at < end) {
        const uint8_t *slash = memchr(at, '\\', (size_t)(end - at));
        size_t run = (size_t)((slash ? slash : end) - at);
        if (to != at)
            memmove(to, at, run);
        to += run;
        if (!slash)
            break;
        at = slash + 1;
        if (at >= end)
            return -1;
        switch (*at++) {
        case '"': *to++ = '"'; break;
        case '\\': *to++ = '\\'; break;
        case '/': *to++ = '/'; break;
        case '\'': *to++ = '\''; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'v': *to++ = '\v'; break;
        case 'u':
            at = unescape_unicode(at, end, &to);
            if (!at)
                return -1;
            break;
        default: return -1;
        }
    }
    return to - from;
}
