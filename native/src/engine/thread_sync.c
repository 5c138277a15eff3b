/* File syncs in a thread of the process: what the owner submits is a queue, what the thread has synced is another one. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/file_sync_kinds.h"

struct place {
    int fd, data_only, result;
};

/* Places go round: those in [done_taken, done) are synced, in [done, submitted) waiting or being synced, in
 * [submitted, put) not submitted. All numbers only grow. */
struct rmq_thread_sync {
    struct rmq_file_sync head;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int done_fd; /* eventfd: written when a sync has ended */
    int started, stop, listens;
    uint32_t count;
    uint64_t done_taken, done, submitted, put;
    struct place places[];
};

static struct place *place_at(struct rmq_thread_sync *sync, uint64_t number) { return &sync->places[number % sync->count]; }

/* The lock is held, and given up meanwhile. */
static void sync_next(struct rmq_thread_sync *sync)
{
    struct place *place = place_at(sync, sync->done);
    uint64_t one = 1;
    pthread_mutex_unlock(&sync->lock);
    int rc = place->data_only ? fdatasync(place->fd) : fsync(place->fd);
    place->result = rc < 0 ? -errno : 0;
    pthread_mutex_lock(&sync->lock);
    sync->done++;
    ssize_t n = write(sync->done_fd, &one, sizeof one);
    (void)n; /* the counter cannot overflow: each wait takes it */
}

static void *thread_main(void *argument)
{
    struct rmq_thread_sync *sync = argument;
    pthread_mutex_lock(&sync->lock);
    for (;;) {
        while (sync->done == sync->submitted && !sync->stop)
            pthread_cond_wait(&sync->wake, &sync->lock);
        if (sync->done == sync->submitted)
            break;
        sync_next(sync);
    }
    pthread_mutex_unlock(&sync->lock);
    return NULL;
}

int rmq_thread_sync_open(struct rmq_thread_sync **out, uint32_t places)
{
    *out = NULL;
    struct rmq_thread_sync *sync = calloc(1, sizeof *sync + places * sizeof *sync->places);
    if (!sync)
        return -ENOMEM;
    sync->count = places;
    sync->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sync->done_fd < 0) {
        int rc = -errno;
        free(sync);
        return rc;
    }
    pthread_mutex_init(&sync->lock, NULL);
    pthread_cond_init(&sync->wake, NULL);
    *out = sync;
    return 0;
}

void rmq_thread_sync_close(struct rmq_thread_sync *sync)
{
    pthread_mutex_lock(&sync->lock);
    sync->stop = 1;
    pthread_cond_signal(&sync->wake);
    pthread_mutex_unlock(&sync->lock);
    if (sync->started)
        pthread_join(sync->thread, NULL);
    pthread_mutex_destroy(&sync->lock);
    pthread_cond_destroy(&sync->wake);
    close(sync->done_fd);
    free(sync);
}

void rmq_thread_sync_put(struct rmq_thread_sync *sync, int fd, int data_only)
{
    *place_at(sync, sync->put++) = (struct place){.fd = fd, .data_only = data_only};
}

static void start_thread(struct rmq_thread_sync *sync)
{
    sync->started = pthread_create(&sync->thread, NULL, thread_main, sync) == 0;
    if (sync->started)
        pthread_setname_np(sync->thread, "ringmq-sync");
}

/* Signals are the owner's: its waits end with EINTR, no sync does. Where no thread can be started, the syncs run here: late
 * answers are better than a flush that ends. */
int rmq_thread_sync_submit(struct rmq_thread_sync *sync)
{
    int was_started = sync->started;
    sigset_t all, before;
    sigfillset(&all);
    if (!was_started)
        pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!was_started && sync->put != sync->submitted)
        start_thread(sync);
    pthread_mutex_lock(&sync->lock);
    sync->submitted = sync->put;
    if (sync->started)
        pthread_cond_signal(&sync->wake);
    while (!sync->started && sync->done != sync->submitted)
        sync_next(sync);
    pthread_mutex_unlock(&sync->lock);
    if (!was_started)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

int rmq_thread_sync_listen(struct rmq_thread_sync *sync)
{
    sync->listens = 1;
    return 0;
}

static int take_done(struct rmq_thread_sync *sync, int *result)
{
    pthread_mutex_lock(&sync->lock);
    int there = sync->done_taken != sync->done;
    if (there)
        *result = place_at(sync, sync->done_taken++)->result;
    pthread_mutex_unlock(&sync->lock);
    return there;
}

int rmq_thread_sync_wait(struct rmq_thread_sync *sync, int64_t wait_ms, int *result)
{
    struct pollfd fds[] = {{.fd = sync->done_fd, .events = POLLIN},
                           {.fd = sync->listens ? sync->head.bell_fd : -1, .events = POLLIN}};
    while (!take_done(sync, result)) {
        uint64_t count;
        int rc = poll(fds, 2, (int)wait_ms);
        if (rc <= 0)
            return rc < 0 ? -errno : RMQ_SYNC_TIME;
        if (fds[1].revents) {
            rmq_sync_bell_take(&sync->head);
            sync->listens = 0;
            return RMQ_SYNC_RUNG;
        }
        ssize_t n = read(sync->done_fd, &count, sizeof count);
        (void)n; /* may be of a sync that was taken without this wait */
    }
    return RMQ_SYNC_DONE;
}
