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

/* All bytes of [begin, end) of one value, one after another. */
struct rmq_separators {
    const uint8_t *begin, *at, *end;
    const uint8_t *chunk; /* the 16 bytes that were looked at last */
    uint32_t hits;        /* bit i: byte i of the chunk has the value and has not been given */
};

/* The next byte with this value, or `end`. */
static inline const uint8_t *rmq_next_separator(struct rmq_separators *s, uint8_t value)
{
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8((char)value);
    while (!s->hits && s->at < s->end && s->end - s->begin >= 16) {
        uint32_t seen = s->end - s->at < 16 ? 16 - (uint32_t)(s->end - s->at) : 0; /* the last chunk has bytes of the one before */
        s->chunk = s->at - seen;
        s->at = s->chunk + 16;
        __m128i chunk = _mm_loadu_si128((const __m128i *)s->chunk);
        s->hits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(chunk, wanted)) >> seen << seen;
    }
    if (s->hits) {
        const uint8_t *found = s->chunk + __builtin_ctz(s->hits);
        s->hits &= s->hits - 1;
        return found;
    }
#endif
    while (s->at < s->end && *s->at != value)
        s->at++;
    return s->at < s->end ? s->at++ : s->end;
}

#endif
