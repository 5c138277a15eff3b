/* json_text.h: the text of a JSON string, its escapes undone. */
#ifndef RMQ_JSON_TEXT_H
#define RMQ_JSON_TEXT_H

#include <stdint.h>

/* cdef-begin */
/* JSON escapes undone in place (the text never grows). Lone surrogates become "?". New length, or -1 when it is not well formed;
 * the bytes are undefined then. */
int64_t rmq_json_unescape(uint8_t *text, uint32_t length);
/* The same into `to`, which has room for `length` bytes and is `text` itself or lies elsewhere. */
int64_t rmq_json_unescape_to(uint8_t *to, const uint8_t *text, uint32_t length);
/* cdef-end */
#endif
