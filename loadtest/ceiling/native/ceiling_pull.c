#include "ceiling.h"

#include <stdlib.h>

#include "crc32.h"
#include "wire.h"

enum { FIXED = 21, TOPIC_LEN = 8, PROPERTIES_LEN = 120 };

static uint8_t *put_head(uint8_t *p, uint32_t header_len, uint32_t body_len)
{
    put32(p, 4 + header_len + body_len);
    put32(p + 4, 1u << 24 | header_len);
    memset(p + 8, 0, FIXED);
    put16(p + 8 + 3, WIRE_VERSION);
    p[20] = 1; /* flag: answer */
    put32(p + 8 + 17, header_len - FIXED);
    return p + 8 + FIXED;
}

static uint8_t *put_ext(uint8_t *p, const char *key, const char *value)
{
    size_t k = strlen(key), v = strlen(value);
    put16(p, (uint16_t)k);
    memcpy(p + 2, key, k);
    put32(p + 2 + k, (uint32_t)v);
    memcpy(p + 6 + k, value, v);
    return p + 6 + k + v;
}

void ceiling_answer(uint8_t out[ANSWER_SIZE])
{
    uint8_t *p = put_head(out, ANSWER_SIZE - 8, 0);
    put_ext(p, "pad", "..........................");
}

uint8_t *ceiling_pull_head(uint32_t body_len, uint32_t *len)
{
    uint8_t ext[256], *p = ext;
    p = put_ext(p, "suggestWhichBrokerId", "0");
    p = put_ext(p, "nextBeginOffset", "1000032");
    p = put_ext(p, "minOffset", "0");
    p = put_ext(p, "maxOffset", "9000000");
    p = put_ext(p, "topicSysFlag", "0");
    p = put_ext(p, "groupSysFlag", "0");
    uint32_t ext_len = (uint32_t)(p - ext);
    uint8_t *head = malloc(8 + FIXED + ext_len);
    if (head == NULL)
        return NULL;
    memcpy(put_head(head, FIXED + ext_len, body_len), ext, ext_len);
    *len = 8 + FIXED + ext_len;
    return head;
}

uint8_t *ceiling_pull_body(uint32_t count, uint32_t size, uint32_t *len)
{
    uint32_t record = 84 + 4 + size + 1 + TOPIC_LEN + 2 + PROPERTIES_LEN;
    uint8_t *body = calloc(count, record);
    if (body == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *p = body + (size_t)i * record;
        memset(p + 88, 'x', size);
        put32(p, record);
        put32(p + 4, RECORD_MAGIC_V1);
        put32(p + 8, crc32_of(p + 88, size) & 0x7fffffff);
        put32(p + 24, i);
        put32(p + 84, size);
        p[88 + size] = TOPIC_LEN;
        memset(p + 89 + size, 'T', TOPIC_LEN);
        put16(p + 89 + size + TOPIC_LEN, PROPERTIES_LEN);
        memset(p + 91 + size + TOPIC_LEN, 'p', PROPERTIES_LEN);
    }
    *len = count * record;
    return body;
}
