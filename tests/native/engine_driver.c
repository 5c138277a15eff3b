/* Scenes over an event engine and real sockets and files (engine_kit.h). */
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "engine_kit.h"

static void lasting_receive(void)
{
    int fds[2];
    pair(fds);
    open_engine(2);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    no_event();
    for (int i = 0; i < 10; i++) {
        say(fds[1], "hello");
        hear(7, "hello", 1);
    }
    say(fds[1], "last");
    close(fds[1]); /* the bytes come first, then the end, once */
    hear(7, "last", 1);
    struct rmq_event end = next_of(RMQ_EVENT_RECEIVED, 7);
    MUST(end.result == 0 && !end.more);
    no_event();
    rmq_engine_hang_up(engine, fds[0]);
}

static void one_receive(void)
{
    int fds[2];
    pair(fds);
    open_engine(BUFFERS);
    MUST(rmq_engine_receive_once(engine, fds[0], 7) == 0);
    say(fds[1], "one");
    hear(7, "one", 0);
    say(fds[1], "two");
    no_event();
    MUST(rmq_engine_receive_once(engine, fds[0], 8) == 0);
    hear(8, "two", 0);
    rmq_engine_hang_up(engine, fds[0]);
}

/* A buffer is used when bytes are there: one is enough for many sockets that are silent. */
static void few_buffers(void)
{
    int fds[MANY][2];
    open_engine(1);
    for (uint64_t i = 0; i < MANY; i++) {
        pair(fds[i]);
        MUST(rmq_engine_receive(engine, fds[i][0], i) == 0);
    }
    no_event();
    for (uint64_t i = 0; i < MANY; i++) {
        say(fds[i][1], "text");
        hear(i, "text", 1);
    }
}

static void no_buffer(void)
{
    int fds[2];
    pair(fds);
    open_engine(0);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    say(fds[1], "text"); /* io_uring looks for a buffer before there are bytes */
    struct rmq_event event = next_of(RMQ_EVENT_RECEIVED, 7);
    MUST(event.result == -ENOBUFS && event.buffer == RMQ_NO_BUFFER && !event.more);
    no_event(); /* nor is the engine busy with it */
    lend(3);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    hear(7, "text", 1);
}

static void stopped_receive(void)
{
    int fds[2];
    pair(fds);
    open_engine(BUFFERS);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    no_event();
    MUST(rmq_engine_receive_stop(engine, fds[0], 7) == 0);
    struct rmq_event event = next_of(RMQ_EVENT_RECEIVED, 7);
    MUST(event.result == -ECANCELED && !event.more && event.buffer == RMQ_NO_BUFFER);
    say(fds[1], "kept");
    no_event();
    MUST(rmq_engine_receive_stop(engine, fds[0], 7) == 0); /* nothing to stop */
    no_event();
    MUST(rmq_engine_receive(engine, fds[0], 8) == 0);
    hear(8, "kept", 1);
}

/* What nobody asks for keeps no wait from sleeping: unread bytes, an end, an error. */
static void quiet_while_unasked(void)
{
    int fds[2], waits = 0;
    struct linger at_once = {1, 0};
    struct timespec start, now;
    pair(fds);
    open_engine(BUFFERS);
    MUST(rmq_engine_receive_once(engine, fds[0], 7) == 0);
    say(fds[1], "one");
    hear(7, "one", 0);
    say(fds[1], "two");
    setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fds[1]); /* reset */
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        MUST(!wait_ns(20000000));
        waits++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 200);
    MUST(waits <= 13); /* ten whole ones, and those that found that nobody asks */
    MUST(rmq_engine_receive(engine, fds[0], 8) == 0);
    struct rmq_event event = next_of(RMQ_EVENT_RECEIVED, 8);
    if (event.result > 0) /* the kernel may keep what came before the reset */
        event = next_of(RMQ_EVENT_RECEIVED, 8);
    MUST(event.result == -ECONNRESET && !event.more);
}

/* TCP ends a receive at a byte of urgent data. The bytes behind it must come without another one. */
static void urgent_data(void)
{
    int fds[2];
    pair(fds);
    MUST(write(fds[1], "abc", 3) == 3 && send(fds[1], "!", 1, MSG_OOB) == 1);
    say(fds[1], "def");
    usleep(20000); /* span: all of it is there when the receive begins; a slow machine only makes this test weaker */
    open_engine(BUFFERS);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    hear(7, "abcdef", 1);
}

static uint8_t sent_bytes[8 << 20];

static uint8_t letter(size_t at) { return (uint8_t)(at * 31 >> 3); }

/* A slow reader: the engine keeps a message until the socket has room, and reports parts. */
static void partial_send(void)
{
    int fds[2], small = 1 << 16;
    size_t handed = 0, heard = 0;
    uint32_t events = 0;
    struct iovec vectors[2];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
    pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    open_engine(BUFFERS);
    for (size_t i = 0; i < sizeof sent_bytes; i++)
        sent_bytes[i] = letter(i);
    int is_sending = 0;
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    while (heard < sizeof sent_bytes) {
        if (!is_sending && handed < sizeof sent_bytes) {
            size_t first = (sizeof sent_bytes - handed) / 3;
            vectors[0] = (struct iovec){sent_bytes + handed, first};
            vectors[1] = (struct iovec){sent_bytes + handed + first, sizeof sent_bytes - handed - first};
            MUST(rmq_engine_send(engine, fds[0], &message, 9) == 0);
            is_sending = 1;
        }
        if (wait_ns(1000000)) {
            struct rmq_event event = next_of(RMQ_EVENT_SENT, 9);
            MUST(is_sending && event.result > 0 && (size_t)event.result <= sizeof sent_bytes - handed && !event.more);
            memset(sent_bytes + handed, 0, (size_t)event.result); /* taken: the memory is ours again */
            handed += (size_t)event.result;
            is_sending = 0;
            events++;
            if (handed < sizeof sent_bytes)
                continue;
        }
        uint8_t part[5000];
        ssize_t n = read(fds[1], part, sizeof part);
        for (ssize_t i = 0; i < n; i++)
            MUST(part[i] == letter(heard + (size_t)i));
        heard += n > 0 ? (size_t)n : 0;
    }
    MUST(events > 1 && handed == sizeof sent_bytes);
    no_event(); /* a socket with room is no event */
}

/* Fills the socket, so that the message waits in the engine. */
static void stuck_send(int fd, struct msghdr *message, uint64_t tag)
{
    for (;;) {
        MUST(rmq_engine_send(engine, fd, message, tag) == 0);
        for (int i = 0; i < 20 && !wait_ns(5000000); i++)
            ;
        if (!queue_count)
            return;
        MUST(next_of(RMQ_EVENT_SENT, tag).result > 0);
    }
}

/* A shutdown ends a receive and a stuck send with an event each; the number of the socket is free for another one then. */
static void close_while_sending(void)
{
    int fds[2], others[2];
    static struct iovec vector = {sent_bytes, sizeof sent_bytes};
    static struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    pair(fds);
    open_engine(BUFFERS);
    MUST(rmq_engine_receive(engine, fds[0], 7) == 0);
    stuck_send(fds[0], &message, 7);
    say(fds[1], "unheard");
    shutdown(fds[0], SHUT_RDWR);
    int receives = 1, sends = 1, bytes = 0;
    while (receives || sends) {
        struct rmq_event event = next();
        MUST(event.tag == 7 && (event.kind == RMQ_EVENT_RECEIVED ? receives : sends));
        if (event.kind == RMQ_EVENT_SENT) {
            MUST(event.result < 0);
            sends = 0;
        } else if (event.result > 0) {
            bytes += event.result;
            lend(event.buffer);
        } else {
            MUST(!event.more);
            receives = 0;
        }
    }
    MUST(bytes <= 7);
    int number = fds[0];
    rmq_engine_hang_up(engine, fds[0]);
    pair(others);
    MUST(dup2(others[0], number) == number); /* the number is taken again */
    MUST(rmq_engine_receive(engine, number, 8) == 0);
    no_event();
    say(others[1], "new");
    hear(8, "new", 1);
}

/* A reset by the peer ends a stuck send. */
static void reset_while_sending(void)
{
    int fds[2];
    struct linger at_once = {1, 0};
    static struct iovec vector = {sent_bytes, sizeof sent_bytes};
    static struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    pair(fds);
    open_engine(BUFFERS);
    stuck_send(fds[0], &message, 9);
    setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fds[1]);
    struct rmq_event event = next_of(RMQ_EVENT_SENT, 9);
    MUST(event.result == -ECONNRESET || event.result == -EPIPE);
    no_event();
}

static void wakes(void)
{
    uint64_t one = 1;
    open_engine(BUFFERS);
    no_event();
    for (int i = 0; i < 100; i++) {
        MUST(write(wake_fd, &one, sizeof one) == sizeof one);
        MUST(next().kind == RMQ_EVENT_WOKEN);
        MUST(!wait_ns(0));
    }
}

/* Greedy sockets are never empty; a small request behind them comes in a take that has not given each of them many buffers. */
static void fairness(void)
{
    int fds[4][2], small[2];
    uint8_t bytes[BUFFER_BYTES];
    memset(bytes, 'g', sizeof bytes);
    open_engine(BUFFERS);
    for (uint64_t i = 0; i < 4; i++) {
        pair(fds[i]);
        fcntl(fds[i][1], F_SETFL, O_NONBLOCK);
        MUST(rmq_engine_receive_once(engine, fds[i][0], i) == 0);
    }
    pair(small);
    MUST(rmq_engine_receive_once(engine, small[0], 99) == 0);
    for (int round = 0; round < 50; round++) {
        uint32_t before[4] = {0};
        for (uint64_t i = 0; i < 4; i++)
            while (write(fds[i][1], bytes, sizeof bytes) > 0)
                ;
        say(small[1], "x");
        for (int heard = 0; !heard;) {
            struct rmq_event event = next();
            MUST(event.kind == RMQ_EVENT_RECEIVED && event.result > 0);
            lend(event.buffer);
            heard = event.tag == 99;
            int fd = heard ? small[0] : fds[event.tag][0];
            if (!heard)
                MUST(++before[event.tag] <= 8); /* a few takes: loopback delivers when the kernel comes to it */
            MUST(rmq_engine_receive_once(engine, fd, event.tag) == 0);
        }
    }
}

/* Sends that end in each turn do not keep receives waiting. */
static void sends_and_receives(void)
{
    int fds[2], others[2];
    static struct iovec vector = {sent_bytes, 1};
    static struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    pair(fds);
    pair(others);
    open_engine(BUFFERS);
    MUST(rmq_engine_receive(engine, others[0], 5) == 0);
    MUST(rmq_engine_send(engine, fds[0], &message, 9) == 0);
    say(others[1], "text");
    int sent = 0;
    for (int heard = 0; !heard;) {
        struct rmq_event event = next();
        heard = event.kind == RMQ_EVENT_RECEIVED;
        if (heard)
            continue;
        MUST(event.kind == RMQ_EVENT_SENT && event.result == 1 && ++sent < 1000);
        MUST(rmq_engine_send(engine, fds[0], &message, 9) == 0);
    }
}

static uint32_t thread_count(void)
{
    char line[256];
    uint32_t count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        sscanf(line, "Threads: %u", &count);
    fclose(status);
    return count;
}

/* Pages of a file; also where the file ends before them, and where nothing is mapped. */
static void mapped_reads(void)
{
    char path[] = "/tmp/ringmq-engine-XXXXXX";
    int fd = mkstemp(path);
    uint64_t seen = 0;
    enum { PAGES = 64, BYTES = PAGES * 4096 };
    unlink(path);
    MUST(ftruncate(fd, BYTES) == 0);
    uint8_t *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    MUST(at != MAP_FAILED);
    MUST(pwrite(fd, "middle", 6, 8192 + 5) == 6);
    MUST(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    open_engine(BUFFERS);
    uint32_t before = thread_count();
    for (uint64_t i = 0; i < PAGES; i++)
        MUST(rmq_engine_read_mapped(engine, at + i * 4096 + 5, i % 2 ? 1 : 4090, i) == 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        struct rmq_event event = next();
        MUST(event.kind == RMQ_EVENT_READ && event.tag < PAGES && !(seen >> event.tag & 1));
        seen |= 1ull << event.tag;
    }
    MUST(kind != RMQ_ENGINE_EPOLL || thread_count() - before <= RMQ_READ_THREADS);
    uint8_t there[PAGES];
    MUST(mincore(at, BYTES, there) == 0);
    for (uint32_t i = 0; i < PAGES; i++)
        MUST(there[i] & 1);
    MUST(memcmp(at + 8192 + 5, "middle", 6) == 0);
    MUST(ftruncate(fd, 4096) == 0);
    MUST(rmq_engine_read_mapped(engine, at + 8192, 4096, 70) == 0);
    next_of(RMQ_EVENT_READ, 70);
    munmap(at, BYTES);
    MUST(rmq_engine_read_mapped(engine, at, 4096, 71) == 0);
    next_of(RMQ_EVENT_READ, 71);
}

/* A read ends all the same where its threads cannot have what they need, and the next one has it. */
static void read_without_descriptors(void)
{
    static uint8_t at[4096];
    struct rlimit limit, none;
    open_engine(BUFFERS);
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = dup(0);
    none = (struct rlimit){(rlim_t)last + 1, limit.rlim_max};
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        MUST(rmq_engine_read_mapped(engine, at, sizeof at, i) == 0);
        next_of(RMQ_EVENT_READ, i);
    }
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    MUST(rmq_engine_read_mapped(engine, at, sizeof at, 3) == 0);
    next_of(RMQ_EVENT_READ, 3);
    MUST(kind != RMQ_ENGINE_EPOLL || thread_count() == 2);
}

/* The engine is closed while reads are under way. */
static void close_while_reading(void)
{
    static uint8_t at[64 * 4096];
    open_engine(BUFFERS);
    for (uint64_t i = 0; i < 64; i++)
        MUST(rmq_engine_read_mapped(engine, at + i * 4096, 4096, i) == 0);
}

/* No thread before there is something to read. */
static void one_thread(void)
{
    uint32_t before = thread_count();
    lasting_receive();
    MUST(thread_count() == before);
}

static const struct scene scenes[] = {
    {"lasting_receive", lasting_receive},
    {"one_receive", one_receive},
    {"few_buffers", few_buffers},
    {"no_buffer", no_buffer},
    {"stopped_receive", stopped_receive},
    {"quiet_while_unasked", quiet_while_unasked},
    {"urgent_data", urgent_data},
    {"partial_send", partial_send},
    {"close_while_sending", close_while_sending},
    {"reset_while_sending", reset_while_sending},
    {"wakes", wakes},
    {"fairness", fairness},
    {"sends_and_receives", sends_and_receives},
    {"mapped_reads", mapped_reads},
    {"read_without_descriptors", read_without_descriptors},
    {"close_while_reading", close_while_reading},
    {"one_thread", one_thread},
};

int main(int argc, char **argv) { return play_scene(argc, argv, scenes, sizeof scenes / sizeof *scenes); }
