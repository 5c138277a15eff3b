/* The pairs of a properties string: name 0x01 value 0x02, again and again; the last 0x02 may be missing. C only.
 *
 * Bytes are hostile. A pair without a name, without a value or without 0x01 is passed over
 * (MessageDecoder.string2messageProperties).
 */
#ifndef RMQ_PROPERTY_PAIRS_H
#define RMQ_PROPERTY_PAIRS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RMQ_NAME_VALUE 0x01
#define RMQ_PAIR_END 0x02

struct rmq_text {
    const uint8_t *at;
    uint32_t length;
};

struct rmq_pair {
    struct rmq_text name;
    struct rmq_text value;
};

/* Takes the next pair with a name and a value from `*at` on; 0 at the end. */
static inline int rmq_next_pair(const uint8_t **at, const uint8_t *end, struct rmq_pair *out) {
    while (*at < end) {
        const uint8_t *start = *at;
        const uint8_t *stop = memchr(start, RMQ_PAIR_END, (size_t)(end - start));
        if (!stop)
            stop = end;
        *at = stop < end ? stop + 1 : end;
        const uint8_t *split = memchr(start, RMQ_NAME_VALUE, (size_t)(stop - start));
        if (!split || split == start || split + 1 == stop)
            continue;
        out->name = (struct rmq_text){start, (uint32_t)(split - start)};
        out->value = (struct rmq_text){split + 1, (uint32_t)(stop - split - 1)};
        return 1;
    }
    return 0;
}

static inline int rmq_text_is(struct rmq_text text, const char *name, uint32_t length) {
    return text.length == length && !memcmp(text.at, name, length);
}

#endif
