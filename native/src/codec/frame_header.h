/* frame_header.h: a remoting frame's header, in either encoding, parsed without copies.
 *
 * Frame: i32 length of the rest, u8 serialise type (0 JSON, 1 binary), u24 header length, header, body. The parser is strict
 * (JSON as in RFC 8259, with some forms that fastjson reads too; UTF-8 is not checked) and bounded; it never writes, and never
 * reads outside of `length`. A rare header is marked `unusual`, so that the caller passes the frame to policy code instead of
 * guessing. So is a malformed one whose opaque can be found: it can be answered. Any other malformed header closes the connection.
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
#define RMQ_HEADER_MALFORMED -4   /* and its opaque is unknown */

/* Reasons why a header is unusual. */
#define RMQ_UNUSUAL_FORM 1        /* malformed: code, flag and opaque are what could be found, there are no fields */
#define RMQ_UNUSUAL_KEY 2         /* a field's name has escapes, or is too long */
#define RMQ_UNUSUAL_NESTED 3      /* a field is an object or a list */
#define RMQ_UNUSUAL_COUNT 4       /* more than RMQ_EXT_ENTRIES_MAX fields */

/* Forms of a JSON value; a binary one is 0. */
#define RMQ_TEXT_ESCAPED 1        /* a string with escapes */
#define RMQ_TEXT_BARE 2           /* a number or word without quotes */

struct rmq_ext_entry {
    const uint8_t *key;
    const uint8_t *value;
    uint32_t value_length;  /* JSON: of the text between the quotes, escapes included */
    uint16_t key_length;
    uint16_t escaped;       /* 0 or RMQ_TEXT_*: 0 = the text is the value */
};

struct rmq_frame_header {
    int32_t code;
    int32_t flag;
    int32_t opaque;
    int32_t version;
    uint32_t header_length;
    uint32_t ext_count;
    uint8_t serialise;
    uint8_t unusual;        /* 0 or RMQ_UNUSUAL_* */
    uint8_t has_ext;
    uint8_t unchecked;      /* 1: JSON beside the fields holds a value that was passed over, and that others may refuse */
    struct rmq_ext_entry ext[40];
};

/* `frame` starts with its length field; `length` bytes are there, all of the frame. 0 or RMQ_HEADER_*. */
int rmq_frame_header_parse(const uint8_t *frame, uint32_t length, struct rmq_frame_header *out);

/* Decimal integers of ASCII digits as Java's Integer.parseInt and Long.parseLong read them. 1 = is one. Twin: java_integer of
 * remoting/java_numbers.py. */
int rmq_text_int32(const uint8_t *text, uint32_t length, int32_t *out);
int rmq_text_int64(const uint8_t *text, uint32_t length, int64_t *out);
/* cdef-end */

/* Fields whose text has escapes, or is no text. Use the inline forms below. */
int rmq_escaped_int32(const struct rmq_ext_entry *e, int32_t *out);
int rmq_escaped_int64(const struct rmq_ext_entry *e, int64_t *out);
int rmq_odd_text(const struct rmq_ext_entry *e, uint8_t *room, uint32_t room_bytes, const uint8_t **text, uint32_t *length);
int rmq_field_is(const struct rmq_ext_entry *e, const char *word);
int rmq_is_true(const struct rmq_ext_entry *e);
/* 1 if every reader keeps the text of this JSON number or word: true, false, or an integer in its shortest form. */
int rmq_bare_is_text(const struct rmq_ext_entry *e);

static inline int rmq_field_int32(const struct rmq_ext_entry *e, int32_t *out)
{
    return rmq_text_int32(e->value, e->value_length, out) || (e->escaped == RMQ_TEXT_ESCAPED && rmq_escaped_int32(e, out));
}

static inline int rmq_field_int64(const struct rmq_ext_entry *e, int64_t *out)
{
    return rmq_text_int64(e->value, e->value_length, out) || (e->escaped == RMQ_TEXT_ESCAPED && rmq_escaped_int64(e, out));
}

/* "true" in any case. */
static inline int rmq_field_is_true(const struct rmq_ext_entry *e)
{
    return (e->value_length == 4 || e->escaped == RMQ_TEXT_ESCAPED) && rmq_is_true(e);
}

/* The text of a field; escapes are undone in `room`. 0 = it is too long for that, not well formed, or a JSON number of which other
 * readers make another text (1.50, 007). */
static inline int rmq_field_text(const struct rmq_ext_entry *e, uint8_t *room, uint32_t room_bytes, const uint8_t **text,
                                 uint32_t *length)
{
    *text = e->value;
    *length = e->value_length;
    return !e->escaped || rmq_odd_text(e, room, room_bytes, text, length);
}
#endif
