/* ringmq-link: a TCP proxy on the loopback that delays each direction, holds it, or breaks the connection on command. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "link_pipe.h"

enum { CONNECTIONS_MAX = 64, EVENTS_MAX = 64, NEAR = 0, FAR = 1, LISTENER = 1 << 16, COMMANDS };

static const char HELP[] =
    "usage: ringmq-link --to PORT [--port 0] [--delay-ms 0] [--buffer-bytes 67108864]\n"
    "\n"
    "Passes connections to 127.0.0.1:PORT. Every byte leaves --delay-ms after it came, in both directions, at full\n"
    "bandwidth; at most --buffer-bytes are on the way in each. Prints `ready PORT`. Commands on standard input, each\n"
    "answered by a line `NAME CLOCK_MONOTONIC-NS BYTES-TO BYTES-BACK` of all connections so far:\n"
    "  hold-to | hold-back   nothing leaves in that direction (to PORT; back to who connected); connections stay open\n"
    "  flow                  both directions flow again\n"
    "  reset | close         ends all connections by RST, or by FIN\n"
    "  refuse | accept       new connections are closed at once, or passed again\n"
    "  count                 only the answer\n";

/* pipes[NEAR] takes from who connected and gives to PORT, pipes[FAR] the other way. */
struct link_connection {
    int open;
    int fds[2];
    struct link_pipe pipes[2];
    uint32_t interest[2];
};

struct link {
    int epoll, listener, to_port, refusing;
    size_t buffer_bytes;
    uint64_t delay_ns;
    int held[2];
    uint64_t passed[2]; /* by connections that are over */
    struct link_connection connections[CONNECTIONS_MAX];
};

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int watch_fd(struct link *l, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int listen_on(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0)
        return -errno;
    return fd;
}

static void end_connection(struct link *l, struct link_connection *c, int reset)
{
    for (int side = 0; side < 2; side++) {
        l->passed[side] += c->pipes[side].out_bytes;
        struct linger now = {.l_onoff = reset};
        setsockopt(c->fds[side], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(c->fds[side]);
        link_pipe_free(&c->pipes[side]);
    }
    c->open = 0;
}

static void add_connection(struct link *l)
{
    int near = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    if (near < 0)
        return;
    uint64_t i = 0;
    while (i < CONNECTIONS_MAX && l->connections[i].open)
        i++;
    int far = l->refusing || i == CONNECTIONS_MAX ? -ECONNREFUSED : tcp_connect("127.0.0.1", l->to_port);
    if (far < 0) {
        close(near);
        return;
    }
    fcntl(far, F_SETFL, O_NONBLOCK);
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct link_connection *c = &l->connections[i];
    *c = (struct link_connection){.open = 1, .fds = {near, far}};
    int rc = 0;
    for (int side = 0; side < 2; side++) {
        int made = link_pipe_init(&c->pipes[side], l->buffer_bytes, l->delay_ns);
        c->pipes[side].held = l->held[side];
        c->interest[side] = EPOLLIN;
        rc = made < 0 ? made : rc < 0 ? rc : watch_fd(l, c->fds[side], EPOLLIN, 2 * i + (uint64_t)side);
    }
    if (rc < 0) {
        fprintf(stderr, "ringmq-link: new connection: %s\n", strerror(-rc));
        end_connection(l, c, 1);
    }
}

/* Reads what there is, writes what is due and says what it waits for. */
static void serve(struct link *l, struct link_connection *c, const uint32_t ready[2], uint64_t now)
{
    uint32_t wanted[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        struct link_pipe *p = &c->pipes[side];
        int rc = 0;
        if (ready[side] & (EPOLLHUP | EPOLLERR))
            rc = -ECONNRESET;
        else if (ready[side] & EPOLLIN && link_pipe_has_room(p))
            rc = link_pipe_read(p, c->fds[side], now);
        if (rc == 0)
            rc = link_pipe_write(p, c->fds[!side], now);
        if (rc < 0 || link_pipe_done(p)) {
            end_connection(l, c, rc < 0);
            return;
        }
        wanted[side] |= link_pipe_has_room(p) ? EPOLLIN : 0;
        wanted[!side] |= rc == 1 ? EPOLLOUT : 0;
    }
    for (int side = 0; side < 2; side++)
        if (wanted[side] != c->interest[side]) {
            uint64_t data = 2 * (uint64_t)(c - l->connections) + (uint64_t)side;
            struct epoll_event event = {.events = wanted[side], .data.u64 = data};
            epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fds[side], &event);
            c->interest[side] = wanted[side];
        }
}

static void hold(struct link *l, int side, int held)
{
    l->held[side] = held;
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (l->connections[i].open)
            l->connections[i].pipes[side].held = held;
}

static void end_all(struct link *l, int reset)
{
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (l->connections[i].open)
            end_connection(l, &l->connections[i], reset);
}

static int obey(struct link *l, const char *name)
{
    if (strcmp(name, "hold-to") == 0)
        hold(l, NEAR, 1);
    else if (strcmp(name, "hold-back") == 0)
        hold(l, FAR, 1);
    else if (strcmp(name, "flow") == 0)
        hold(l, NEAR, 0), hold(l, FAR, 0);
    else if (strcmp(name, "reset") == 0 || strcmp(name, "close") == 0)
        end_all(l, name[0] == 'r');
    else if (strcmp(name, "refuse") == 0 || strcmp(name, "accept") == 0)
        l->refusing = name[0] == 'r';
    else if (strcmp(name, "count") != 0)
        return -EINVAL;
    uint64_t bytes[2] = {l->passed[NEAR], l->passed[FAR]};
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        for (int side = 0; l->connections[i].open && side < 2; side++)
            bytes[side] += l->connections[i].pipes[side].out_bytes;
    printf("%s %llu %llu %llu\n", name, (unsigned long long)clock_ns(), (unsigned long long)bytes[NEAR],
           (unsigned long long)bytes[FAR]);
    return fflush(stdout) == 0 ? 0 : -errno;
}

/* Takes what standard input holds; 1 when it has ended. */
static int take_commands(struct link *l)
{
    static char text[256];
    static size_t used;
    ssize_t n = read(STDIN_FILENO, text + used, sizeof text - 1 - used);
    if (n <= 0)
        return 1;
    used += (size_t)n;
    text[used] = 0;
    char *line = text, *end;
    while ((end = strchr(line, '\n')) != NULL) {
        *end = 0;
        if (obey(l, line) < 0)
            fprintf(stderr, "ringmq-link: no command %s\n", line);
        line = end + 1;
    }
    used -= (size_t)(line - text);
    memmove(text, line, used);
    return used == sizeof text - 1;
}

static int loop(struct link *l)
{
    for (;;) {
        uint64_t now = clock_ns(), due = UINT64_MAX;
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            for (int side = 0; l->connections[i].open && side < 2; side++) {
                struct link_connection *c = &l->connections[i];
                uint64_t at = c->interest[!side] & EPOLLOUT ? UINT64_MAX : link_pipe_due(&c->pipes[side]);
                due = at < due ? at : due;
            }
        struct epoll_event events[EVENTS_MAX];
        struct timespec limit = {.tv_sec = 3600};
        if (due != UINT64_MAX)
            limit = (struct timespec){.tv_nsec = 0};
        if (due != UINT64_MAX && due > now)
            limit = (struct timespec){(time_t)((due - now) / 1000000000u), (long)((due - now) % 1000000000u)};
        int n = epoll_pwait2(l->epoll, events, EVENTS_MAX, &limit, NULL);
        if (n < 0 && errno != EINTR)
            return -errno;
        uint32_t ready[CONNECTIONS_MAX][2] = {0};
        for (int i = 0; i < n; i++) {
            uint64_t data = events[i].data.u64;
            if (data == LISTENER)
                add_connection(l);
            else if (data == COMMANDS && take_commands(l))
                return 0;
            else if (data < 2 * CONNECTIONS_MAX)
                ready[data / 2][data % 2] = events[i].events;
        }
        now = clock_ns();
        for (int i = 0; i < CONNECTIONS_MAX; i++)
            if (l->connections[i].open)
                serve(l, &l->connections[i], ready[i], now);
    }
}

int main(int argc, char **argv)
{
    static struct link l;
    l = (struct link){.buffer_bytes = 1 << 26, .listener = -1};
    int port = 0;
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i];
        double value = i + 1 < argc ? atof(argv[i + 1]) : -1;
        if (strcmp(name, "--to") == 0 && value > 0)
            l.to_port = (int)value;
        else if (strcmp(name, "--port") == 0 && value >= 0)
            port = (int)value;
        else if (strcmp(name, "--delay-ms") == 0 && value >= 0)
            l.delay_ns = (uint64_t)(value * 1e6);
        else if (strcmp(name, "--buffer-bytes") == 0 && value >= 1 << 16)
            l.buffer_bytes = (size_t)value;
        else
            l.to_port = 0, i = argc;
    }
    if (l.to_port == 0) {
        fputs(HELP, stderr);
        return 1;
    }
    prctl(PR_SET_TIMERSLACK, 1);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.listener = listen_on(port);
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    if (l.listener < 0 || getsockname(l.listener, (struct sockaddr *)&address, &len) < 0 ||
        watch_fd(&l, l.listener, EPOLLIN, LISTENER) < 0 || watch_fd(&l, STDIN_FILENO, EPOLLIN, COMMANDS) < 0) {
        fprintf(stderr, "ringmq-link: port %d: %s\n", port, strerror(l.listener < 0 ? -l.listener : errno));
        return 1;
    }
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    int rc = loop(&l);
    if (rc < 0)
        fprintf(stderr, "ringmq-link: %s\n", strerror(-rc));
    return rc < 0;
}
