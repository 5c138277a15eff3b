#include "engine/deferred_close.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int take_oldest(struct rmq_deferred_close *l)
{
    int fd = l->waiting[l->first].fd;
    l->first = (l->first + 1) % RMQ_DEFERRED_CLOSE_MAX;
    l->count--;
    return fd;
}

static void *thread_main(void *argument)
{
    struct rmq_deferred_close *l = argument;
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_BATCH, &none);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        int64_t due_ms = l->count ? l->waiting[l->first].due_ms : INT64_MAX;
        if (due_ms <= now_ms()) {
            int fd = take_oldest(l);
            pthread_mutex_unlock(&l->lock);
            close(fd);
            pthread_mutex_lock(&l->lock);
        } else if (l->count) {
            struct timespec due = {.tv_sec = due_ms / 1000, .tv_nsec = due_ms % 1000 * 1000000};
            pthread_cond_timedwait(&l->wake, &l->lock, &due);
        } else {
            pthread_cond_wait(&l->wake, &l->lock);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int rmq_deferred_close_open(struct rmq_deferred_close *l, uint32_t limit)
{
    pthread_condattr_t monotonic;
    memset(l, 0, sizeof *l);
    l->limit = limit < RMQ_DEFERRED_CLOSE_MAX ? limit : RMQ_DEFERRED_CLOSE_MAX;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = -pthread_create(&l->thread, NULL, thread_main, l);
    l->started = rc == 0;
    return rc;
}

void rmq_deferred_close_add(struct rmq_deferred_close *l, int fd)
{
    pthread_mutex_lock(&l->lock);
    int has_room = l->count < l->limit;
    if (has_room) {
        uint32_t at = (l->first + l->count++) % RMQ_DEFERRED_CLOSE_MAX;
        l->waiting[at].fd = fd;
        l->waiting[at].due_ms = now_ms() + RMQ_DEFERRED_CLOSE_MS;
        pthread_cond_signal(&l->wake);
    }
    pthread_mutex_unlock(&l->lock);
    if (!has_room)
        close(fd);
}

uint32_t rmq_deferred_close_waiting(struct rmq_deferred_close *l)
{
    pthread_mutex_lock(&l->lock);
    uint32_t count = l->count;
    pthread_mutex_unlock(&l->lock);
    return count;
}

int rmq_deferred_close_unlink(struct rmq_deferred_close *l, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = unlink(path) < 0 ? -errno : 0;
    if (fd >= 0 && rc == 0)
        rmq_deferred_close_add(l, fd);
    else if (fd >= 0)
        close(fd);
    return rc;
}

void rmq_deferred_close_close(struct rmq_deferred_close *l)
{
    if (!l->started)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    while (l->count)
        close(take_oldest(l));
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->wake);
    l->started = 0;
}
