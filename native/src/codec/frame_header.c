#include "codec/frame_header.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/json_text.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BINARY_FIXED 21
#define BINARY_NUMBERS 13 /* code, language, version, opaque, flag */
#define DIGITS_MAX 19
#define NUMBER_BYTES_MAX 63 /* of a number with an exponent */

/* At least one digit, at most DIGITS_MAX: below 2^64. */
static int read_digits(const uint8_t *text, uint32_t length, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < length; i++) {
        unsigned digit = text[i] - (unsigned)'0';
        if (digit > 9)
            return 0;
        value = value * 10 + digit;
    }
    *out = value;
    return length > 0;
}

static int signed_int64(const uint8_t *text, uint32_t length, int64_t *out)
{
    uint32_t is_negative = length && text[0] == '-', at = is_negative || (length && text[0] == '+');
    while (length - at > DIGITS_MAX && text[at] == '0')
        at++;
    uint64_t value;
    if (length - at > DIGITS_MAX || !read_digits(text + at, length - at, &value) || value > (uint64_t)INT64_MAX + is_negative)
        return 0;
    *out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return 1;
}

int rmq_text_int64(const uint8_t *text, uint32_t length, int64_t *out)
{
    uint64_t value;
    if (length >= DIGITS_MAX || !read_digits(text, length, &value)) /* most have no sign */
        return signed_int64(text, length, out);
    *out = (int64_t)value;
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
        out->unusual = RMQ_UNUSUAL_COUNT;
        return NULL;
    }
    return &out->ext[out->ext_count++];
}

/* A null takes the place of an earlier value of its name, as in Java's map. */
static void take_null(struct rmq_frame_header *out, const uint8_t *key, uint32_t length)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < out->ext_count; i++)
        if (out->ext[i].key_length != length || memcmp(out->ext[i].key, key, length))
            out->ext[kept++] = out->ext[i];
    out->ext_count = kept;
}

static inline void take_binary_numbers(const uint8_t *at, struct rmq_frame_header *out)
{
    out->code = (int16_t)rmq_get16(at);
    out->version = (int16_t)rmq_get16(at + 3);
    out->opaque = (int32_t)rmq_get32(at + 5);
    out->flag = (int32_t)rmq_get32(at + 9);
}

static int parse_binary(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    if (end - at < BINARY_FIXED)
        return RMQ_HEADER_MALFORMED;
    take_binary_numbers(at, out);
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

/* fastjson passes over other control characters too: a C string is sent with the NUL behind it. */
static inline int is_space(uint8_t byte) { return byte <= ' '; }

static inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && is_space(*at))
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
        out->escaped = RMQ_TEXT_ESCAPED;
        if (end - at < 2)
            return NULL;
        at += 2;
    }
}

static inline int is_word(uint8_t byte)
{
    uint8_t lower = byte | 0x20; /* -> lower case; digits stay */
    return (lower >= '0' && lower <= '9' && byte >= '0') || (lower >= 'a' && lower <= 'z');
}

/* Number, true, false, null: the bytes up to a delimiter. */
static const uint8_t *parse_bare(const uint8_t *at, const uint8_t *end, struct text *out)
{
    out->at = at;
    out->escaped = RMQ_TEXT_BARE;
    while (at < end && *at != ',' && *at != '}' && *at != ']' && !is_space(*at)) {
        if (!is_word(*at) && *at != '-' && *at != '+' && *at != '.')
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

/* fastjson reads NaN as null. */
static int is_null(const struct text *t) { return is_literal(t, "null") || is_literal(t, "NaN"); }

static int bare_is_value(const struct text *t)
{
    uint8_t c = t->at[0];
    if (c == '-' || c == '+') /* +Infinity is no value */
        c = t->length > 1 ? t->at[1] : 0;
    return (c >= '0' && c <= '9') || is_literal(t, "true") || is_literal(t, "false") || is_null(t);
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
    out->unchecked |= out->has_ext;
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
            out->unusual = RMQ_UNUSUAL_NESTED;
            drop = 1;
        } else {
            at = parse_bare(at, end, &value);
            if (at && !bare_is_value(&value))
                return NULL;
            drop = at && is_null(&value);
            if (drop)
                take_null(out, key.at, key.length);
        }
        if (!at)
            return NULL;
        if (key.escaped || key.length > UINT16_MAX) {
            out->unusual = RMQ_UNUSUAL_KEY;
            drop = 1;
        }
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

static const uint8_t *skip_digits(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* A number with an exponent, cut to an integer. */
static int cut_exponent(const struct text *value, int32_t *out)
{
    const uint8_t *end = value->at + value->length, *at = value->at + (*value->at == '-' || *value->at == '+');
    const uint8_t *digits = at;
    at = skip_digits(at, end);
    if (at == digits || value->length > NUMBER_BYTES_MAX)
        return 0;
    at = at < end && *at == '.' ? skip_digits(at + 1, end) : at;
    if (at == end || (*at | 0x20) != 'e')
        return 0;
    digits = at + 1 < end && (at[1] == '-' || at[1] == '+') ? at + 2 : at + 1;
    if (digits >= end || skip_digits(digits, end) != end)
        return 0;
    char copy[NUMBER_BYTES_MAX + 1];
    memcpy(copy, value->at, value->length);
    copy[value->length] = 0;
    double number = strtod(copy, NULL);
    if (!(number > (double)INT32_MIN - 1 && number < (double)INT32_MAX + 1))
        return 0;
    *out = (int32_t)number;
    return 1;
}

/* A number that is not plain digits, as fastjson reads it into an int. Numbers are cut to integers, text may end with zeros
 * behind a point. Out of range is refused, where fastjson wraps some. Twin: _json_int32 of remoting/command.py. */
static int odd_number(const struct text *value, int32_t *out)
{
    const uint8_t *end = value->at + value->length, *point;
    uint8_t plain[NUMBER_BYTES_MAX];
    struct text text = *value;
    if (value->escaped == RMQ_TEXT_ESCAPED) {
        int64_t length = value->length <= sizeof plain ? rmq_json_unescape_to(plain, value->at, value->length) : -1;
        if (length < 0)
            return 0;
        text = (struct text){plain, (uint32_t)length, 0};
        end = plain + length;
    }
    int is_bare = text.escaped == RMQ_TEXT_BARE;
    if (is_bare && (is_literal(&text, "true") || is_literal(&text, "false"))) {
        *out = *text.at == 't';
        return 1;
    }
    if (is_bare ? is_null(&text) : !text.length || is_literal(&text, "null") || is_literal(&text, "NULL")) {
        *out = 0;
        return 1;
    }
    point = memchr(text.at, '.', text.length);
    if (!point)
        return rmq_text_int32(text.at, text.length, out) || (is_bare && cut_exponent(&text, out));
    const uint8_t *rest = point + 1;
    while (rest < end && (is_bare ? *rest >= '0' && *rest <= '9' : *rest == '0'))
        rest++;
    if (rest < end)
        return is_bare && cut_exponent(&text, out);
    return rmq_text_int32(text.at, (uint32_t)(point - text.at), out);
}

/* A value of another key than the four numbers, which is passed over: sound are strings, null and numbers such as "language":9. */
static inline int pass_over(const struct text *key, const struct text *value, struct rmq_frame_header *out)
{
    if (value->escaped != RMQ_TEXT_BARE && key->length != sizeof "extFields" - 1)
        return 1; /* most */
    const uint8_t *end = value->at + value->length;
    int is_number = value->length < DIGITS_MAX && (*value->at != '0' || value->length == 1) && skip_digits(value->at, end) == end;
    if ((value->escaped == RMQ_TEXT_BARE && !is_number && !is_null(value)) || is_literal(key, "extFields"))
        out->unchecked = 1;
    return 1;
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
    return to ? rmq_text_int32(value->at, value->length, to) || odd_number(value, to) : pass_over(key, value, out);
}

static int parse_json(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    if (end - at >= 3 && !memcmp(at, "\xef\xbb\xbf", 3))
        at += 3; /* a byte order mark */
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
            out->unchecked = 1;
        } else {
            at = parse_bare(at, end, &value);
            if (at && !bare_is_value(&value))
                return RMQ_HEADER_MALFORMED;
        }
        if (!at || (value.at && !set_number(&key, &value, out)))
            return RMQ_HEADER_MALFORMED;
        more = next_member(&at, end);
        if (more < 0)
            return RMQ_HEADER_MALFORMED;
    }
    return skip_space(at, end) == end ? 0 : RMQ_HEADER_MALFORMED;
}

/* --- headers that do not parse --------------------------------------------------------------------------- */

/* The next word or string in quotes, at or behind `at`. Returns the byte behind it, NULL = there is none. */
static const uint8_t *next_token(const uint8_t *at, const uint8_t *end, struct text *out)
{
    while (at < end && *at != '"' && !is_word(*at))
        at++;
    if (at < end && *at == '"')
        return parse_string(at + 1, end, out);
    *out = (struct text){at, 0, 0};
    while (at < end && is_word(*at))
        at++;
    out->length = (uint32_t)(at - out->at);
    return out->length ? at : NULL;
}

/* The number behind the key `name`, wherever that is: the brackets of malformed text prove nothing. Two different ones are none.
 * Twin: _find_number of remoting/unreadable.py. */
static int find_number(const uint8_t *at, const uint8_t *end, const char *name, int32_t *out)
{
    int found = 0;
    struct text token, value;
    while ((at = next_token(at, end, &token))) {
        if (!is_literal(&token, name))
            continue;
        const uint8_t *from = skip_space(at < end && *at == '\'' ? at + 1 : at, end);
        if (from >= end || *from != ':')
            continue;
        from = skip_space(from + 1, end);
        if (from < end && *from == '"')
            from = parse_string(from + 1, end, &value);
        else
            from = parse_bare(from, end, &value);
        int32_t number;
        if (!from || !value.length || !rmq_text_int32(value.at, value.length, &number) || (found && number != *out))
            return 0;
        *out = number;
        found = 1;
    }
    return found;
}

/* Code, flag and opaque of a header that does not parse, for its answer. 0 = the opaque is unknown. */
static __attribute__((noinline)) int find_numbers(const uint8_t *at, const uint8_t *end, struct rmq_frame_header *out)
{
    out->ext_count = 0;
    out->has_ext = 0;
    out->unusual = RMQ_UNUSUAL_FORM;
    if (out->serialise == RMQ_SERIALISE_BINARY) {
        if (end - at < BINARY_NUMBERS)
            return 0;
        take_binary_numbers(at, out);
        return 1;
    }
    out->code = out->flag = out->opaque = out->version = 0;
    if (!find_number(at, end, "opaque", &out->opaque))
        return 0;
    if (!find_number(at, end, "code", &out->code))
        out->code = 0;
    if (!find_number(at, end, "flag", &out->flag))
        out->flag = 0;
    return 1;
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
    out->unusual = out->has_ext = out->unchecked = 0;
    if (out->header_length > length - 8)
        return RMQ_HEADER_LENGTH;
    const uint8_t *at = frame + 8, *end = at + out->header_length;
    if (out->serialise > RMQ_SERIALISE_BINARY)
        return RMQ_HEADER_TYPE;
    int parsed = out->serialise == RMQ_SERIALISE_BINARY ? parse_binary(at, end, out) : parse_json(at, end, out);
    return parsed && find_numbers(at, end, out) ? 0 : parsed;
}
