/* engine_kit.h: an event engine, sockets for it, and the words of its scenes. Includes the sources of the engines.
 *
 * A driver ends with a table of scenes: `driver ENGINE SCENE` plays one on `io_uring` or `epoll`. A scene that fails ends the
 * program with the line of its rule.
 */
#ifndef ENGINE_KIT_H
#define ENGINE_KIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/engine.c"
#include "engine/epoll.c"
#include "engine/read_pool.c"
#include "engine/uring.c"

enum { BUFFERS = 16, BUFFER_BYTES = 4096, ROUNDS = 4000, ROUND_NS = 10000000, EVENTS = 64, MANY = 40 };

#define UNUSED __attribute__((unused))
#define MUST(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);                                          \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

static uint32_t kind;
static struct rmq_engine *engine;
static uint8_t buffers[BUFFERS * BUFFER_BYTES];
static struct rmq_event queue[EVENTS];
static uint32_t queue_head, queue_count;
static int wake_fd;

static UNUSED void open_engine(uint32_t lent)
{
    const char *call;
    uint32_t all[BUFFERS];
    wake_fd = eventfd(0, EFD_NONBLOCK);
    struct rmq_engine_options options = {.kind = kind, .buffers = buffers, .buffer_bytes = BUFFER_BYTES, .buffer_count = BUFFERS,
                                         .entries = 64, .wake_fd = wake_fd};
    MUST(rmq_engine_open(&engine, &options, &call) == 0);
    for (uint32_t i = 0; i < BUFFERS; i++)
        all[i] = i;
    rmq_engine_lend(engine, all, lent);
}

static UNUSED void lend(uint32_t buffer) { rmq_engine_lend(engine, &buffer, 1); }

static UNUSED int wait_ns(int64_t timeout_ns)
{
    if (queue_count)
        return 1;
    MUST(rmq_engine_wait(engine, timeout_ns) == 0);
    queue_head = 0;
    queue_count = rmq_engine_take(engine, queue, EVENTS);
    return queue_count != 0;
}

/* The next event, whatever it takes. */
static UNUSED struct rmq_event next(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (wait_ns(ROUND_NS)) {
            queue_count--;
            return queue[queue_head++];
        }
    }
    MUST(!"an event comes");
    exit(1);
}

static UNUSED struct rmq_event next_of(uint8_t event_kind, uint64_t tag)
{
    struct rmq_event event = next();
    MUST(event.kind == event_kind && event.tag == tag);
    return event;
}

/* The kernel is asked several times, and has nothing. */
static UNUSED void no_event(void)
{
    for (int i = 0; i < 5; i++)
        MUST(!wait_ns(1000000));
}

static UNUSED int listener(struct sockaddr_in *at)
{
    socklen_t length = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    MUST(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 128) == 0);
    MUST(getsockname(fd, (struct sockaddr *)at, &length) == 0);
    return fd;
}

static UNUSED int connected(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    MUST(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* A TCP connection: [0] is ours, [1] the peer's. */
static UNUSED void pair(int fds[2])
{
    struct sockaddr_in at;
    int listen_fd = listener(&at);
    fds[1] = connected(&at);
    fds[0] = accept(listen_fd, NULL, NULL);
    MUST(fds[0] >= 0);
    close(listen_fd);
}

static UNUSED void say(int fd, const char *text) { MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text)); }

/* The bytes that come for `tag` are `text`, in one receive or several; each event says that the receive goes on, or not. */
static UNUSED void hear(uint64_t tag, const char *text, int more)
{
    size_t heard = 0, length = strlen(text);
    while (heard < length) {
        struct rmq_event event = next_of(RMQ_EVENT_RECEIVED, tag);
        MUST(event.result > 0 && event.buffer < BUFFERS && event.more == more && heard + (size_t)event.result <= length);
        MUST(memcmp(buffers + event.buffer * BUFFER_BYTES, text + heard, (size_t)event.result) == 0);
        heard += (size_t)event.result;
        lend(event.buffer);
    }
}

struct scene {
    const char *name;
    void (*play)(void);
};

static int play_scene(int argc, char **argv, const struct scene *scenes, size_t count)
{
    if (argc != 3)
        return 2;
    kind = strcmp(argv[1], "epoll") == 0 ? RMQ_ENGINE_EPOLL : RMQ_ENGINE_IO_URING;
    for (size_t i = 0; i < count; i++)
        if (strcmp(scenes[i].name, argv[2]) == 0) {
            scenes[i].play();
            rmq_engine_close(engine);
            puts("played");
        }
    return 0;
}
#endif
