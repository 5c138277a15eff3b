/* reader.h: the read role. Sockets -> frames -> requests to write, pulls from mapped files, answers.
 *
 * Way of a frame: engine event -> frames (split, straddling frames into blocks) -> routes (which way) ->
 *   send:  send_decode -> admission -> sends -> request ring ... completion rings -> completions -> output
 *   pull:  pulls (consume queue, tag filter, log pages) -> output; parking holds it when nothing is there
 *   other: cold -> inbox of an answerer ... its answers -> verdicts -> output
 * Each part is a struct with a header that says what must stay true of it. reader.c wires the parts and runs their rounds.
 * The arena (shared, mapped by write too) is receive_buffer_count provided buffers, then reassembly_bytes_max of blocks, then
 * the scratch: RMQ_SCRATCH_BYTES for each request that may be under way, for the pairs that the broker adds to it.
 */
#ifndef RMQ_READER_H
#define RMQ_READER_H

#include "plane/plane.h"

/* cdef-begin */
/* counters of role READ + reader in struct rmq_role */
#define RMQ_READ_CONNECTIONS 0        /* open now */
#define RMQ_READ_ACCEPTED 1
#define RMQ_READ_FRAMES 2
#define RMQ_READ_BYTES_IN 3
#define RMQ_READ_BYTES_OUT 4
#define RMQ_READ_APPENDS 5            /* requests pushed to write */
#define RMQ_READ_PULLS 6
#define RMQ_READ_PULLED_MESSAGES 7
#define RMQ_READ_COLD 8               /* frames given to control */
#define RMQ_READ_PARKED 9             /* pulls held now */
#define RMQ_READ_CLOSED_PEER 10       /* by the client, or a socket error */
#define RMQ_READ_CLOSED_FRAME 11      /* bad length, type or header */
#define RMQ_READ_CLOSED_IDLE 12
#define RMQ_READ_CLOSED_SLOW 13       /* does not read its answers */
#define RMQ_READ_CLOSED_PARTIAL 14    /* an incomplete frame grew too old */
#define RMQ_READ_CLOSED_MEMORY 15     /* the system gave none */
#define RMQ_READ_CLOSED_CONTROL 16    /* by verdict, or because control started again */
#define RMQ_READ_OVERLOAD 17          /* answers SYSTEM_BUSY given here */
#define RMQ_READ_STALLS 18            /* times a connection had to wait for memory, the request ring or its reader */
#define RMQ_READ_STALE 19             /* completions and verdicts for closed connections, answers of clients without a waiting
                                       * request */
#define RMQ_READ_CLOSED_SHORTAGE 20   /* it held receive buffers or blocks that others waited for (eviction.c) */
#define RMQ_READ_CLOSED_LARGE 21      /* a frame larger than frame_bytes_max or than the arena's room for one */
#define RMQ_READ_CLOSED_FULL 22       /* accepted beyond connections_max, or silent when places ran short */
#define RMQ_READ_SHORT_MS 23          /* monotonic: the latest close of reason SHORTAGE or ANSWERS; 0 = never */
#define RMQ_READ_BUFFERS_FREE 24
#define RMQ_READ_BLOCK_BYTES_FREE 25
#define RMQ_READ_CLOSED_ANSWERS 26    /* one of the largest backlogs while those of all exceeded answer_bytes_max */
#define RMQ_READ_ANSWER_BYTES 27      /* memory of answers that wait */
#define RMQ_READ_PRIVATE_BYTES 28     /* memory beside the arena: connections, answers, held pulls, requests under way */
#define RMQ_READ_CLOSED_HOST 29       /* accepted beyond host_connections_max */
#define RMQ_READ_FILTERED 30          /* messages that SQL92 conditions of pulls did not want */
#define RMQ_READ_FILTER_LIMITED 31    /* pulls that ended at the bound on the work of their condition */
#define RMQ_READ_NAMED_MESSAGES 32    /* records of the log that answers of answerers have named */
#define RMQ_READ_UNSENT 33            /* answers that were dropped before their first byte left, and whose answerer was told */
#define RMQ_READ_HELD 34              /* polls that wait for an answerer now */
#define RMQ_READ_PULLS_FOUND 35       /* looks at a queue for a pull that found messages */
#define RMQ_READ_PULLS_MISSED 36      /* those that found none; a held pull has one before it is held */
#define RMQ_READ_PULL_NS_MAX 37       /* the longest round with such a look; a pull is answered in its round */
#define RMQ_READ_COUNTERS 52

struct rmq_reader;

/* The part of the arena behind buffers and blocks; `request_slots` of the reader's request ring. */
uint64_t rmq_reader_scratch_bytes(uint32_t request_slots);
/* The read worker of that port, with the generation that the supervisor has given its role. Arena and eventfds are mapped in
 * `plane`. The caller owns the listening sockets; vip_listen_fd -1 = none. NULL with *error = -errno: -EINVAL if a setting of
 * the arena is impossible. */
struct rmq_reader *rmq_reader_open(struct rmq_plane *plane, uint32_t port, int listen_fd, int vip_listen_fd, int *error);
#define RMQ_RUN_HUNG 5 /* bytes wait on the reader's sockets and none was received for 5 s: replace the process */
/* RMQ_RUN_BUDGET, RMQ_RUN_STOPPED (stop_requested is set; ready requests have been answered), RMQ_RUN_HUNG, or -errno.
 * Returns early (RMQ_RUN_BUDGET) after a signal. */
int rmq_reader_run(struct rmq_reader *reader, int64_t budget_ns);
/* Closes every connection. */
void rmq_reader_close(struct rmq_reader *reader);
/* cdef-end */
#endif
