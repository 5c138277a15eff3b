/* A reader's answers over a simulated kernel that takes what it is handed: CLIENTS connections with much to send, behind them
 * one with little. Prints for each turn the bytes that were handed over in all, and those of the last connection. */
#include <stdio.h>
#include <stdlib.h>

#include "reader/output.c"
#include "reader/sending.c"
#include "reader/turn_rules.c"

enum { CLIENTS = 20, MUCH = 3 << 20, LITTLE = 1000, TURNS_MAX = 100 };

static struct rmq_read_context context;
static struct rmq_connections connections;
static struct rmq_outputs o;
static uint64_t handed[CLIENTS + 1], sent[CLIENTS + 1];
static uint8_t bytes[1 << 20];

int rmq_engine_send(struct rmq_engine *engine, int fd, const struct msghdr *message, uint64_t tag)
{
    (void)engine, (void)fd;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        handed[tag >> 32] += message->msg_iov[i].iov_len;
    return 0;
}
int rmq_engine_read_mapped(struct rmq_engine *engine, const void *at, uint32_t size, uint64_t tag)
{
    return (void)engine, (void)at, (void)size, (void)tag, -1;
}
void rmq_unsent_tell(struct rmq_unsents *unsents, const struct rmq_note *note, uint32_t reason)
{
    (void)unsents, (void)note, (void)reason, exit(3);
}
void rmq_connection_close(struct rmq_connections *all, struct rmq_connection *c, uint32_t reason) { (void)all, (void)c, (void)reason, exit(3); }

int main(void)
{
    struct rmq_plane_header *header = calloc(1, sizeof *header);
    header->settings = (struct rmq_settings){.answer_bytes_max = 1u << 30, .send_queue_bytes_max = 32u << 20};
    context = (struct rmq_read_context){.header = header, .settings = &header->settings, .now_ms = 1};
    connections = (struct rmq_connections){.context = &context, .max = CLIENTS + 1, .used = CLIENTS + 1};
    connections.table = calloc(CLIENTS + 1, sizeof *connections.table);
    if (rmq_outputs_open(&o, &connections, NULL))
        return 2;
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        connections.table[i].state = RMQ_CONNECTION_OPEN;
        for (uint32_t n = 0; n < (i < CLIENTS ? MUCH / sizeof bytes : 1); n++)
            rmq_output_bytes(&o, &connections.table[i], bytes, i < CLIENTS ? sizeof bytes : LITTLE);
    }
    for (int turn = 0; turn < TURNS_MAX && o.used; turn++) {
        uint64_t all = 0;
        rmq_output_flush(&o);
        for (uint32_t i = 0; i <= CLIENTS; i++) {
            uint64_t now = handed[i] - sent[i];
            all += now;
            sent[i] = handed[i];
            if (now)
                rmq_output_sent(&o, &(struct rmq_event){.tag = (uint64_t)i << 32, .result = (int32_t)now, .kind = RMQ_EVENT_SENT});
        }
        printf("%llu %llu\n", (unsigned long long)all, (unsigned long long)sent[CLIENTS]);
    }
    rmq_outputs_close(&o);
    free(connections.table);
    free(header);
    return 0;
}
