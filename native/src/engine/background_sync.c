#include "engine/background_sync.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plane/plane.h"
#include "plane/ring.h"

enum {
    FILES_BY_NAME = 32, /* with more of them one syncfs is cheaper than a journal commit for each */
};

static int sync_round(const struct rmq_background_sync *s)
{
    if (s->working_whole)
        return syncfs(s->working[0]) < 0 ? -errno : 0;
    for (uint32_t i = 0; i < s->working_count; i++)
        if (fdatasync(s->working[i]) < 0)
            return -errno;
    return 0;
}

static void *thread_main(void *argument)
{
    struct rmq_background_sync *s = argument;
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_BATCH, &none);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->stop)
            pthread_cond_wait(&s->wake, &s->lock);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->lock);
        int rc = sync_round(s);
        if (rmq_sync_switch() == 'q')
            rc = -EIO;
        if (rc < 0)
            rmq_store(s->fault, (uint64_t)(uint32_t)-rc << 32 | RMQ_FAULT_QUEUE_SYNC);
        for (uint32_t i = 0; i < s->working_count; i++)
            close(s->working[i]);
        pthread_mutex_lock(&s->lock);
        s->working_count = 0;
        if (rc < 0 && !s->error)
            s->error = rc; /* never again: the kernel has forgotten which pages were dirty */
        if (!s->error)
            s->done_mark = s->working_mark;
        s->rounds++;
        s->busy = 0;
        pthread_cond_broadcast(&s->idle);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int rmq_background_sync_open(struct rmq_background_sync *s, const char *folder, uint64_t *fault)
{
    memset(s, 0, sizeof *s);
    s->fault = fault;
    s->pending_whole = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->idle, NULL);
    int rc = -pthread_create(&s->thread, NULL, thread_main, s);
    s->started = rc == 0;
    if (rc < 0)
        return rc;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : rmq_background_sync_add(s, fd);
}

int rmq_background_sync_all(const struct rmq_background_sync *s)
{
    return s->pending_count > (s->pending_whole ? 0 : FILES_BY_NAME);
}

int rmq_background_sync_add(struct rmq_background_sync *s, int fd)
{
    if (rmq_background_sync_all(s)) { /* descriptors are scarce */
        close(fd);
        return 0;
    }
    if (s->pending_count == s->pending_size) {
        uint32_t size = s->pending_size ? s->pending_size * 2 : 64;
        int *more = realloc(s->pending, size * sizeof *more);
        if (!more) {
            close(fd);
            return -ENOMEM;
        }
        s->pending = more;
        s->pending_size = size;
    }
    s->pending[s->pending_count++] = fd;
    return 0;
}

int rmq_background_sync_start(struct rmq_background_sync *s, int64_t mark)
{
    int started = 0;
    pthread_mutex_lock(&s->lock);
    if (!s->busy && s->started) {
        int *files = s->working;
        uint32_t size = s->working_size;
        s->working = s->pending;
        s->working_size = s->pending_size;
        s->working_count = s->pending_count;
        s->working_whole = rmq_background_sync_all(s);
        s->working_mark = mark;
        s->pending = files;
        s->pending_size = size;
        s->pending_count = 0;
        s->pending_whole = 0; /* a failed round is the last one anyway */
        s->busy = started = 1;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return started;
}

int rmq_background_sync_busy(struct rmq_background_sync *s)
{
    pthread_mutex_lock(&s->lock);
    int busy = s->busy;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

int rmq_background_sync_wait(struct rmq_background_sync *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->idle, &s->lock);
    int error = s->error;
    pthread_mutex_unlock(&s->lock);
    return error;
}

int64_t rmq_background_sync_done(struct rmq_background_sync *s, int *error)
{
    pthread_mutex_lock(&s->lock);
    int64_t mark = s->done_mark;
    *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return mark;
}

void rmq_background_sync_close(struct rmq_background_sync *s)
{
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->stop = 1;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->wake);
        pthread_cond_destroy(&s->idle);
    }
    for (uint32_t i = 0; i < s->pending_count; i++)
        close(s->pending[i]);
    free(s->pending);
    free(s->working);
    memset(s, 0, sizeof *s);
}
