/* let_go.h: a thread that closes descriptors of unlinked files some seconds later. C only.
 *
 * Whoever lets go of a file last frees its blocks: 0.3 s for 1 GiB, and 0.4 for a queue file beside a busy disk that is
 * told of it (discard). That should not be a thread that serves: a descriptor is kept until whoever has the file mapped
 * has let go, readers within a second of the new min_offset.
 */
#ifndef RMQ_LET_GO_H
#define RMQ_LET_GO_H

#include <pthread.h>
#include <stdint.h>

#define RMQ_LET_GO_MAX 256u /* descriptors are scarce */
#define RMQ_LET_GO_MS 3000

struct rmq_let_go {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct {
        int fd;
        int64_t due_ms;
    } waiting[RMQ_LET_GO_MAX]; /* a ring, the oldest at `first` */
    uint32_t first, count, limit;
    int stop, started;
};

/* `limit`: descriptors at a time, at most RMQ_LET_GO_MAX. 0 or -errno; after an error only close is allowed. */
int rmq_let_go_open(struct rmq_let_go *let_go, uint32_t limit);
/* Takes `fd` over. It is closed at once where there are too many. */
void rmq_let_go_add(struct rmq_let_go *let_go, int fd);
/* How many wait. */
uint32_t rmq_let_go_waiting(struct rmq_let_go *let_go);
/* Unlinks `path` with a descriptor of it kept. 0 or -errno. */
int rmq_let_go_unlink(struct rmq_let_go *let_go, const char *path);
void rmq_let_go_close(struct rmq_let_go *let_go);
#endif
