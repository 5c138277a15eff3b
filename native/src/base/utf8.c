#include "base/utf8.h"

#include <string.h>

#define HIGH_BITS 0x8080808080808080u

/* Bytes of the character that begins with `lead`, and the range of its second byte; 0 when none does. */
static size_t character_bytes(uint8_t lead, uint8_t *low, uint8_t *high) {
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead < 0xE0)
        return 2;
    if (lead >= 0xE0 && lead < 0xF0)
        return 3;
    return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

int rmq_is_utf8(const uint8_t *bytes, size_t length) {
    size_t at = 0;
    while (at < length) {
        uint64_t word;
        while (length - at >= sizeof word) {
            memcpy(&word, bytes + at, sizeof word);
            if (word & HIGH_BITS)
                break;
            at += sizeof word;
        }
        if (at == length)
            break;
        uint8_t low, high;
        size_t size = character_bytes(bytes[at], &low, &high);
        if (!size || size > length - at)
            return 0;
        if (size > 1 && (bytes[at + 1] < low || bytes[at + 1] > high))
            return 0;
        for (size_t i = 2; i < size; i++)
            if ((bytes[at + i] & 0xC0) != 0x80)
                return 0;
        at += size;
    }
    return 1;
}
