/* reader_state.h: the read role's private state, shared by reader_*.c. Nothing here is seen by another process. */
#ifndef RMQ_READER_STATE_H
#define RMQ_READER_STATE_H

#include "codec/answer.h"
#include "codec/frame_header.h"
#include "codec/send_decode.h"
#include "engine/engine.h"
#include "plane/asks.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "reader/answers.h"
#include "reader/arena.h"
#include "reader/closings.h"
#include "reader/cold.h"
#include "reader/connections.h"
#include "reader/junk.h"
#include "reader/output.h"
#include "reader/parking.h"
#include "reader/pending.h"
#include "reader/pulls.h"
#include "reader/eviction_rules.h"
#include "reader/read_context.h"
#include "reader/reader.h"
#include "reader/request_codes.h"
#include "reader/sends.h"
#include "reader/turn.h"

/* --- the reader ----------------------------------------------------------------------------------------------- */

struct rmq_reader {
    struct rmq_read_context context;
    struct rmq_turn turn;
    struct rmq_role *role;
    int starting;
    int stopping;
    int64_t stop_deadline_ms;
    int64_t opened_ms;
    uint64_t inbox_barrier;

    struct rmq_arena arena;
    int64_t eviction_next_ms;
    uint32_t hung_up_next;
    uint32_t no_room_bytes;  /* no block of that size was found in this round */
    uint32_t room_least;     /* bytes of the smallest frame that waits for a block, 0 = none did at the last look */

    struct rmq_connections connections;
    struct rmq_outputs outputs;
    struct rmq_answers answers;
    struct rmq_pendings pendings;
    struct rmq_cold cold;
    struct rmq_junk junk;
    struct rmq_parking parking;
    struct rmq_pulls pulls;
    struct rmq_sends sends;
    uint32_t *stalled, stalled_count;

    int64_t tick_next_ms;

    /* hearing */
    int64_t watchdog_look_ms;
    uint64_t watchdog_seen;
    uint32_t watchdog_looks, watchdog_next;

    struct rmq_event events[256];
};

/* closings.c */
static inline void rmq_closings_settle(struct rmq_reader *r)
{
    if (r->connections.closed_count)
        rmq_closings_settle_all(r);
}

/* reader_receive.c: bytes -> frames */
void rmq_receive_event(struct rmq_reader *r, const struct rmq_event *event);
void rmq_receive_resume(struct rmq_reader *r); /* stalled connections whose reason is gone */

/* reader_eviction.c: the connections that are closed when buffers or blocks run short */
void rmq_eviction_of_answers(struct rmq_reader *r); /* while they exceed their limit */
void rmq_eviction_poll(struct rmq_reader *r); /* after the stalled have had their turn */

/* reader_watchdog.c. 1 = for 5 s nothing was received while bytes waited on sockets of connections that do not wait. Looks once
 * a second. */
int rmq_reader_is_hung(struct rmq_reader *r);

/* reader_frame.c: which way a frame goes */
/* One whole frame. It takes over the parts of `hold` that it keeps. DONE, STALL (nothing happened: again later) or CLOSED. */
enum rmq_outcome rmq_frame_process(struct rmq_reader *r, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                struct rmq_frame_ref *ref, uint32_t redone);
void rmq_redo_run(struct rmq_reader *r); /* frames that control has approved */

#endif
