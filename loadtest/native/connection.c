#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "control.h"

enum { TX_MAX = 1 << 20, RX_MIN = 1 << 16 };

int connection_open(struct connection *c, uint32_t index, const struct engine_config *config, const struct scenario *s)
{
    *c = (struct connection){.fd = -1, .index = index, .depth = config->depth};
    if (s->frame_max == 0 || index >= config->connections)
        return c->fd = tcp_connect(config->host, config->port);
    size_t wanted = (size_t)s->frame_max * config->depth;
    c->tx_cap = wanted < TX_MAX ? wanted : TX_MAX;
    if (c->tx_cap < s->frame_max)
        c->tx_cap = s->frame_max;
    c->tx = malloc(c->tx_cap);
    c->slots = calloc(config->depth, sizeof *c->slots);
    c->free_slots = calloc(config->depth, sizeof *c->free_slots);
    if (c->tx == NULL || c->slots == NULL || c->free_slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < config->depth; i++)
        c->free_slots[i] = config->depth - 1 - i;
    c->free_count = config->depth;
    int rc = mirror_init(&c->rx, s->answer_max > RX_MIN ? s->answer_max : RX_MIN);
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
    free(c->slots);
    free(c->free_slots);
    c->tx = NULL;
    c->slots = NULL;
    c->free_slots = NULL;
}

struct slot *connection_take(struct connection *c)
{
    if (c->free_count == 0)
        return NULL;
    uint32_t i = c->free_slots[--c->free_count];
    c->generation = (c->generation + 1) & 0x7fff;
    c->slots[i].opaque = c->generation << 16 | i;
    c->slots[i].busy = 1;
    return &c->slots[i];
}

void connection_untake(struct connection *c, struct slot *slot)
{
    slot->busy = 0;
    c->free_slots[c->free_count++] = (uint32_t)(slot - c->slots);
}

struct slot *connection_release(struct connection *c, uint32_t opaque)
{
    uint32_t i = opaque & 0xffff;
    if (i >= c->depth || !c->slots[i].busy || c->slots[i].opaque != opaque)
        return NULL;
    connection_untake(c, &c->slots[i]);
    return &c->slots[i];
}
