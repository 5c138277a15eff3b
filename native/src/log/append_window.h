/* append_window.h: the writable piece of the CommitLog that the write role works in. C only.
 *
 * A helper thread keeps two files mapped: the file of the append position and the next one. It faults pages in ahead of the
 * append position (MADV_POPULATE_WRITE), so that no request pays for block mapping and write faults. It unmaps files that the
 * append position has left.
 *
 * The thread may also run on the CPU of the flush role. Clearing pages costs more than filling them, and with few CPUs the
 * appender shares its CPU with a reader. The appender never waits for the thread: a page that is not populated costs a minor
 * fault, and a missing file is reported.
 */
#ifndef RMQ_APPEND_WINDOW_H
#define RMQ_APPEND_WINDOW_H

#include <pthread.h>

#include "log/segment.h"
#include "plane/layout.h"

#define RMQ_WINDOW_SLOTS 4 /* files mapped at a time: the current one, the next one, and one that is being unmapped */

struct rmq_append_window {
    const char *directory;
    const struct rmq_role *neighbour;           /* the helper runs on its CPU */
    uint64_t segment_bytes;
    uint64_t window_bytes;
    int large_folios;
    struct rmq_segment slots[RMQ_WINDOW_SLOTS]; /* helper alone writes */
    uint64_t published[RMQ_WINDOW_SLOTS];       /* helper: segment number + 1 when the slot may be used */
    uint64_t populated;                         /* helper: the log is faulted in up to here */
    uint64_t advised;                           /* helper: large folios were wished for up to here */
    uint64_t populated_bytes;                   /* helper: sum, for the counter */
    uint64_t position;                          /* appender: it will not touch anything below */
    uint32_t next_wanted;                       /* appender: waits for the file behind `position` */
    uint32_t stop;
    int error;                                  /* helper: last -errno of mapping, 0 = fine or not there yet */
    int event_fd;
    struct rmq_bell bell;
    pthread_t thread;
    int started;
};

/* Maps the file of `position` itself (so that errors are known here) and starts the helper. 0 or -errno. */
int rmq_append_window_open(struct rmq_append_window *window, const struct rmq_settings *settings,
                           const struct rmq_role *neighbour, uint64_t position);
void rmq_append_window_close(struct rmq_append_window *window);

/* Address of a log offset, NULL while its file is not mapped. Good up to the end of its file. */
static inline char *rmq_append_window_at(struct rmq_append_window *window, uint64_t offset)
{
    uint64_t number = offset / window->segment_bytes, slot = number % RMQ_WINDOW_SLOTS;
    if (__atomic_load_n(&window->published[slot], __ATOMIC_ACQUIRE) != number + 1)
        return NULL;
    return window->slots[slot].base + (offset - window->slots[slot].offset);
}

/* The appender is done below `position`; wakes the helper when there is work for it. */
void rmq_append_window_move(struct rmq_append_window *window, uint64_t position);
/* The file behind the one of `position` is needed now: look for it often until it is there. */
void rmq_append_window_want_next(struct rmq_append_window *window, int wanted);
#endif
