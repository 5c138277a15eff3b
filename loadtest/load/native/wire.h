/* RocketMQ remoting frames as a client needs them: requests in both header forms, answers, stored records. */
#ifndef RINGMQ_LOAD_WIRE_H
#define RINGMQ_LOAD_WIRE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    CODE_PULL_MESSAGE = 11,
    CODE_QUERY_MESSAGE = 12,
    CODE_CREATE_TOPIC = 17,
    CODE_MAX_OFFSET = 30,
    CODE_MIN_OFFSET = 31,
    CODE_HEART_BEAT = 34,
    CODE_SEND_BACK = 36,
    CODE_END_TRANSACTION = 37,
    CODE_SEND_V2 = 310,
    CODE_SEND_BATCH = 320,
    CODE_POP = 200050,
    CODE_ACK = 200051,
    CODE_BATCH_ACK = 200151,
    ANSWER_SUCCESS = 0,
    ANSWER_PULL_NOT_FOUND = 19,
    ANSWER_PULL_RETRY_IMMEDIATELY = 20,
    ANSWER_QUERY_NOT_FOUND = 22,
    ANSWER_POLLING_TIMEOUT = 210,
    WIRE_FRAME_MAX = 16777216, /* whole frame, RocketMQ's limit */
    WIRE_LANGUAGE_JAVA = 0,
    WIRE_VERSION = 479,
};

static const uint32_t RECORD_MAGIC_V1 = 0xdaa320a7u;
static const uint32_t RECORD_MAGIC_V2 = 0xdaa320abu;

static inline uint16_t get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return be16toh(v);
}

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return be32toh(v);
}

static inline uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return be64toh(v);
}

static inline void put16(uint8_t *p, uint16_t v)
{
    v = htobe16(v);
    memcpy(p, &v, 2);
}

static inline void put32(uint8_t *p, uint32_t v)
{
    v = htobe32(v);
    memcpy(p, &v, 4);
}

struct ext {
    const char *key;
    const char *value; /* no NUL inside; an empty value is left out, as the binary form cannot carry it */
};

struct request {
    int code;
    uint32_t opaque;
    const struct ext *ext;
    size_t ext_count;
    const void *body;
    size_t body_len;
};

/* Bytes that wire_encode may need at most. */
size_t wire_bound(const struct request *r);

/* Writes one frame and returns its length. The opaque stands at wire_opaque_at(json); see wire_set_opaque. */
size_t wire_encode(uint8_t *out, const struct request *r, int json);

/* Overwrites the opaque of a frame made by wire_encode. */
void wire_set_opaque(uint8_t *frame, int json, uint32_t opaque);

struct answer {
    int code;
    uint32_t opaque;
    int is_json;
    int is_request; /* the other side asks something (a rebalance notice) */
    const uint8_t *header;
    size_t header_len;
    const uint8_t *body;
    size_t body_len;
};

/* Decodes the frame that starts at `frame` and is `len` bytes long, length field included; -EBADMSG when it is none. */
int wire_decode(const uint8_t *frame, size_t len, struct answer *out);

/* Text of ext field `key` and its length, within the frame; NULL when it is missing or no text. */
const char *wire_ext_text(const struct answer *a, const char *key, size_t *length);

/* Number in ext field `key`; -ENOENT when it is missing or no number. */
int wire_ext_number(const struct answer *a, const char *key, int64_t *value);

/* Copies the remark (cut to cap - 1 bytes) as text; empty when there is none. */
void wire_remark(const struct answer *a, char *out, size_t cap);

struct record {
    uint32_t size, body_crc, queue_id, body_len;
    uint64_t queue_offset, physical_offset;
    const uint8_t *body;
    const uint8_t *properties;
    uint32_t properties_len;
};

/* Decodes one stored message; -EBADMSG when it lies about a length or its magic is unknown. */
int wire_record(const uint8_t *data, size_t len, struct record *out);

/* Walks a pull body by the record sizes; number of records, or -EBADMSG when they do not fill it exactly. */
int wire_count_records(const uint8_t *body, size_t len);

#endif
