/* frames.h: received bytes -> whole frames -> the part that serves them.
 *
 * A frame that ends inside its buffer is used in place. A frame that crosses its end goes to a block at once, so that a slow
 * client never pins a shared buffer. A connection that cannot go on (no block, request ring full, its own answers unread)
 * stalls: its bytes wait in spans, its receive is stopped. A connection that has used its share of a turn waits for the next
 * turn.
 *
 * What stays true:
 * - A connection that is stalled is named once in `stalled`, and is not parsed.
 * - No byte of a frame is given to two parts: a part that keeps the frame takes it out of the frame_ref.
 */
#ifndef RMQ_FRAMES_H
#define RMQ_FRAMES_H

#include "reader/closings.h"
#include "reader/junk.h"
#include "reader/pulls.h"
#include "reader/sends.h"

struct rmq_frames {
    struct rmq_read_context *context;
    struct rmq_arena *arena;
    struct rmq_connections *connections;
    struct rmq_outputs *outputs;
    struct rmq_pendings *pendings;
    struct rmq_cold *cold;
    struct rmq_sends *sends;
    struct rmq_pulls *pulls;
    struct rmq_closings *closings;
    struct rmq_turn *turn;
    struct rmq_junk junk;
    uint32_t *stalled, stalled_count;
    uint32_t no_room_bytes;  /* no block of that size was found in this round */
    uint32_t room_least;     /* bytes of the smallest frame that waits for a block, 0 = none did at the last look */
};

int rmq_frames_open(struct rmq_frames *frames, struct rmq_sends *sends, struct rmq_pulls *pulls, struct rmq_closings *closings);
void rmq_frames_close(struct rmq_frames *frames);
void rmq_receive_event(struct rmq_frames *frames, const struct rmq_event *event);
/* The connection's block is complete. 1 = the connection may go on. */
int rmq_frames_run_block(struct rmq_frames *frames, struct rmq_connection *c);
/* Bytes [at, end) of a buffer, or of a block or copy where they waited: frames are taken out of these, as if they straddled.
 * Returns how far it came: less than `end` when the connection stalled. */
uint32_t rmq_frames_parse(struct rmq_frames *frames, struct rmq_connection *c, const struct rmq_frame_ref *from, uint8_t *copy,
                          uint32_t at, uint32_t end);

/* routes.c: one whole frame. It takes over the parts of `ref` that it keeps. DONE, STALL (nothing happened: again later) or
 * CLOSED. */
enum rmq_outcome rmq_frame_process(struct rmq_frames *frames, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                   struct rmq_frame_ref *ref, uint32_t redone, uint32_t rule);
void rmq_redo_run(struct rmq_frames *frames); /* frames that control has approved */

/* stalls.c */
void rmq_stalls_resume(struct rmq_frames *frames); /* connections whose reason is gone */
void rmq_starved_resume(struct rmq_frames *frames); /* connections that have found no buffer */
/* The connection that has waited longest for a block; `least` gets the one that wants least. NULL = none waits. */
struct rmq_connection *rmq_stalls_first_waiting(struct rmq_frames *frames, struct rmq_connection **least);
#endif
