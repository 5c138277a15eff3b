/* read_pool.h: threads that bring mapped bytes into memory while their owner goes on. Of this room alone.
 *
 * Threads start when reads come, RMQ_READ_THREADS at most, and stay until the pool is closed. A process that never reads from disk
 * has none, so the process that others are forked from has none either. The threads block all signals.
 *
 * A read that fails is done all the same: the owner's send meets the fault then, or faults the bytes in itself.
 */
#ifndef RMQ_READ_POOL_H
#define RMQ_READ_POOL_H

#include <pthread.h>
#include <stdint.h>

#define RMQ_READ_THREADS 8u /* as io_uring has for this on two CPUs */

struct rmq_read_job {
    struct rmq_read_job *next;
    const void *at;
    uint32_t bytes;
    uint64_t tag;
};

struct rmq_read_queue {
    struct rmq_read_job *first, *last;
};

struct rmq_read_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t threads[RMQ_READ_THREADS];
    uint32_t thread_count, idle, waiting_count, stop;
    struct rmq_read_queue waiting, done;
    int done_fd; /* eventfd, written when `done` is empty no more */
};

/* `done_fd` stays the owner's. 0 or -errno. */
int rmq_read_pool_open(struct rmq_read_pool *pool, int done_fd);
/* Queues a read, which the pool owns from now on. Where no thread can be started, it is done at once, without being read. */
void rmq_read_pool_add(struct rmq_read_pool *pool, struct rmq_read_job *job);
/* Moves the reads that are done to the end of `to`; the caller frees them. */
void rmq_read_pool_take(struct rmq_read_pool *pool, struct rmq_read_queue *to);
/* Waits for the reads under way and drops the others. */
void rmq_read_pool_close(struct rmq_read_pool *pool);

void rmq_read_queue_push(struct rmq_read_queue *queue, struct rmq_read_job *job);
struct rmq_read_job *rmq_read_queue_pop(struct rmq_read_queue *queue); /* NULL: empty */
#endif
