/* frame_header.h: a remoting frame's header, in either encoding, parsed without copies.
 *
 * Frame: i32 length of the rest, u8 serialise type (0 JSON, 1 binary), u24 header length, header, body. The parser is strict
 * (JSON as in RFC 8259; UTF-8 is not checked) and bounded; it never writes, and never reads outside of `length`. A malformed
 * header closes the connection. A legal but rare one is marked `unusual`, so that the caller passes the frame to policy code
 * instead of guessing.
 */
#ifndef RMQ_FRAME_HEADER_H
#define RMQ_FRAME_HEADER_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_SERIALISE_JSON 0
#define RMQ_SERIALISE_BINARY 1
#define RMQ_FLAG_RESPONSE 1
#define RMQ_FLAG_ONEWAY 2
#define RMQ_EXT_ENTRIES_MAX 40
#define RMQ_JSON_DEPTH_MAX 32

/* Reasons why a header does not parse; all negative. */
#define RMQ_HEADER_SHORT -1       /* less than 8 bytes */
#define RMQ_HEADER_TYPE -2        /* unknown serialise type */
#define RMQ_HEADER_LENGTH -3      /* header longer than the frame */
#define RMQ_HEADER_MALFORMED -4

struct rmq_ext_entry {
    const uint8_t *key;
    const uint8_t *value;
    uint32_t value_length;  /* JSON: of the text between the quotes, escapes included */
    uint16_t key_length;
    uint16_t escaped;       /* the JSON value holds escapes */
};

struct rmq_frame_header {
    int32_t code;
    int32_t flag;
    int32_t opaque;
    int32_t version;
    uint32_t header_length;
    uint32_t ext_count;
    uint8_t serialise;
    uint8_t unusual;        /* escaped keys, nested values, more than RMQ_EXT_ENTRIES_MAX entries */
    uint8_t has_ext;
    uint8_t reserved;
    struct rmq_ext_entry ext[40];
};

/* `frame` starts with its length field; `length` bytes are there, all of the frame. 0 or RMQ_HEADER_*. */
int rmq_frame_header_parse(const uint8_t *frame, uint32_t length, struct rmq_frame_header *out);

/* JSON escapes undone in place (the text never grows). New length, or -1 when it is not well formed or holds
 * something that Java reads in its own way (lone surrogates); the bytes are undefined then. */
int64_t rmq_json_unescape(uint8_t *text, uint32_t length);
/* The same into `to`, which has room for `length` bytes and is `text` itself or lies elsewhere. */
int64_t rmq_json_unescape_to(uint8_t *to, const uint8_t *text, uint32_t length);

/* Decimal integers as Java's Integer.parseInt and Long.parseLong read them, without a plus sign. 1 = is one. */
int rmq_text_int32(const uint8_t *text, uint32_t length, int32_t *out);
int rmq_text_int64(const uint8_t *text, uint32_t length, int64_t *out);
/* cdef-end */
#endif
