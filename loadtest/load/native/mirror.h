/* A buffer mapped twice in a row, so that a frame that wraps around its end still lies in one piece. */
#ifndef RINGMQ_LOAD_MIRROR_H
#define RINGMQ_LOAD_MIRROR_H

#include <stddef.h>
#include <stdint.h>

struct mirror {
    uint8_t *base; /* 2 * cap bytes of address space over cap bytes of memory */
    size_t cap;
    size_t head, tail; /* unread bytes are base[head .. tail); head < cap, tail - head <= cap */
};

/* `cap` is rounded up to whole pages. 0 or negative errno. */
int mirror_init(struct mirror *m, size_t cap);
void mirror_free(struct mirror *m);

static inline uint8_t *mirror_data(const struct mirror *m)
{
    return m->base + m->head;
}

static inline size_t mirror_used(const struct mirror *m)
{
    return m->tail - m->head;
}

static inline void mirror_consume(struct mirror *m, size_t n)
{
    m->head += n;
    if (m->head == m->tail) {
        /* An empty buffer starts over, which keeps short answers in the processor's cache. */
        m->head = m->tail = 0;
    } else if (m->head >= m->cap) {
        m->head -= m->cap;
        m->tail -= m->cap;
    }
}

#endif
