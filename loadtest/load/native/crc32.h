/* CRC-32 (the one of zlib and RocketMQ), eight bytes a step. */
#ifndef RINGMQ_LOAD_CRC32_H
#define RINGMQ_LOAD_CRC32_H

#include <stddef.h>
#include <stdint.h>

void crc32_init(void); /* once, before crc32_of */
uint32_t crc32_of(const uint8_t *data, size_t len);

#endif
