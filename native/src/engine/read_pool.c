#include "engine/read_pool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK_BYTES = 256 << 10, PAGE = 4096 };

void rmq_read_queue_push(struct rmq_read_queue *queue, struct rmq_read_job *job)
{
    job->next = NULL;
    if (queue->last)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
}

struct rmq_read_job *rmq_read_queue_pop(struct rmq_read_queue *queue)
{
    struct rmq_read_job *job = queue->first;
    if (!job)
        return NULL;
    queue->first = job->next;
    if (!queue->first)
        queue->last = NULL;
    return job;
}

/* Before Linux 5.14 madvise cannot bring pages in. A load would, but it raises SIGBUS where the file was cut. A write to a file in
 * memory has the kernel load one byte of each page, and ends with EFAULT there. */
static void read_by_write(const uint8_t *at, size_t bytes)
{
    int fd = memfd_create("ringmq-read", MFD_CLOEXEC);
    if (fd < 0)
        return;
    for (size_t i = 0; i < bytes; i += PAGE)
        if (pwrite(fd, at + i, 1, 0) < 0)
            break;
    close(fd);
}

static void read_pages(const struct rmq_read_job *job)
{
    uint8_t *start = (uint8_t *)((uintptr_t)job->at & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1));
    size_t bytes = (size_t)((const uint8_t *)job->at + job->bytes - start);
    if (madvise(start, bytes, MADV_POPULATE_READ) < 0 && errno == EINVAL)
        read_by_write(start, bytes);
}

/* The pool is locked. The owner is told once for all that it finds when it looks. */
static void finish(struct rmq_read_pool *pool, struct rmq_read_job *job)
{
    uint64_t one = 1;
    int is_first = !pool->done.first;
    rmq_read_queue_push(&pool->done, job);
    if (is_first) {
        ssize_t n = write(pool->done_fd, &one, sizeof one);
        (void)n; /* the owner reads nothing from it, and 2^64 rounds do not happen */
    }
}

static void *thread_main(void *argument)
{
    struct rmq_read_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct rmq_read_job *job = NULL;
        while (!pool->stop && !(job = rmq_read_queue_pop(&pool->waiting))) {
            pool->idle++;
            pthread_cond_wait(&pool->wake, &pool->lock);
            pool->idle--;
        }
        if (pool->stop) {
            free(job);
            break;
        }
        pool->waiting_count--;
        pthread_mutex_unlock(&pool->lock);
        read_pages(job);
        pthread_mutex_lock(&pool->lock);
        finish(pool, job);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void start_thread(struct rmq_read_pool *pool)
{
    pthread_attr_t small;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the owner's: its waits end with EINTR */
    if (pthread_create(&pool->threads[pool->thread_count], &small, thread_main, pool) == 0)
        pthread_setname_np(pool->threads[pool->thread_count++], "ringmq-disk");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
}

int rmq_read_pool_open(struct rmq_read_pool *pool, int done_fd)
{
    memset(pool, 0, sizeof *pool);
    pool->done_fd = done_fd;
    int rc = -pthread_mutex_init(&pool->lock, NULL);
    return rc ? rc : -pthread_cond_init(&pool->wake, NULL);
}

void rmq_read_pool_add(struct rmq_read_pool *pool, struct rmq_read_job *job)
{
    pthread_mutex_lock(&pool->lock);
    rmq_read_queue_push(&pool->waiting, job);
    pool->waiting_count++;
    if (pool->waiting_count > pool->idle && pool->thread_count < RMQ_READ_THREADS)
        start_thread(pool);
    if (pool->thread_count) {
        pthread_cond_signal(&pool->wake);
    } else {
        pool->waiting_count--;
        finish(pool, rmq_read_queue_pop(&pool->waiting));
    }
    pthread_mutex_unlock(&pool->lock);
}

void rmq_read_pool_take(struct rmq_read_pool *pool, struct rmq_read_queue *to)
{
    pthread_mutex_lock(&pool->lock);
    if (to->last)
        to->last->next = pool->done.first;
    else
        to->first = pool->done.first;
    if (pool->done.last)
        to->last = pool->done.last;
    pool->done = (struct rmq_read_queue){NULL, NULL};
    pthread_mutex_unlock(&pool->lock);
}

static void free_all(struct rmq_read_queue *queue)
{
    for (struct rmq_read_job *job; (job = rmq_read_queue_pop(queue));)
        free(job);
}

void rmq_read_pool_close(struct rmq_read_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    free_all(&pool->waiting);
    free_all(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->wake);
}
