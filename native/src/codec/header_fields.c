/* header_fields.c: fields of a header: JSON escapes undone, text, numbers and words (frame_header.h). */
#include <string.h>

#include "codec/frame_header.h"


/* --- unescaping ---------------------------------------------------------------------------------------- */

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

/* --- fields ------------------------------------------------------------------------------------------------ */

#define DIGITS_MAX 18 /* of a number that fits any reader's integer */
#define FIELD_BYTES_MAX 192 /* of a number or word with escapes */

static int is_text(const uint8_t *text, uint32_t length, const char *word)
{
    return length == strlen(word) && !memcmp(text, word, length);
}

int rmq_bare_is_text(const struct rmq_ext_entry *e)
{
    const uint8_t *text = e->value;
    uint32_t length = e->value_length, at = length && text[0] == '-';
    if (is_text(text, length, "true") || is_text(text, length, "false"))
        return 1;
    if (length == at || length - at > DIGITS_MAX || (text[at] == '0' && length > 1))
        return 0;
    while (at < length && text[at] >= '0' && text[at] <= '9')
        at++;
    return at == length;
}

int rmq_odd_text(const struct rmq_ext_entry *e, uint8_t *room, uint32_t room_bytes, const uint8_t **text, uint32_t *length)
{
    if (e->escaped == RMQ_TEXT_BARE)
        return rmq_bare_is_text(e);
    int64_t unescaped = e->value_length <= room_bytes ? rmq_json_unescape_to(room, e->value, e->value_length) : -1;
    *text = room;
    *length = unescaped < 0 ? 0 : (uint32_t)unescaped;
    return unescaped >= 0;
}

/* A number or word: escapes are undone in `room`, of FIELD_BYTES_MAX bytes. 0 = it is too long for one, or not well formed. */
static int short_text(const struct rmq_ext_entry *e, uint8_t *room, const uint8_t **text, uint32_t *length)
{
    *text = e->value;
    *length = e->value_length;
    return e->escaped != RMQ_TEXT_ESCAPED || rmq_odd_text(e, room, FIELD_BYTES_MAX, text, length);
}

int rmq_escaped_int32(const struct rmq_ext_entry *e, int32_t *out)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && rmq_text_int32(text, length, out);
}

int rmq_escaped_int64(const struct rmq_ext_entry *e, int64_t *out)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && rmq_text_int64(text, length, out);
}

int rmq_field_is(const struct rmq_ext_entry *e, const char *word)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && is_text(text, length, word);
}

int rmq_is_true(const struct rmq_ext_entry *e)
{
    static const char word[4] = {'t', 'r', 'u', 'e'};
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    if (!short_text(e, room, &text, &length) || length != sizeof word)
        return 0;
    for (uint32_t i = 0; i < sizeof word; i++)
        if ((text[i] | 0x20) != word[i])
            return 0;
    return 1;
}
