/* utf8.h: checks that bytes are well-formed UTF-8 (RFC 3629: no surrogates, nothing over U+10FFFF, shortest forms only). */
#ifndef RMQ_UTF8_H
#define RMQ_UTF8_H

#include <stddef.h>
#include <stdint.h>

int rmq_is_utf8(const uint8_t *bytes, size_t length);

#endif
