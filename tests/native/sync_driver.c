/* Scenes over the file syncs of both engines. `driver ENGINE SCENE` plays one on `io_uring` or `epoll`. A stand-in for fdatasync
 * and fsync of the C library shows what the thread asks for; the kernel's own syncs of io_uring are seen by their results. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses_threads;

static int create_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument)
{
    return refuses_threads ? EAGAIN : pthread_create(thread, attributes, main, argument);
}

#define pthread_create create_thread
#include "engine/file_sync.c"
#include "engine/thread_sync.c"
#include "engine/uring_sync.c"

enum { PLACES = 9, LONG_MS = 60000 };

#define MUST(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);                                          \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

static uint32_t kind;
static struct rmq_file_sync *sync_;
static int bell;
static atomic_int held, data_syncs, whole_syncs;

/* The thread's syncs wait while `held` is set. */
static int stand_in(int fd, atomic_int *count)
{
    struct stat found;
    while (held)
        usleep(1000);
    atomic_fetch_add(count, 1);
    if (fstat(fd, &found) < 0)
        return -1;
    if (!S_ISFIFO(found.st_mode))
        return 0;
    errno = EINVAL; /* as the kernel says of a pipe */
    return -1;
}

int fdatasync(int fd) { return stand_in(fd, &data_syncs); }
int fsync(int fd) { return stand_in(fd, &whole_syncs); }

static int file(void)
{
    char path[] = "/tmp/ringmq-sync-XXXXXX";
    int fd = mkstemp(path);
    MUST(fd >= 0 && write(fd, "text", 4) == 4);
    unlink(path);
    return fd;
}

static void open_sync(void)
{
    bell = eventfd(0, EFD_NONBLOCK);
    MUST(rmq_file_sync_open(&sync_, kind, PLACES, bell) == 0);
}

static int next_result(void)
{
    int result = 1;
    MUST(rmq_file_sync_wait(sync_, LONG_MS, &result) == RMQ_SYNC_DONE);
    return result;
}

/* --- scenes --------------------------------------------------------------------------------------------------- */

static void rounds(void)
{
    int fd = file(), folder = open("/tmp", O_RDONLY | O_DIRECTORY);
    open_sync();
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < PLACES - 1; i++)
            rmq_file_sync_put(sync_, fd, 1);
        rmq_file_sync_put(sync_, folder, 0);
        MUST(rmq_file_sync_submit(sync_) == 0);
        for (int i = 0; i < PLACES; i++)
            MUST(next_result() == 0);
    }
    int result;
    MUST(rmq_file_sync_wait(sync_, 1, &result) == RMQ_SYNC_TIME);
    MUST(kind != RMQ_ENGINE_EPOLL || (data_syncs == 50 * (PLACES - 1) && whole_syncs == 50));
}

/* Each sync has its own result, and none is tried twice. */
static void failures(void)
{
    int fd = file(), ends[2], failed = 0;
    MUST(pipe(ends) == 0);
    open_sync();
    rmq_file_sync_put(sync_, fd, 1);
    rmq_file_sync_put(sync_, ends[0], 1);
    rmq_file_sync_put(sync_, fd, 1);
    MUST(rmq_file_sync_submit(sync_) == 0);
    for (int i = 0; i < 3; i++) {
        int result = next_result();
        MUST(result == 0 || result == -EINVAL);
        failed += result == -EINVAL;
    }
    MUST(failed == 1 && (kind != RMQ_ENGINE_EPOLL || data_syncs == 3));
}

/* Without a thread (a limit of processes) the syncs run all the same, each once. The next ones have their thread. */
static void without_threads(void)
{
    int fd = file(), ends[2], failed = 0;
    MUST(pipe(ends) == 0);
    open_sync();
    for (int round = 0; round < 4; round++) {
        refuses_threads = round < 3;
        rmq_file_sync_put(sync_, fd, 1);
        rmq_file_sync_put(sync_, ends[0], 1);
        rmq_file_sync_put(sync_, fd, 0);
        MUST(rmq_file_sync_submit(sync_) == 0);
        for (int i = 0; i < 3; i++) {
            int result = next_result();
            MUST(result == 0 || result == -EINVAL);
            failed += result == -EINVAL;
        }
    }
    int result;
    MUST(rmq_file_sync_wait(sync_, 1, &result) == RMQ_SYNC_TIME);
    MUST(failed == 4 && (kind != RMQ_ENGINE_EPOLL || (data_syncs == 8 && whole_syncs == 4)));
}

static void nothing_put(void)
{
    int result;
    open_sync();
    MUST(rmq_file_sync_submit(sync_) == 0);
    MUST(rmq_file_sync_wait(sync_, 1, &result) == RMQ_SYNC_TIME);
}

/* A bell that is listened for ends a wait once; it is heard again when it was asked for again. */
static void bells(void)
{
    uint64_t one = 1;
    int result;
    open_sync();
    MUST(rmq_file_sync_listen(sync_) == 0 && rmq_file_sync_listen(sync_) == 0);
    MUST(rmq_file_sync_wait(sync_, 1, &result) == RMQ_SYNC_TIME);
    for (int i = 0; i < 50; i++) {
        MUST(rmq_file_sync_listen(sync_) == 0);
        MUST(write(bell, &one, sizeof one) == sizeof one);
        MUST(rmq_file_sync_wait(sync_, LONG_MS, &result) == RMQ_SYNC_RUNG);
        MUST(read(bell, &one, sizeof one) < 0 && errno == EAGAIN); /* taken */
        one = 1;
    }
    MUST(write(bell, &one, sizeof one) == sizeof one);
    MUST(rmq_file_sync_wait(sync_, 20, &result) == RMQ_SYNC_TIME); /* nobody listens */
    MUST(rmq_file_sync_listen(sync_) == 0);
    MUST(rmq_file_sync_wait(sync_, LONG_MS, &result) == RMQ_SYNC_RUNG); /* rung before */
}

/* The bell ends the wait for a slow sync, whose result comes later. */
static void bell_beside_a_slow_sync(void)
{
    uint64_t one = 1;
    int fd = file(), result = 1, rung = 0, done = 0;
    open_sync();
    held = 1;
    rmq_file_sync_put(sync_, fd, 1);
    MUST(rmq_file_sync_submit(sync_) == 0);
    MUST(rmq_file_sync_listen(sync_) == 0);
    MUST(write(bell, &one, sizeof one) == sizeof one);
    while (!rung || !done) {
        int rc = rmq_file_sync_wait(sync_, LONG_MS, &result);
        MUST(rc == RMQ_SYNC_RUNG || rc == RMQ_SYNC_DONE);
        rung += rc == RMQ_SYNC_RUNG;
        done += rc == RMQ_SYNC_DONE;
        MUST(kind != RMQ_ENGINE_EPOLL || rung || !done); /* the thread is held until the bell was heard */
        held = held && !rung;
    }
    MUST(rung == 1 && done == 1 && result == 0);
}

static void close_while_syncing(void)
{
    int fd = file();
    open_sync();
    for (int i = 0; i < PLACES; i++)
        rmq_file_sync_put(sync_, fd, 1);
    MUST(rmq_file_sync_submit(sync_) == 0);
}

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {
    {"rounds", rounds},
    {"failures", failures},
    {"without_threads", without_threads},
    {"nothing_put", nothing_put},
    {"bells", bells},
    {"bell_beside_a_slow_sync", bell_beside_a_slow_sync},
    {"close_while_syncing", close_while_syncing},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    kind = strcmp(argv[1], "epoll") == 0 ? RMQ_ENGINE_EPOLL : RMQ_ENGINE_IO_URING;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(scenes[i].name, argv[2]) == 0) {
            scenes[i].play();
            rmq_file_sync_close(sync_);
            puts("played");
        }
    return 0;
}
