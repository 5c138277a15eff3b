/* file_sync.h: syncs of files that run beside their owner, and a wait that ends with a sync, a bell or the time. There are two,
 * over io_uring and with a thread, chosen at the opening as for the event engine (engine.h).
 *
 * The owner puts up to `places` syncs, submits them and waits until each has ended. The results come in any order. A bell is an
 * eventfd; the owner says before each wait if it ends the wait. C only.
 */
#ifndef RMQ_FILE_SYNC_H
#define RMQ_FILE_SYNC_H

#include <stdint.h>

#include "plane/settings_layout.h"

struct rmq_file_sync;

enum rmq_sync_end { RMQ_SYNC_TIME, RMQ_SYNC_RUNG, RMQ_SYNC_DONE };

/* 0 or -errno. `kind`: RMQ_ENGINE_IO_URING or RMQ_ENGINE_EPOLL (the thread). `bell_fd` stays the owner's. */
int rmq_file_sync_open(struct rmq_file_sync **sync, uint32_t kind, uint32_t places, int bell_fd);
/* Waits for the syncs under way, where the kernel does not. */
void rmq_file_sync_close(struct rmq_file_sync *sync);
/* With `data_only` as fdatasync, else as fsync. Nothing happens before the submit. */
void rmq_file_sync_put(struct rmq_file_sync *sync, int fd, int data_only);
/* Starts what was put. 0, or -errno: then none of it can be waited for. */
int rmq_file_sync_submit(struct rmq_file_sync *sync);
/* A bell that is rung from now on ends a wait. Taken back by its end alone. 0 or -errno. */
int rmq_file_sync_listen(struct rmq_file_sync *sync);
/* The end of the wait (enum rmq_sync_end), or -errno (-EINTR: a signal came). RMQ_SYNC_DONE: *result is that of one sync, 0 or
 * -errno. RMQ_SYNC_RUNG: the bell is taken. */
int rmq_file_sync_wait(struct rmq_file_sync *sync, int64_t wait_ms, int *result);
#endif
