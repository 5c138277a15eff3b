#include "wire.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIXED = 21, JSON_OPAQUE_AT = 29, JSON_OPAQUE_WIDTH = 10 }; /* behind a code of three digits, as sends have */

size_t wire_bound(const struct request *r)
{
    size_t n = 256 + r->body_len;
    for (size_t i = 0; i < r->ext_count; i++)
        n += 16 + strlen(r->ext[i].key) + 6 * strlen(r->ext[i].value);
    return n;
}

static size_t encode_binary(uint8_t *h, const struct request *r)
{
    put16(h, (uint16_t)r->code);
    h[2] = WIRE_LANGUAGE_JAVA;
    put16(h + 3, WIRE_VERSION);
    put32(h + 5, r->opaque);
    put32(h + 9, 0);
    put32(h + 13, 0);
    uint8_t *p = h + FIXED;
    for (size_t i = 0; i < r->ext_count; i++) {
        size_t key_len = strlen(r->ext[i].key), value_len = strlen(r->ext[i].value);
        if (value_len == 0)
            continue;
        put16(p, (uint16_t)key_len);
        memcpy(p + 2, r->ext[i].key, key_len);
        p += 2 + key_len;
        put32(p, (uint32_t)value_len);
        memcpy(p + 4, r->ext[i].value, value_len);
        p += 4 + value_len;
    }
    put32(h + 17, (uint32_t)(p - h - FIXED));
    return (size_t)(p - h);
}

static char *json_text(char *p, const char *text)
{
    *p++ = '"';
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            *p++ = '\\';
            *p++ = (char)c;
        } else if (c < 0x20) {
            p += sprintf(p, "\\u%04x", c);
        } else {
            *p++ = (char)c;
        }
    }
    *p++ = '"';
    return p;
}

static size_t encode_json(uint8_t *h, const struct request *r)
{
    char *p = (char *)h;
    /* The code comes first, as Java writes it. The opaque has a fixed place and width, so that a ready frame can be sent
     * again under another one. */
    p += sprintf(p, "{\"code\":%d,\"opaque\":%*u,\"flag\":0,\"language\":\"JAVA\",\"version\":%d,", r->code,
                 JSON_OPAQUE_WIDTH, r->opaque, WIRE_VERSION);
    p += sprintf(p, "\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{");
    const char *separator = "";
    for (size_t i = 0; i < r->ext_count; i++) {
        if (r->ext[i].value[0] == 0)
            continue;
        p += sprintf(p, "%s", separator);
        p = json_text(p, r->ext[i].key);
        *p++ = ':';
        p = json_text(p, r->ext[i].value);
        separator = ",";
    }
    p += sprintf(p, "}}");
    return (size_t)(p - (char *)h);
}

size_t wire_encode(uint8_t *out, const struct request *r, int json)
{
    size_t header_len = json ? encode_json(out + 8, r) : encode_binary(out + 8, r);
    put32(out, (uint32_t)(4 + header_len + r->body_len));
    put32(out + 4, (uint32_t)header_len | (json ? 0u : 1u << 24));
    if (r->body_len)
        memcpy(out + 8 + header_len, r->body, r->body_len);
    return 8 + header_len + r->body_len;
}

void wire_set_opaque(uint8_t *frame, int json, uint32_t opaque)
{
    if (!json) {
        put32(frame + 13, opaque);
        return;
    }
    char digits[JSON_OPAQUE_WIDTH + 1];
    snprintf(digits, sizeof digits, "%*u", JSON_OPAQUE_WIDTH, opaque);
    memcpy(frame + JSON_OPAQUE_AT, digits, JSON_OPAQUE_WIDTH);
}

/* Finds `"key":` at nesting depth `depth` of a JSON object and returns the text behind the colon, or NULL. */
static const char *json_find(const char *text, size_t len, const char *key, int depth)
{
    size_t key_len = strlen(key);
    int level = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '{' || text[i] == '[') {
            level++;
        } else if (text[i] == '}' || text[i] == ']') {
            level--;
        } else if (text[i] == '"') {
            size_t begin = ++i;
            while (i < len && text[i] != '"')
                i += text[i] == '\\' ? 2 : 1;
            size_t next = i + 1;
            while (next < len && isspace((unsigned char)text[next]))
                next++;
            if (level == depth && next + 1 < len && text[next] == ':' && i - begin == key_len &&
                memcmp(text + begin, key, key_len) == 0) {
                do
                    next++;
                while (next < len && isspace((unsigned char)text[next]));
                return next < len ? text + next : NULL;
            }
        }
    }
    return NULL;
}

/* Reads a decimal number that ends inside [p, end). */
static int number(const char *p, const char *end, int64_t *value)
{
    char digits[24];
    size_t n = 0;
    while (p + n < end && n < sizeof digits - 1 && (isdigit((unsigned char)p[n]) || (n == 0 && p[n] == '-'))) {
        digits[n] = p[n];
        n++;
    }
    digits[n] = 0;
    if (n == 0 || (n == 1 && digits[0] == '-'))
        return -ENOENT;
    *value = strtoll(digits, NULL, 10);
    return 0;
}

static int decode_json(struct answer *a)
{
    const char *text = (const char *)a->header, *end = text + a->header_len;
    const char *code = json_find(text, a->header_len, "code", 1);
    const char *opaque = json_find(text, a->header_len, "opaque", 1);
    int64_t value;
    if (code == NULL || opaque == NULL || number(code, end, &value) < 0)
        return -EBADMSG;
    a->code = (int)value;
    if (number(opaque, end, &value) < 0)
        return -EBADMSG;
    a->opaque = (uint32_t)value;
    const char *flag = json_find(text, a->header_len, "flag", 1);
    a->is_request = flag == NULL || number(flag, end, &value) < 0 || (value & 1) == 0;
    return 0;
}

int wire_decode(const uint8_t *frame, size_t len, struct answer *out)
{
    if (len < 8 || get32(frame) != len - 4)
        return -EBADMSG;
    uint32_t word = get32(frame + 4), header_len = word & 0xffffffu, type = word >> 24;
    if (type > 1 || header_len > len - 8)
        return -EBADMSG;
    out->is_json = type == 0;
    out->header = frame + 8;
    out->header_len = header_len;
    out->body = frame + 8 + header_len;
    out->body_len = len - 8 - header_len;
    if (out->is_json)
        return decode_json(out);
    if (header_len < FIXED)
        return -EBADMSG;
    out->code = (int16_t)get16(frame + 8);
    out->opaque = get32(frame + 13);
    out->is_request = (frame[20] & 1) == 0;
    return 0;
}

/* Binary ext field; NULL when missing. Every length is checked against the header. */
static const uint8_t *binary_ext(const struct answer *a, const char *key, size_t *value_len)
{
    size_t remark_len = get32(a->header + 13), key_len = strlen(key);
    if (remark_len > a->header_len - FIXED)
        return NULL;
    size_t at = 17 + remark_len, ext_len = get32(a->header + at);
    at += 4;
    if (ext_len > a->header_len - at)
        return NULL;
    size_t end = at + ext_len;
    while (end - at >= 6) {
        size_t k = get16(a->header + at);
        if (k + 6 > end - at)
            return NULL;
        size_t v = get32(a->header + at + 2 + k);
        if (v > end - at - 6 - k)
            return NULL;
        if (k == key_len && memcmp(a->header + at + 2, key, k) == 0) {
            *value_len = v;
            return a->header + at + 6 + k;
        }
        at += 6 + k + v;
    }
    return NULL;
}

const char *wire_ext_text(const struct answer *a, const char *key, size_t *length)
{
    if (!a->is_json)
        return (const char *)binary_ext(a, key, length);
    const char *text = json_find((const char *)a->header, a->header_len, key, 2), *end = (const char *)a->header + a->header_len;
    if (text == NULL || *text != '"')
        return NULL;
    const char *stop = memchr(text + 1, '"', (size_t)(end - text - 1));
    *length = stop == NULL ? 0 : (size_t)(stop - text - 1);
    return stop == NULL ? NULL : text + 1;
}

int wire_ext_number(const struct answer *a, const char *key, int64_t *value)
{
    if (!a->is_json) {
        size_t len = 0;
        const char *text = (const char *)binary_ext(a, key, &len);
        return text == NULL ? -ENOENT : number(text, text + len, value);
    }
    const char *text = json_find((const char *)a->header, a->header_len, key, 2);
    if (text == NULL)
        return -ENOENT;
    return number(text + (*text == '"'), (const char *)a->header + a->header_len, value);
}

void wire_remark(const struct answer *a, char *out, size_t cap)
{
    const char *text;
    size_t len = 0;
    if (a->is_json) {
        text = json_find((const char *)a->header, a->header_len, "remark", 1);
        const char *end = (const char *)a->header + a->header_len;
        if (text != NULL && *text == '"')
            for (text++; text + len < end && text[len] != '"';)
                len += text[len] == '\\' ? 2 : 1;
    } else {
        text = (const char *)a->header + 17;
        len = get32(a->header + 13);
        if (len > a->header_len - FIXED)
            len = 0;
    }
    if (len > cap - 1)
        len = cap - 1;
    if (len)
        memcpy(out, text, len);
    out[len] = 0;
}

int wire_record(const uint8_t *data, size_t len, struct record *out)
{
    if (len < 91 || get32(data) > len)
        return -EBADMSG;
    size_t size = get32(data), sys_flag = get32(data + 36), topic_len_size;
    if (get32(data + 4) == RECORD_MAGIC_V1)
        topic_len_size = 1;
    else if (get32(data + 4) == RECORD_MAGIC_V2)
        topic_len_size = 2;
    else
        return -EBADMSG;
    size_t at = 84 + (sys_flag & 0x10 ? 12 : 0) + (sys_flag & 0x20 ? 12 : 0);
    if (at + 4 > size)
        return -EBADMSG;
    size_t body_len = get32(data + at);
    if (body_len > size - at - 4 || size - at - 4 - body_len < topic_len_size)
        return -EBADMSG;
    out->body = data + at + 4;
    at += 4 + body_len;
    at += topic_len_size + (topic_len_size == 1 ? data[at] : get16(data + at));
    if (at + 2 > size || get16(data + at) > size - at - 2)
        return -EBADMSG;
    out->size = (uint32_t)size;
    out->body_crc = get32(data + 8);
    out->queue_id = get32(data + 12);
    out->queue_offset = get64(data + 20);
    out->physical_offset = get64(data + 28);
    out->body_len = (uint32_t)body_len;
    out->properties = data + at + 2;
    out->properties_len = get16(data + at);
    return 0;
}

int wire_count_records(const uint8_t *body, size_t len)
{
    int count = 0;
    for (size_t at = 0; at < len; count++) {
        if (len - at < 91)
            return -EBADMSG;
        uint32_t size = get32(body + at), magic = get32(body + at + 4);
        if (size < 91 || size > len - at || (magic != RECORD_MAGIC_V1 && magic != RECORD_MAGIC_V2))
            return -EBADMSG;
        at += size;
    }
    return count;
}
