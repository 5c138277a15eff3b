/* pair_separators.h: finds what separates name/value pairs of a property string. C only. */
#ifndef RMQ_PAIR_SEPARATORS_H
#define RMQ_PAIR_SEPARATORS_H

#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* First byte of [at, end) that is 0, 1 or 2, or `end`. */
static inline const uint8_t *rmq_find_mark(const uint8_t *at, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i limit = _mm_set1_epi8(2);
    for (; end - at >= 16; at += 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *)at);
        unsigned hit = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(chunk, limit), chunk));
        if (hit)
            return at + __builtin_ctz(hit);
    }
#endif
    while (at < end && *at > 2)
        at++;
    return at;
}

#endif
