/* Buffers that connections of the load loop share: few, so that they stay in the processor's cache however many connect. */
#ifndef RINGMQ_LOAD_POOLS_H
#define RINGMQ_LOAD_POOLS_H

#include <liburing.h>
#include <stddef.h>
#include <stdint.h>

/* For what is being sent: the one given back last is taken first. */
struct send_pool {
    size_t bytes; /* of one buffer */
    uint8_t **free;
    uint32_t free_count;
};

int send_pool_open(struct send_pool *p, size_t bytes, uint32_t most);
void send_pool_close(struct send_pool *p); /* those that were given back */
uint8_t *send_pool_take(struct send_pool *p); /* NULL: no memory */
void send_pool_give(struct send_pool *p, uint8_t *buffer);

#ifndef RECEIVE_BUFFERS /* a test has fewer */
#define RECEIVE_BUFFERS 128 /* a power of two */
#endif
enum { RECEIVE_BYTES = 8192, RECEIVE_GROUP = 1 };

/* For what arrives: the kernel chooses one when there is something to put into it. */
struct receive_pool {
    struct io_uring_buf_ring *ring;
    uint8_t *buffers;
};

int receive_pool_open(struct receive_pool *p, struct io_uring *ring); /* 0 or negative errno */
void receive_pool_close(struct receive_pool *p); /* after the ring, which may still write into it */
void receive_pool_give(struct receive_pool *p, uint32_t buffer);

static inline uint8_t *receive_pool_at(const struct receive_pool *p, uint32_t buffer)
{
    return p->buffers + (size_t)buffer * RECEIVE_BYTES;
}

#endif
