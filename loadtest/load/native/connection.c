#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "control.h"

enum { CACHE_LINE = 64 };

/* Slots and the numbers of the free ones side by side: a request that is one of many touches few lines of the cache. */
static int slots_make(struct connection *c)
{
    c->block = calloc(1, c->depth * (sizeof *c->slots + sizeof *c->free_slots) + CACHE_LINE);
    if (c->block == NULL)
        return -ENOMEM;
    c->slots = (struct slot *)(((uintptr_t)c->block + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    c->free_slots = (uint16_t *)(c->slots + c->depth);
    for (uint32_t i = 0; i < c->depth; i++)
        c->free_slots[i] = (uint16_t)(c->depth - 1 - i);
    c->free_count = c->depth;
    return 0;
}

int connection_open(struct connection *c, uint32_t index, const struct engine_config *config, int active)
{
    *c = (struct connection){.fd = -1, .index = index, .depth = config->depth};
    int rc = active ? slots_make(c) : 0;
    if (rc < 0)
        return rc;
    return c->fd = tcp_connect(config->host, config->port);
}

void connection_close(struct connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    mirror_free(&c->rx);
    free(c->tx);
    free(c->block);
    c->tx = NULL;
    c->block = NULL;
    c->slots = NULL;
}

struct slot *connection_take(struct connection *c)
{
    if (c->free_count == 0)
        return NULL;
    uint32_t i = c->free_slots[--c->free_count];
    c->generation = (c->generation + 1) & 0x7fff;
    c->slots[i].opaque = (uint32_t)c->generation << 16 | i;
    c->slots[i].busy = 1;
    return &c->slots[i];
}

void connection_untake(struct connection *c, struct slot *slot)
{
    slot->busy = 0;
    c->free_slots[c->free_count++] = (uint16_t)(slot - c->slots);
}

struct slot *connection_release(struct connection *c, uint32_t opaque)
{
    uint32_t i = opaque & 0xffff;
    if (i >= c->depth || !c->slots[i].busy || c->slots[i].opaque != opaque)
        return NULL;
    connection_untake(c, &c->slots[i]);
    return &c->slots[i];
}
