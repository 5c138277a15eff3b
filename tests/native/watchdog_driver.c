/* A reader whose receives never come back, over real sockets: prints after how many looks it says that it is deaf, or "hears"
 * after 20, in four situations. */
#include <stdio.h>
#include <unistd.h>

#include "reader/watchdog.c"

enum { SILENT, BYTES_WAIT, STALLED, HEARS };

static void look(int situation)
{
    static struct rmq_read_context context;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (situation != SILENT && write(pair[1], "x", 1) != 1))
        return;
    struct rmq_connection connections[3] = {{.state = RMQ_CONNECTION_FREE},
        {.state = RMQ_CONNECTION_OPEN, .fd = pair[0], .input.stall = situation == STALLED ? RMQ_STALL_RING : 0}, {.fd = -1}};
    const struct rmq_connections all = {.table = connections, .used = 3};
    struct rmq_watchdog watchdog = {.context = &context, .connections = &all};
    context = (struct rmq_read_context){.now_ms = 50000};
    for (int looks = 1; looks <= 20; looks++, context.now_ms += 1000) {
        context.counters[RMQ_READ_BYTES_IN] += situation == HEARS && looks % 4 == 0;
        if (rmq_reader_is_hung(&watchdog)) {
            printf("%d ", looks);
            break;
        }
        if (looks == 20)
            printf("hears ");
    }
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    for (int situation = SILENT; situation <= HEARS; situation++)
        look(situation);
    return 0;
}
