/* deferred_close.h: deferred close. A thread closes descriptors of deleted files three seconds after their deletion. C only.
 *
 * The problem. One would expect unlink to free a file. It only removes the name. The kernel frees pages and blocks when
 * the last descriptor is closed and the last mapping is unmapped. The thread that does so last pays for it, inside its
 * own close, munmap or unlink. That took 0.28 s for a log file of 1 GiB. It took 0.4 s for a queue file of 6 MB on a busy
 * disk with discard. Read workers map the files of pulls and unmap deleted ones at their tick. So a reader could be the
 * last owner, and all its connections waited for that munmap.
 *
 * Measured. In the soak p99 of sends was 222 ms, and 7 ms since flush keeps deleted log files open
 * (docs/performance.md). A later stall of the soak was caught by its stacks: dispatch stood in the unlink of a queue
 * file and a reader in its munmap, 0.4 s each. Since then dispatch keeps deleted queue and index files open, too.
 *
 * The code. The deleting thread opens the file, unlinks it and hands the descriptor to this thread. In RMQ_DEFERRED_CLOSE_MS
 * every process that has the file mapped unmaps it, which frees nothing. Then this thread closes the last descriptor
 * and frees the file, one after the other. It runs as SCHED_BATCH, so that its wake-up preempts no worker. It is a
 * thread apart from the one that syncs: behind a round of syncs on a busy disk 256 descriptors waited for minutes, but
 * what is deleted has to be free when retention judges the disk again. For log files the thread in flush that makes
 * and deletes them does the same in Python (broker/flush_shell.py, DEFERRED_CLOSE_S).
 *
 * What must stay true.
 * - RMQ_DEFERRED_CLOSE_MS is longer than the time after which each process unmaps a deleted file: a tick of 1 s for queue
 *   readers (rmq_queue_reader_tick). A new kind of process that maps these files has to keep to that.
 * - Descriptors are scarce, so a full list closes at once: that is slow and never wrong. Dispatch gives it a quarter
 *   of its open files, and cleans no further queue while half of them wait (rmq_dispatcher_may_clean).
 * - Nothing relies on the delay. A process that dies closes its descriptors, and the kernel frees the files then.
 * - Space comes back 3 s after a deletion. Retention judges the disk only when nothing waits any more
 *   (broker/flush_shell.py), or it deletes more than it must.
 */
#ifndef RMQ_DEFERRED_CLOSE_H
#define RMQ_DEFERRED_CLOSE_H

#include <pthread.h>
#include <stdint.h>

#define RMQ_DEFERRED_CLOSE_MAX 256u /* descriptors are scarce */
#define RMQ_DEFERRED_CLOSE_MS 3000

struct rmq_deferred_close {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct {
        int fd;
        int64_t due_ms;
    } waiting[RMQ_DEFERRED_CLOSE_MAX]; /* a ring, the oldest at `first` */
    uint32_t first, count, limit;
    int stop, started;
};

/* `limit`: descriptors at a time, at most RMQ_DEFERRED_CLOSE_MAX. 0 or -errno; after an error only close is allowed. */
int rmq_deferred_close_open(struct rmq_deferred_close *deferred_close, uint32_t limit);
/* Takes `fd` over. It is closed at once where there are too many. */
void rmq_deferred_close_add(struct rmq_deferred_close *deferred_close, int fd);
/* Number of waiting descriptors. */
uint32_t rmq_deferred_close_waiting(struct rmq_deferred_close *deferred_close);
/* Unlinks `path` with a descriptor of it kept. 0 or -errno. */
int rmq_deferred_close_unlink(struct rmq_deferred_close *deferred_close, const char *path);
void rmq_deferred_close_close(struct rmq_deferred_close *deferred_close);
#endif
