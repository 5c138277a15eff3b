/* queue_window.h: the part of a ConsumeQueue file that short runs of units are stored into. C only.
 *
 * Many queues cost a write call for every few units. So for a queue with short runs, the rest of a block is written ahead as
 * zeros, which the file holds there anyway. The next units are stored through a mapping. On a full disk
 * the call that writes ahead fails, never a store.
 */
#ifndef RMQ_QUEUE_WINDOW_H
#define RMQ_QUEUE_WINDOW_H

#include <stdint.h>

struct rmq_queue_window {
    uint8_t *base;                 /* NULL = not mapped */
    uint64_t mapped_from;          /* byte of the file */
    uint64_t ready_from, ready_to; /* bytes of the file that have been written, so that they have pages */
    uint32_t short_runs;           /* seen so far */
    int plain;                     /* only write calls: no mapping to be had, or a page was missing */
};

/* Puts `length` bytes of whole units at byte `at` of the file of `file_bytes`. A death in this call leaves whole units from the
 * first on. The next one lacks its size or, if a page ends in it, half of its tags code; recovery repairs it. `at_end`: no unit
 * in use follows, so zeros may be written there. Returns the calls of write that it took (0 = stored), or -errno. */
int rmq_queue_window_put(struct rmq_queue_window *window, int fd, uint64_t file_bytes, uint64_t at,
                         const uint8_t *units, uint64_t length, int at_end);
void rmq_queue_window_close(struct rmq_queue_window *window);
#endif
