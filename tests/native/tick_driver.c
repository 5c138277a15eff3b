/* The tick of a reader over one connection whose answer has waited too long: prints what it does about it, with and without
 * reads from the disk under way. The connection's other parts do nothing. */
#include <stdio.h>

#include "driver_invariant.h"
#include "reader/closings.c"
#include "reader/connections.c"
#include "reader/eviction_rules.c"
#include "reader/overdue.c"

void rmq_held_forget(struct rmq_cold *cold, struct rmq_connection *c) { (void)cold, (void)c; }
int rmq_cold_report_closed(struct rmq_cold *cold, struct rmq_connection *c) { return (void)cold, (void)c, 0; }
void rmq_cold_forget(struct rmq_connection *c) { (void)c; }
void rmq_output_forget(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, (void)c; }
void rmq_output_end(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, (void)c; }
void rmq_output_closing(struct rmq_outputs *o, struct rmq_connection *c) { (void)o, (void)c; }
void rmq_input_forget(struct rmq_arena *a, struct rmq_input *input) { (void)a, (void)input; }
int rmq_input_lateness(const struct rmq_input *input, uint32_t timeout_ms, uint32_t time_ms, int64_t now_ms)
{
    return (void)input, (void)timeout_ms, (void)time_ms, (void)now_ms, RMQ_FRAME_ON_TIME;
}
void rmq_park_forget(struct rmq_parking *parking, struct rmq_connection *c) { (void)parking, (void)c; }
int rmq_engine_accept(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
int rmq_engine_accept_stop(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
int rmq_engine_receive_stop(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
void rmq_engine_hang_up(struct rmq_engine *engine, int fd) { (void)engine, close(fd); }
int rmq_engine_receive_once(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }
int rmq_engine_receive(struct rmq_engine *engine, int fd, uint64_t tag) { return (void)engine, (void)fd, (void)tag, 0; }

static const char *tick(uint32_t reads, int64_t waited_ms)
{
    static struct rmq_read_context context;
    static struct rmq_connections connections;
    static struct rmq_arena arena;
    static struct rmq_output output;
    uint32_t closed;
    struct rmq_settings settings = {.send_stall_timeout_ms = 1000};
    struct rmq_connection c = {.fd = -1, .state = RMQ_CONNECTION_OPEN, .output = {.queue = &output, .sending = 1}};
    output = (struct rmq_output){.count = 1, .reads = reads, .progress_ms = 5000};
    context = (struct rmq_read_context){.settings = &settings, .now_ms = output.progress_ms + waited_ms};
    connections = (struct rmq_connections){.context = &context, .table = &c, .used = 1, .closed = &closed};
    struct rmq_closings closings = {.context = &context, .arena = &arena, .connections = &connections};
    rmq_overdue_close(&closings);
    return c.state == RMQ_CONNECTION_OPEN ? "open" : context.counters[RMQ_READ_CLOSED_SLOW] ? "slow" : "closed";
}

int main(void)
{
    printf("%s %s %s\n", tick(0, 1000), tick(0, 1001), tick(2, 60000));
    return 0;
}
