#include "pools.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int send_pool_open(struct send_pool *p, size_t bytes, uint32_t most)
{
    *p = (struct send_pool){.bytes = bytes};
    p->free = calloc(most, sizeof *p->free);
    return p->free == NULL ? -ENOMEM : 0;
}

void send_pool_close(struct send_pool *p)
{
    while (p->free_count)
        free(p->free[--p->free_count]);
    free(p->free);
    p->free = NULL;
}

uint8_t *send_pool_take(struct send_pool *p)
{
    if (p->free_count)
        return p->free[--p->free_count];
    return malloc(p->bytes);
}

void send_pool_give(struct send_pool *p, uint8_t *buffer)
{
    p->free[p->free_count++] = buffer;
}

int receive_pool_open(struct receive_pool *p, struct io_uring *ring)
{
    size_t bytes = RECEIVE_BUFFERS * sizeof(struct io_uring_buf);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    p->ring = at;
    p->buffers = malloc((size_t)RECEIVE_BUFFERS * RECEIVE_BYTES);
    if (p->buffers == NULL)
        return -ENOMEM;
    io_uring_buf_ring_init(p->ring);
    struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)at, .ring_entries = RECEIVE_BUFFERS, .bgid = RECEIVE_GROUP};
    int rc = io_uring_register_buf_ring(ring, &reg, 0);
    for (uint32_t i = 0; rc == 0 && i < RECEIVE_BUFFERS; i++)
        receive_pool_give(p, i);
    return rc;
}

void receive_pool_close(struct receive_pool *p)
{
    if (p->ring != NULL)
        munmap(p->ring, RECEIVE_BUFFERS * sizeof(struct io_uring_buf));
    free(p->buffers);
    *p = (struct receive_pool){0};
}

void receive_pool_give(struct receive_pool *p, uint32_t buffer)
{
    io_uring_buf_ring_add(p->ring, receive_pool_at(p, buffer), RECEIVE_BYTES, (unsigned short)buffer,
                          io_uring_buf_ring_mask(RECEIVE_BUFFERS), 0);
    io_uring_buf_ring_advance(p->ring, 1);
}
