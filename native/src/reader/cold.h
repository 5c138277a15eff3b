/* cold.h: cold frames. They go to the inbox of the answerer that the table of answerers names for their code, which for most
 * codes is control. The answerer's verdicts come back (verdicts.c). Frames wait for an answerer that is not serving or has
 * not been started yet, at most RMQ_ASK_TIMEOUT_MS. After that time, or if the answerer dies while it handles a frame, the
 * client is told to try again.
 *
 * Sends and pulls are kept, so that control can answer REDO once the reason is gone (a topic was made, a group is known).
 * Responses of clients to control's own requests carry the pending id RMQ_NONE, because they get no verdict. Only as many
 * reach control as it has requested.
 *
 * What stays true:
 * - The table of answerers stays as it was at the start: every answerer is below answerer_count.
 * - asked[a] is the number of entries of kind COLD whose answerer is a. Those to run again count for the answerer until they
 *   are run.
 * - counts[a] and bytes[a] of an open connection are those of its entries at answerer a, without polls that are asked again.
 * - Entries in the queue of redos are of kind COLD and hold their frame; no verdict finds them.
 */
#ifndef RMQ_COLD_H
#define RMQ_COLD_H

#include "plane/asks.h"
#include "reader/answers.h"
#include "reader/held.h"
#include "reader/pending.h"
#include "reader/records.h"

#define RMQ_REDO_MAX 3
#define RMQ_HELD_DEATHS_MAX 3
/* Bounds of the frames that an answerer has and has not answered: a flood may fill neither its inbox nor its time. An answerer
 * answers in the order of arrival, so a frame waits for all frames ahead of it. A connection may have RMQ_COLD_TOTAL frames at an
 * answerer, less the frames of all connections there, but always one. So each of many floods has a few frames, and the frame of
 * another connection waits for about RMQ_COLD_TOTAL answers. The frame with which a connection exceeds its bytes is still taken,
 * so a frame may be larger than the bound. Answerers share no bound: frames for one do not wait for frames at another. */
#define RMQ_COLD_TOTAL 128u
#define RMQ_COLD_BYTES_MAX (1u << 20)

/* The payload of a pending entry of kind COLD. */
struct rmq_ask {
    uint64_t position;         /* in the inbox */
    uint64_t frame_at;         /* in the arena, of a frame that is kept */
    struct rmq_joined *answer; /* chunks of the verdict so far */
    uint32_t bytes;            /* as it went into the inbox */
    uint32_t frame_bytes;
    uint32_t held;             /* the poll that was held before and is asked again; index + 1, 0 = none, or it is gone */
    uint8_t answerer;
    uint8_t redone;            /* runs of the frame after the first one */
    uint8_t rule;              /* RMQ_REDO_*, of the next run */
    uint8_t is_again;          /* asked again: it counts for no connection */
    uint32_t begun;            /* asked again: start_generation of the answerer that has it, 0 = none serves */
};
_Static_assert(sizeof(struct rmq_ask) <= RMQ_PENDING_PAYLOAD_BYTES, "it is a payload");

static inline struct rmq_ask *rmq_ask_of(struct rmq_pending *p) { return (struct rmq_ask *)p->payload; }

struct rmq_cold {
    struct rmq_read_context *context;
    struct rmq_arena *arena;
    struct rmq_connections *connections;
    struct rmq_outputs *outputs;
    struct rmq_answers *answers;
    struct rmq_pendings *pendings;
    struct rmq_records *records;
    struct rmq_held *held;
    uint32_t answerer_count;
    uint32_t begun[RMQ_ANSWERERS_MAX]; /* generations of the answerers as last seen; control's is that of its role */
    uint32_t asked[RMQ_ANSWERERS_MAX];
    uint32_t asked_max[RMQ_ANSWERERS_MAX];
    int64_t look_next_ms;              /* at answerers that are asked and do not serve */
    uint32_t redo_head, redo_tail;
    uint32_t wakes, unwoken;           /* answerers with new asks, a bit each; asks that these may sleep through */
};

void rmq_cold_open(struct rmq_cold *cold, struct rmq_answers *answers, struct rmq_pendings *pendings, struct rmq_records *records,
                   struct rmq_held *held);
void rmq_cold_close(struct rmq_cold *cold); /* before the pending entries */
/* `redone`: how often control has said "run it again". DONE or STALL. */
enum rmq_outcome rmq_cold_frame(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                                uint32_t length, struct rmq_frame_ref *ref, uint32_t redone);
/* SYSTEM_BUSY. `text` holds one %s, for the answerer's name. */
void rmq_cold_refuse(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint32_t answerer,
                     const char *text);
/* SYSTEM_ERROR, likewise. */
void rmq_cold_error(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint32_t answerer,
                    const char *text);
/* Wakes the answerers that this turn has asked. */
void rmq_cold_wake_asked(struct rmq_cold *cold);
/* The same, unless there is none. */
static inline void rmq_cold_wake(struct rmq_cold *cold)
{
    if (cold->wakes)
        rmq_cold_wake_asked(cold);
}
void rmq_ask_release(struct rmq_cold *cold, struct rmq_pending *p);
void rmq_inbox_head(const struct rmq_read_context *context, const struct rmq_connections *connections,
                    const struct rmq_connection *c, struct rmq_inbox_record *to);
/* The answerers that have had frames of a closed connection hear of its close. 0 or -ENOBUFS: again later. */
int rmq_cold_report_closed(struct rmq_cold *cold, struct rmq_connection *c);
void rmq_cold_forget(struct rmq_connection *c); /* the bytes of a frame that control sends of its own accord */

static inline uint32_t rmq_cold_count(const struct rmq_connection *c)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < RMQ_ANSWERERS_MAX; a++)
        count += c->cold.counts[a];
    return count;
}

/* Frames of clients that this answerer holds. Polls that it is asked for again leave the places of these alone. */
static inline uint32_t rmq_cold_asked(const struct rmq_cold *cold, uint32_t answerer)
{
    return cold->asked[answerer] - cold->held->asked_of[answerer];
}

/* The number of frames that one connection may have at this answerer now, at least 1. */
static inline uint32_t rmq_cold_max(const struct rmq_cold *cold, uint32_t answerer)
{
    uint32_t count = rmq_cold_asked(cold, answerer);
    return count + 1 < RMQ_COLD_TOTAL ? RMQ_COLD_TOTAL - count : 1;
}

static inline int rmq_cold_is_full(const struct rmq_cold *cold, const struct rmq_connection *c, uint32_t answerer)
{
    return c->cold.counts[answerer] >= rmq_cold_max(cold, answerer) || c->cold.bytes[answerer] >= RMQ_COLD_BYTES_MAX;
}

/* The answerer that the connection's next frame waits for, RMQ_NONE = none. */
static inline uint32_t rmq_cold_awaits(const struct rmq_connection *c) { return c->cold.awaits ? c->cold.awaits - 1u : RMQ_NONE; }

static inline void rmq_cold_await(struct rmq_connection *c, uint32_t answerer) { c->cold.awaits = (uint8_t)(answerer + 1); }

static inline void rmq_cold_goes_on(struct rmq_connection *c) { c->cold.awaits = 0; }

/* A connection that waited for a full answerer may go on. */
static inline int rmq_cold_has_room(const struct rmq_cold *cold, const struct rmq_connection *c)
{
    uint32_t answerer = rmq_cold_awaits(c);
    return answerer == RMQ_NONE || (c->cold.counts[answerer] <= rmq_cold_max(cold, answerer) / 2 &&
                                    c->cold.bytes[answerer] <= RMQ_COLD_BYTES_MAX / 2);
}

/* Asks whose answerer may be dormant or dead: they have a time. Held polls wait for its replacement. */
static inline int rmq_cold_has_others(const struct rmq_cold *cold)
{
    return cold->pendings->counts[RMQ_PENDING_COLD] != cold->asked[RMQ_CONTROL_ANSWERER] || cold->held->count;
}

/* Frames to be run again, the oldest first. A frame that has been run leaves the queue and gives its entry back. */
void rmq_redo_later(struct rmq_cold *cold, struct rmq_pending *p);
static inline struct rmq_pending *rmq_redo_first(const struct rmq_cold *cold)
{
    return cold->redo_head == RMQ_NONE ? NULL : &cold->pendings->table[cold->redo_head];
}
void rmq_redo_done(struct rmq_cold *cold);

/* held_asks.c */
void rmq_held_take(struct rmq_cold *cold, struct rmq_connection *c, struct rmq_pending *p, const struct rmq_verdict *v); /* HOLD */
void rmq_held_verdict(struct rmq_cold *cold, const struct rmq_verdict *v, uint32_t answerer); /* RMQ_VERDICT_HELD */
void rmq_held_watch(struct rmq_cold *cold, uint32_t answerer, uint32_t generation); /* the answerer has it, perhaps a new one */
void rmq_held_ask_again(struct rmq_cold *cold); /* some of those that a new answerer has to be told of */
int rmq_held_waits(const struct rmq_cold *cold); /* there are more */
/* An answerer has died with an ask of these in its hands. If RMQ_HELD_DEATHS_MAX have, the poll may be the cause: then its client
 * gets an error, and the ask and the poll are over. Returns 1 if they are. The record may be in the inbox until it is void. */
int rmq_held_died(struct rmq_cold *cold, struct rmq_pending *p);
void rmq_held_lost(struct rmq_cold *cold, struct rmq_pending *p); /* such an ask gets no verdict: it is made again */
void rmq_held_expire(struct rmq_cold *cold); /* behind the verdicts of the round */
void rmq_held_end(struct rmq_cold *cold, struct rmq_held_poll *poll);
void rmq_held_forget(struct rmq_cold *cold, struct rmq_connection *c); /* those of a closed connection */

/* verdicts.c */
uint32_t rmq_verdicts_drain(struct rmq_cold *cold);
int rmq_verdicts_wait(const struct rmq_cold *cold);
void rmq_answerers_watch(struct rmq_cold *cold);
#endif
