/* A reader's answers over a simulated kernel that takes what it is handed: CLIENTS connections with much to send, behind them
 * one with little. Prints for each turn the bytes that were handed over in all, and those of the last connection. */
#include <stdio.h>
#include <stdlib.h>

#include "reader/reader_output.c"
#include "reader/eviction_rules.c"
#include "reader/turn_rules.c"

enum { CLIENTS = 20, MUCH = 3 << 20, LITTLE = 1000, TURNS_MAX = 100 };

static struct rmq_reader r;
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
void rmq_connection_close(struct rmq_connections *all, struct rmq_connection *c, uint32_t reason) { (void)all, (void)c, (void)reason, exit(3); }
void rmq_closings_evict(struct rmq_reader *reader, struct rmq_connection *c, uint32_t reason) { rmq_connection_close(&reader->connections, c, reason); }

int main(void)
{
    struct rmq_plane_header *header = calloc(1, sizeof *header);
    header->settings = (struct rmq_settings){.answer_bytes_max = 1u << 30, .send_queue_bytes_max = 32u << 20};
    r = (struct rmq_reader){.context = {.header = header, .settings = &header->settings, .now_ms = 1}, .connections = {.used = CLIENTS + 1}};
    r.connections.table = calloc(CLIENTS + 1, sizeof *r.connections.table);
    r.dirty = calloc(CLIENTS + 1, sizeof *r.dirty);
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        r.connections.table[i].state = RMQ_CONNECTION_OPEN;
        for (uint32_t n = 0; n < (i < CLIENTS ? MUCH / sizeof bytes : 1); n++)
            rmq_output_bytes(&r, &r.connections.table[i], bytes, i < CLIENTS ? sizeof bytes : LITTLE);
    }
    for (int turn = 0; turn < TURNS_MAX && r.outputs_used; turn++) {
        uint64_t all = 0;
        rmq_output_flush(&r);
        for (uint32_t i = 0; i <= CLIENTS; i++) {
            uint64_t now = handed[i] - sent[i];
            all += now;
            sent[i] = handed[i];
            if (now)
                rmq_output_sent(&r, &(struct rmq_event){.tag = (uint64_t)i << 32, .result = (int32_t)now, .kind = RMQ_EVENT_SENT});
        }
        printf("%llu %llu\n", (unsigned long long)all, (unsigned long long)sent[CLIENTS]);
    }
    rmq_outputs_close(&r);
    free(r.connections.table);
    free(r.dirty);
    free(header);
    return 0;
}
