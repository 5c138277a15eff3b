/* A random mix over an event engine and real TCP connections: `driver ENGINE SEED STEPS`. Sends, receives, stops, closes, resets
 * by the peer and numbers that are taken again, in any order, with few buffers and small takes. A model holds what the engine
 * promises:
 * - An event is of an operation that is under way, of the connection that has the descriptor now. Each ends once.
 * - Bytes come whole and in order over stops, parts and turns. A buffer is given out once before it is lent again.
 * - In the end every operation ends, and every byte that was sent arrived unless its connection was closed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.c"
#include "engine/epoll.c"
#include "engine/read_pool.c"
#include "engine/uring.c"

enum { CONNECTIONS = 24, BUFFERS = 8, BUFFER_BYTES = 4096, SEND_MAX = 300000, WRITE_MAX = 30000, PERIOD = 251, LAST_ROUNDS = 20000 };

#define MUST(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "step %llu, line %d: %s (errno %d)\n", (unsigned long long)step, __LINE__, #condition, errno);      \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

struct connection {
    int fd, peer;               /* peer -1: gone */
    uint32_t generation;
    int receives, once, stopping, sends, closing, is_reset;
    uint64_t heard, said;       /* bytes from the peer, as received and as written */
    uint64_t taken, delivered;  /* bytes to the peer, as the engine took them and as it read them */
    size_t sending;
    struct iovec vectors[3];
    struct msghdr message;
};

static struct rmq_engine *engine;
static uint8_t buffers[BUFFERS * BUFFER_BYTES], out[SEND_MAX + PERIOD];
static int is_lent[BUFFERS];
static struct connection all[CONNECTIONS];
static uint64_t step, chance, ended, hung_up;
static int listen_fd;
static struct sockaddr_in address;

static uint32_t draw(uint32_t below)
{
    chance = chance * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(chance >> 33) % below;
}

static uint8_t byte_at(uint64_t position) { return (uint8_t)(position % PERIOD); }

static uint64_t tag_of(const struct connection *c) { return (uint64_t)(c - all) << 32 | c->generation; }

static void connect_pair(struct connection *c)
{
    int one = 1, small = 8192;
    uint32_t generation = c->generation + 1;
    *c = (struct connection){.generation = generation, .peer = socket(AF_INET, SOCK_STREAM, 0)};
    MUST(c->peer >= 0 && connect(c->peer, (struct sockaddr *)&address, sizeof address) == 0);
    c->fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    MUST(c->fd >= 0 && fcntl(c->peer, F_SETFL, O_NONBLOCK) == 0);
    setsockopt(c->peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (draw(2))
        setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
}

static void lend_some(void)
{
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (!is_lent[i] && draw(2)) {
            is_lent[i] = 1;
            rmq_engine_lend(engine, &i, 1);
        }
}

/* --- what a connection does ----------------------------------------------------------------------------------- */

static void peer_writes(struct connection *c)
{
    uint8_t bytes[WRITE_MAX];
    size_t length = 1 + draw(WRITE_MAX - 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(c->said + i);
    ssize_t n = send(c->peer, bytes, length, MSG_NOSIGNAL);
    c->said += n > 0 ? (uint64_t)n : 0;
}

static void peer_reads(struct connection *c)
{
    uint8_t bytes[65536];
    ssize_t n = read(c->peer, bytes, draw(2) ? sizeof bytes : 1 + draw(5000));
    for (ssize_t i = 0; i < n; i++)
        MUST(bytes[i] == byte_at(c->delivered + (uint64_t)i));
    c->delivered += n > 0 ? (uint64_t)n : 0;
}

static void peer_leaves(struct connection *c)
{
    struct linger at_once = {1, 0};
    if (draw(2))
        setsockopt(c->peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(c->peer);
    c->peer = -1;
    c->is_reset = 1;
}

static void ask_bytes(struct connection *c)
{
    c->once = (int)draw(2);
    MUST((c->once ? rmq_engine_receive_once : rmq_engine_receive)(engine, c->fd, tag_of(c)) == 0);
    c->receives = 1;
    c->stopping = 0;
}

static void send_some(struct connection *c)
{
    size_t length = 1 + draw(draw(3) ? 3000 : SEND_MAX - 1), first = length / 3, second = length / 2;
    uint8_t *from = out + c->taken % PERIOD;
    c->vectors[0] = (struct iovec){from, length};
    c->message = (struct msghdr){.msg_iov = c->vectors, .msg_iovlen = 1};
    if (first && draw(2)) {
        c->vectors[0].iov_len = first;
        c->vectors[1] = (struct iovec){from + first, second - first};
        c->vectors[2] = (struct iovec){from + second, length - second};
        c->message.msg_iovlen = 3;
    }
    MUST(rmq_engine_send(engine, c->fd, &c->message, tag_of(c)) == 0);
    c->sending = length;
    c->sends = 1;
}

static void hang_up_when_over(struct connection *c)
{
    if (!c->closing || c->receives || c->sends)
        return;
    rmq_engine_hang_up(engine, c->fd);
    if (c->peer >= 0)
        close(c->peer);
    c->fd = -1;
    hung_up++;
}

static void begin_close(struct connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->closing = 1;
    hang_up_when_over(c);
}

/* --- events --------------------------------------------------------------------------------------------------- */

static void heard(struct connection *c, const struct rmq_event *event)
{
    MUST(c->receives);
    if (event->result > 0) {
        MUST(event->buffer < BUFFERS && is_lent[event->buffer]);
        is_lent[event->buffer] = 0;
        const uint8_t *bytes = buffers + event->buffer * BUFFER_BYTES;
        for (int32_t i = 0; i < event->result; i++)
            MUST(bytes[i] == byte_at(c->heard + (uint64_t)i));
        c->heard += (uint64_t)event->result;
        MUST(c->heard <= c->said && (!c->once || !event->more));
    } else {
        MUST(event->buffer == RMQ_NO_BUFFER && !event->more);
        MUST(event->result != -ECANCELED || c->stopping);
    }
    c->receives = event->more;
    ended += !event->more;
    int is_over = event->result == 0 || (event->result < 0 && event->result != -ENOBUFS && event->result != -ECANCELED);
    MUST(!is_over || c->is_reset || c->closing);
    if (is_over && !c->closing)
        begin_close(c);
}

static void sent(struct connection *c, const struct rmq_event *event)
{
    MUST(c->sends && !event->more && event->result != 0 && event->result <= (int64_t)c->sending);
    MUST(event->result > 0 || c->is_reset || c->closing);
    c->sends = 0;
    ended++;
    if (event->result > 0)
        c->taken += (uint64_t)event->result;
    else if (!c->closing)
        begin_close(c);
}

static void take_events(int64_t timeout_ns)
{
    struct rmq_event events[16];
    MUST(rmq_engine_wait(engine, timeout_ns) == 0);
    uint32_t count = rmq_engine_take(engine, events, 2 + draw(15));
    for (uint32_t i = 0; i < count; i++) {
        struct connection *c = &all[events[i].tag >> 32];
        MUST(c->fd >= 0 && c->generation == (uint32_t)events[i].tag);
        if (events[i].kind == RMQ_EVENT_RECEIVED)
            heard(c, &events[i]);
        else
            sent(c, &events[i]);
        if (c->closing)
            hang_up_when_over(c);
    }
}

static void act(struct connection *c)
{
    if (c->fd < 0)
        connect_pair(c);
    switch (draw(16)) {
    case 0: case 1: case 2:
        if (c->peer >= 0)
            peer_writes(c);
        break;
    case 3: case 4: case 5:
        if (c->peer >= 0)
            peer_reads(c);
        break;
    case 6: case 7: case 8: case 9:
        if (!c->receives && !c->closing)
            ask_bytes(c);
        break;
    case 10:
        if (c->receives && !c->stopping && !c->once)
            c->stopping = rmq_engine_receive_stop(engine, c->fd, tag_of(c)) == 0;
        break;
    case 11: case 12: case 13:
        if (!c->sends && !c->closing)
            send_some(c);
        break;
    case 14:
        if (!draw(6) && !c->closing)
            begin_close(c);
        break;
    default:
        if (!draw(6) && c->peer >= 0)
            peer_leaves(c);
    }
}

/* Everything comes to its end: what is under way arrives, then all connections close. */
static void end_all(void)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        if (all[i].fd >= 0 && !all[i].closing && !all[i].receives)
            ask_bytes(&all[i]);
    for (int round = 0, open = 1; open && round < LAST_ROUNDS; round++) {
        open = 0;
        take_events(100000);
        lend_some();
        for (uint32_t i = 0; i < CONNECTIONS; i++) {
            struct connection *c = &all[i];
            if (c->fd < 0)
                continue;
            open = 1;
            if (c->peer >= 0)
                peer_reads(c);
            int is_quiet = c->peer < 0 || (!c->sends && c->heard == c->said && c->delivered == c->taken);
            if (!c->closing && !c->receives)
                ask_bytes(c);
            else if (!c->closing && is_quiet)
                begin_close(c);
        }
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        MUST(all[i].fd < 0);
}

int main(int argc, char **argv)
{
    const char *call;
    socklen_t length = sizeof address;
    if (argc != 4)
        return 2;
    chance = strtoull(argv[2], NULL, 10);
    struct rmq_engine_options options = {.kind = strcmp(argv[1], "epoll") == 0 ? RMQ_ENGINE_EPOLL : RMQ_ENGINE_IO_URING,
                                         .buffers = buffers, .buffer_bytes = BUFFER_BYTES, .buffer_count = BUFFERS,
                                         .entries = 64, .wake_fd = -1};
    MUST(rmq_engine_open(&engine, &options, &call) == 0);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = byte_at(i);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listen_fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(listen_fd, 128) == 0);
    MUST(getsockname(listen_fd, (struct sockaddr *)&address, &length) == 0);
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        connect_pair(&all[i]);
    for (uint64_t steps = strtoull(argv[3], NULL, 10); step < steps; step++) {
        act(&all[draw(CONNECTIONS)]);
        if (!draw(4))
            take_events(draw(8) ? 0 : 100000);
        if (!draw(8))
            lend_some();
    }
    end_all();
    rmq_engine_close(engine);
    printf("%llu %llu\n", (unsigned long long)ended, (unsigned long long)hung_up);
    return 0;
}
