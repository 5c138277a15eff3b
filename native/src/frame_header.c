#include "frame_header.h"

#include <string.h>

#include "bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BINARY_FIXED 21

int rmq_text_int64(const uint8_t *text, uint32_t length, int64_t *out)
{
    uint32_t at = length && text[0] == '-';
    if (length == at || length - at > 19)
        return 0;
    uint64_t value = 0;
    for (uint32_t i = at; i < length; i++) {
        unsigned digit = text[i] - (unsigned)'0';
        if (digit > 9)
            return 0;
        value = value * 10 + digit; /* 19 digits stay below 2^64 */
    }
    if (value > (uint64_t)INT64_MAX + at)
        return 0;
    *out = at ? (int64_t)(0 - value) : (int64_t)value;
    return 1;
}

int rmq_text_int32(const uint8_t *text, uint32_t length, int32_t *out)
{
    unsigned digit = length == 1 ? text[0] - (unsigned)'0' : 10;
    if (digit <= 9) { /* most are one digit */
        *out = (int32_t)digit;
        return 1;
    }
    int64_t value;
    if (!rmq_text_int64(text, length, &value) || value < INT32_MIN || value > INT32_MAX)
        return 0;
    *out = (int32_t)value;
    return 1;
}

/* --- binary ------------------------------------------------------------------------------------------- */

static struct rmq_ext_entry *next_entry(struct rmq_frame_header *out)
{
    if (out->ext_count == RMQ_EXT_ENTRIES_MAX) {
        out->unusual = 1;
        return NULL;
    }
    return &out->ext[out->ext_count++];
}

/* A null takes the place of an earlier value of its name, as in Java's map. Policy code handles such frames. */
static void take_null(struct rmq_frame_header *out, const uint8_t *key, uint32_t length)
{
    for (uint32_t i = 0; i < out->ext_count; i++)
        if (out->ext[i].key_length == length && !memcmp(out->ext[i].key, key, length))
            out->unusual = 1;
}

static int parse_binary(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    if (end - at < BINARY_FIXED)
        return RMQ_HEADER_MALFORMED;
    out->code = (int16_t)rmq_get16(at);
    out->version = (int16_t)rmq_get16(at + 3);
    out->opaque = (int32_t)rmq_get32(at + 5);
    out->flag = (int32_t)rmq_get32(at + 9);
    uint32_t remark = rmq_get32(at + 13);
    at += 17;
    if (remark > (uint32_t)(end - at) || (uint32_t)(end - at) - remark < 4)
        return RMQ_HEADER_MALFORMED;
    at += remark;
    uint32_t ext = rmq_get32(at);
    at += 4;
    if (ext > (uint32_t)(end - at))
        return RMQ_HEADER_MALFORMED;
    end = at + ext;
    out->has_ext = ext != 0;
    while (at < end) {
        if (end - at < 6)
            return RMQ_HEADER_MALFORMED;
        uint32_t key_length = rmq_get16(at);
        const uint8_t *key = at + 2;
        if (key_length > 32767 || key_length + 4 > (uint32_t)(end - key))
            return RMQ_HEADER_MALFORMED;
        uint32_t value_length = rmq_get32(key + key_length);
        const uint8_t *value = key + key_length + 4;
        if (value_length > (uint32_t)(end - value))
            return RMQ_HEADER_MALFORMED;
        at = value + value_length;
        if (!value_length || !key_length) { /* null in Java */
            take_null(out, key, key_length);
            continue;
        }
        struct rmq_ext_entry *entry = next_entry(out);
        if (entry)
            *entry = (struct rmq_ext_entry){key, value, value_length, (uint16_t)key_length, 0};
    }
    return 0;
}

/* --- JSON --------------------------------------------------------------------------------------------- */

struct text {
    const uint8_t *at;
    uint32_t length;
    uint16_t escaped;
};

static inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* First quote or backslash. */
static inline const uint8_t *find_special(const uint8_t *at, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    for (; end - at >= 16; at += 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *)at);
        unsigned hit = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(chunk, quote), _mm_cmpeq_epi8(chunk, slash)));
        if (hit)
            return at + __builtin_ctz(hit);
    }
#endif
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* `at` is behind the opening quote; returns behind the closing one, or NULL. */
static const uint8_t *parse_string(const uint8_t *at, const uint8_t *end, struct text *out)
{
    out->at = at;
    out->escaped = 0;
    for (;;) {
        at = find_special(at, end);
        if (at >= end)
            return NULL;
        if (*at == '"') {
            out->length = (uint32_t)(at - out->at);
            return at + 1;
        }
        out->escaped = 1;
        if (end - at < 2)
            return NULL;
        at += 2;
    }
}

/* Number, true, false, null: the bytes up to a delimiter. */
static const uint8_t *parse_bare(const uint8_t *at, const uint8_t *end, struct text *out)
{
    out->at = at;
    out->escaped = 0;
    while (at < end && *at != ',' && *at != '}' && *at != ']' && *at != ' ' && *at != '\n' && *at != '\r' && *at != '\t') {
        uint8_t c = *at | 0x20; /* -> lower case; digits, '-', '+', '.' stay */
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || *at == '-' || *at == '+' || *at == '.'))
            return NULL;
        at++;
    }
    out->length = (uint32_t)(at - out->at);
    return out->length ? at : NULL;
}

static int is_literal(const struct text *t, const char *word)
{
    return t->length == strlen(word) && !memcmp(t->at, word, t->length);
}

static int bare_is_value(const struct text *t)
{
    uint8_t c = t->at[0];
    return c == '-' || (c >= '0' && c <= '9') || is_literal(t, "true") || is_literal(t, "false") || is_literal(t, "null");
}

/* Skips an object or array without looking for sense in it; `at` is at its opening bracket. */
static const uint8_t *skip_nested(const uint8_t *at, const uint8_t *end)
{
    uint8_t closing[RMQ_JSON_DEPTH_MAX];
    int depth = 0;
    while (at < end) {
        uint8_t c = *at++;
        if (c == '"') {
            struct text ignored;
            at = parse_string(at, end, &ignored);
            if (!at)
                return NULL;
        } else if (c == '{' || c == '[') {
            if (depth == RMQ_JSON_DEPTH_MAX)
                return NULL;
            closing[depth++] = c == '{' ? '}' : ']';
        } else if (c == '}' || c == ']') {
            if (closing[--depth] != c)
                return NULL;
            if (!depth)
                return at;
        }
    }
    return NULL;
}

/* Key and colon; returns the place of the value. */
static inline const uint8_t *parse_key(const uint8_t *at, const uint8_t *end, struct text *key)
{
    if (at >= end || *at != '"')
        return NULL;
    at = parse_string(at + 1, end, key);
    if (!at)
        return NULL;
    at = skip_space(at, end);
    if (at >= end || *at != ':')
        return NULL;
    at = skip_space(at + 1, end);
    return at < end ? at : NULL;
}

/* Behind a value: 1 = another member follows at *at, 0 = the object ended, -1 = broken. */
static inline int next_member(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = skip_space(*at, end);
    if (p >= end || (*p != ',' && *p != '}'))
        return -1;
    int more = *p == ',';
    *at = more ? skip_space(p + 1, end) : p + 1;
    return more;
}

static const uint8_t *parse_ext(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    out->has_ext = 1;
    out->ext_count = 0; /* of two ext objects the last one counts, as in Java's reader */
    at = skip_space(at + 1, end);
    if (at < end && *at == '}')
        return at + 1;
    for (;;) {
        struct text key, value;
        at = parse_key(at, end, &key);
        if (!at)
            return NULL;
        int drop = 0;
        if (*at == '"') {
            at = parse_string(at + 1, end, &value);
        } else if (*at == '{' || *at == '[') {
            at = skip_nested(at, end);
            out->unusual = drop = 1;
        } else {
            at = parse_bare(at, end, &value);
            if (at && !bare_is_value(&value))
                return NULL;
            drop = at && is_literal(&value, "null");
            if (drop)
                take_null(out, key.at, key.length);
        }
        if (!at)
            return NULL;
        if (key.escaped || key.length > UINT16_MAX)
            out->unusual = drop = 1;
        struct rmq_ext_entry *entry = drop ? NULL : next_entry(out);
        if (entry)
            *entry = (struct rmq_ext_entry){key.at, value.at, value.length, (uint16_t)key.length, value.escaped};
        int more = next_member(&at, end);
        if (more < 0)
            return NULL;
        if (!more)
            return at;
    }
}

static int set_number(const struct text *key, const struct text *value, struct rmq_frame_header *out)
{
    int32_t *to = NULL;
    switch (key->length) {
    case 4:
        to = !memcmp(key->at, "code", 4) ? &out->code : !memcmp(key->at, "flag", 4) ? &out->flag : NULL;
        break;
    case 6:
        to = !memcmp(key->at, "opaque", 6) ? &out->opaque : NULL;
        break;
    case 7:
        to = !memcmp(key->at, "version", 7) ? &out->version : NULL;
        break;
    default:
        break;
    }
    if (!to || is_literal(value, "null"))
        return 1;
    return rmq_text_int32(value->at, value->length, to);
}

static int parse_json(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    at = skip_space(at, end);
    if (at >= end || *at != '{')
        return RMQ_HEADER_MALFORMED;
    at = skip_space(at + 1, end);
    int more = at < end && *at == '}' ? 0 : 1;
    if (!more)
        at++;
    while (more) {
        struct text key, value = {0};
        at = parse_key(at, end, &key);
        if (!at)
            return RMQ_HEADER_MALFORMED;
        if (*at == '"') {
            at = parse_string(at + 1, end, &value);
        } else if (*at == '{' && key.length == 9 && !memcmp(key.at, "extFields", 9)) {
            at = parse_ext(at, end, out);
        } else if (*at == '{' || *at == '[') {
            at = skip_nested(at, end);
        } else {
            at = parse_bare(at, end, &value);
            if (at && !bare_is_value(&value))
                return RMQ_HEADER_MALFORMED;
        }
        if (!at || (value.length && !set_number(&key, &value, out)))
            return RMQ_HEADER_MALFORMED;
        more = next_member(&at, end);
        if (more < 0)
            return RMQ_HEADER_MALFORMED;
    }
    return skip_space(at, end) == end ? 0 : RMQ_HEADER_MALFORMED;
}

int rmq_frame_header_parse(const uint8_t *frame, uint32_t length, struct rmq_frame_header *out)
{
    if (length < 8)
        return RMQ_HEADER_SHORT;
    uint32_t word = rmq_get32(frame + 4);
    out->code = out->flag = out->opaque = out->version = 0;
    out->header_length = word & 0xffffff;
    out->ext_count = 0;
    out->serialise = (uint8_t)(word >> 24);
    out->unusual = out->has_ext = out->reserved = 0;
    if (out->header_length > length - 8)
        return RMQ_HEADER_LENGTH;
    const uint8_t *at = frame + 8, *end = at + out->header_length;
    if (out->serialise == RMQ_SERIALISE_BINARY)
        return parse_binary(at, end, out);
    if (out->serialise == RMQ_SERIALISE_JSON)
        return parse_json(at, end, out);
    return RMQ_HEADER_TYPE;
}

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

static const uint8_t *unescape_unicode(const uint8_t *at, const uint8_t *end, uint8_t **to)
{
    int unit = end - at >= 4 ? hex4(at) : -1;
    at += 4;
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return NULL;
    uint32_t c = (uint32_t)unit;
    if (unit >= 0xd800 && unit <= 0xdbff) {
        if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
            return NULL;
        int low = hex4(at + 2);
        at += 6;
        if (low < 0xdc00 || low > 0xdfff)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
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
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
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
