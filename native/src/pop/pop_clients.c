/* pop_clients.c: the addresses of connections. */
#include "pop/pop_clients.h"

#include <string.h>

uint32_t rmq_pop_client_row(uint32_t hash) { return hash * 2654435761u >> 18; }

uint32_t rmq_pop_client(struct rmq_pop_client *clients, const struct rmq_inbox_record *ask)
{
    uint32_t hash = (ask->connection * 2654435761u) ^ (ask->connection_generation * 40503u) ^
                    (ask->role_generation * 2246822519u) ^ ((uint32_t)ask->role << 24);
    hash = hash ? hash : 1;
    struct rmq_pop_client *client = &clients[rmq_pop_client_row(hash)];
    if (client->hash != hash) {
        *client = (struct rmq_pop_client){.hash = hash, .port = ask->peer_port, .is_v6 = ask->peer_v6};
        memcpy(client->host, ask->peer_host, sizeof client->host);
    }
    return hash;
}
