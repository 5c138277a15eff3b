/* The ceiling: the least a broker could possibly do, in bare C on io_uring, one thread. */
#ifndef RINGMQ_CEILING_H
#define RINGMQ_CEILING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "mirror.h"

enum { ANSWER_SIZE = 64, OPAQUES_MAX = 4096, SLICES_MAX = 256 };

/* A mapped log that starts over at its end. */
struct ceiling_log {
    int fd;
    uint8_t *base;
    size_t size, at;
};

struct ceiling_config {
    int port;
    const char *log_path; /* NULL: frames are not copied */
    size_t log_bytes;
    uint32_t pull_count, pull_size; /* pull_count > 0: answer with that many stored messages instead of 64 bytes */
};

struct client {
    int fd, sending, reading;
    struct mirror rx;
    uint32_t opaques[OPAQUES_MAX]; /* requests not answered yet */
    uint32_t waiting, answering;
    uint8_t *heads; /* headers of the answers on their way */
    struct iovec slices[SLICES_MAX];
    uint32_t slice_first, slice_count;
};

/* Creates `path`, allocates and populates `size` bytes. 0 or negative errno. */
int ceiling_log_open(struct ceiling_log *log, const char *path, size_t size);
void ceiling_log_close(struct ceiling_log *log);
void ceiling_log_append(struct ceiling_log *log, const uint8_t *data, size_t len);

/* Writes `write_bytes` and syncs, over and over for `seconds`; syncs per second, or negative errno. */
double ceiling_fdatasync_rate(struct ceiling_log *log, size_t write_bytes, double seconds);

/* A valid answer of ANSWER_SIZE bytes: code 0 and one ext field that fills it up; opaque at offset 13. */
void ceiling_answer(uint8_t out[ANSWER_SIZE]);

/* Head and body of a pull answer with `count` messages of `size` bytes; malloc'ed, NULL when out of memory. */
uint8_t *ceiling_pull_head(uint32_t body_len, uint32_t *len);
uint8_t *ceiling_pull_body(uint32_t count, uint32_t size, uint32_t *len);

/* Copies a file through TCP, the least that a replica's catch-up could do: `out` sends it from its mapping to 127.0.0.1:port
 * and waits for one byte, `in` (prints `ready PORT`) writes `bytes` of one connection into a new file and answers that
 * byte. Seconds from the first byte to the last one, or negative errno. */
double ceiling_copy_out(const char *path, int port);
double ceiling_copy_in(const char *path, int port, size_t bytes);

/* Serves until a signal; 0 or negative errno. Prints `ready PORT` once it listens (port 0: a free one). */
int ceiling_serve(const struct ceiling_config *config);

#endif
