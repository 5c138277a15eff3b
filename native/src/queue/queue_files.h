/* queue_files.h: the ConsumeQueue files that dispatch writes. C only.
 *
 * <root>/consumequeue/<topic>/<queueId>/<20 digits>, every file at its full length from creation (a stock broker
 * accepts no other); a full disk is an error code (queue_window.h). At most `open_max` files are kept open, the ones
 * used last.
 */
#ifndef RMQ_QUEUE_FILES_H
#define RMQ_QUEUE_FILES_H

#include "engine/background_sync.h"
#include "engine/deferred_close.h"
#include "plane/plane.h"
#include "queue/consume_queue.h"
#include "queue/queue_window.h"

struct rmq_queue_file {
    int fd;
    uint32_t slot;
    uint64_t start;         /* byte offset in the queue, from the file's name */
    uint32_t newer, older;  /* file number + 1, 0 = end */
    uint8_t dirty;
    struct rmq_queue_window window;
};

struct rmq_queue_files {
    struct rmq_plane *plane;
    struct rmq_background_sync *sync;
    struct rmq_deferred_close *deferred_close;
    uint64_t file_bytes;
    uint32_t open_max, open_count;
    struct rmq_queue_file *files;
    uint32_t *by_slot;      /* file number + 1 of the queue's open file, 0 = none */
    uint32_t newest, oldest;
    uint64_t writes;        /* calls of write */
    char root[RMQ_PATH_MAX];
};

int rmq_queue_files_open(struct rmq_queue_files *files, struct rmq_plane *plane, struct rmq_background_sync *sync,
                         struct rmq_deferred_close *deferred_close, uint32_t open_max);
void rmq_queue_files_close(struct rmq_queue_files *files);

/* Puts `count` encoded units from queue offset `first` on, in as many files as it takes. `max_offset`: end of the
 * queue's units, published or not. 0 or -errno. */
int rmq_queue_files_write(struct rmq_queue_files *files, uint32_t slot, uint64_t first, const uint8_t *units,
                          uint64_t count, uint64_t max_offset);
/* The unit at queue offset `at`: 1 = it names a record, 0 = nothing is written there or a filler, or -errno. */
int rmq_queue_files_read(struct rmq_queue_files *files, uint32_t slot, uint64_t at, struct rmq_cq_unit *unit);
/* Filler units for [first, end). */
int rmq_queue_files_fill(struct rmq_queue_files *files, uint32_t slot, uint64_t first, uint64_t end);
/* First unit of the file that holds queue offset `at`. */
uint64_t rmq_queue_files_file_start(const struct rmq_queue_files *files, uint64_t at);
/* Hands every dirty file to the background sync; 0 or -errno. */
int rmq_queue_files_collect(struct rmq_queue_files *files);
/* Closes the queue's open file. */
void rmq_queue_files_drop(struct rmq_queue_files *files, uint32_t slot);
/* Files that lie wholly below the log go, min_offset follows (RocketMQ: deleteExpiredFile, correctMinOffset). */
int rmq_queue_files_clean(struct rmq_queue_files *files, uint32_t slot, uint64_t min_commit_log_offset);
#endif
