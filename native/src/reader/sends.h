/* sends.h: sends of clients: an admitted one (admission.h) becomes a slot of the request ring, and its completion an answer.
 * A send that needs control's decision goes cold, unchanged.
 *
 * What stays true:
 * - request_head is at least the published head, and the slots between them are filled. reader.c publishes at least once a
 *   round.
 * - Each request that is filled has a pending entry of kind APPEND, which its completion alone releases.
 * - A send that stalls or goes cold has left its frame as it was.
 */
#ifndef RMQ_SENDS_H
#define RMQ_SENDS_H

#include "admission/admission_rules.h"
#include "reader/answers.h"
#include "reader/pending.h"
#include "reader/redo_rules.h"
#include "reader/send_target.h"
#include "reader/slot_counts.h"
#include "reader/uniq_keys.h"

/* The payload of a pending entry of kind APPEND: what its answer tells the client, and the log of slow requests. */
struct rmq_send_note {
    uint64_t uniq_key_at, batch_at; /* in the arena, 0 = none */
    int64_t recall_ms;
    uint32_t recall_topic_id;       /* of a timer message: the topic in its handle; 0: the answer has none */
    uint32_t batch_length;
    uint32_t topic_id;
    int32_t queue_id;
    uint32_t queued_us;             /* it waited for room */
    uint16_t uniq_key_length;
};
_Static_assert(sizeof(struct rmq_send_note) <= RMQ_PENDING_PAYLOAD_BYTES, "it is a payload");

static inline struct rmq_send_note *rmq_send_note_of(struct rmq_pending *p) { return (struct rmq_send_note *)p->payload; }

struct rmq_sends {
    struct rmq_read_context *context;
    struct rmq_arena *arena;
    struct rmq_answers *answers;
    struct rmq_pendings *pendings;
    struct rmq_ring *requests;
    uint64_t request_head;
    uint64_t fresh;          /* requests of this round that are not published yet and did not wait for room */
    uint32_t round_robin;
    int takes_none;          /* the reader stops: sends stay unanswered */
    struct rmq_uniq_keys uniq_keys;
    struct rmq_redo_rules redo_rules;
    struct rmq_admission_rules *rules; /* as published in rules_version, which is looked at when a send asks for them */
    uint64_t rules_version;
    struct rmq_slot_counts slot_counts;
    uint32_t chance_seed;    /* of the refusals of full slots */
    uint8_t *unescaped;      /* properties of the send at hand that came with JSON escapes */
};

/* The frame that the connection's send waited with is done. */
static inline void rmq_send_waits_no_more(struct rmq_connection *c) { c->sends.stalled_ns = 0; }

int rmq_sends_open(struct rmq_sends *sends, struct rmq_answers *answers, struct rmq_pendings *pendings);
void rmq_sends_close(struct rmq_sends *sends);
/* DONE, STALL or COLD. `approved`: control has approved the frame, so reasons that only ask for its decision do not count.
 * `rule`: RMQ_REDO_*, by which it has. */
enum rmq_outcome rmq_send_frame(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                                uint32_t length, struct rmq_frame_ref *ref, int approved, uint32_t rule);

/* A request can be filled now. */
static inline int rmq_sends_have_room(const struct rmq_sends *sends)
{
    return !sends->takes_none && sends->pendings->counts[RMQ_PENDING_APPEND] < sends->pendings->appends_max &&
           rmq_ring_room(sends->requests, sends->request_head);
}

/* send_requests.c: fills the next slot of the ring. NULL, or why it cannot: nothing was done but to finish the properties. */
const char *rmq_send_push(struct rmq_sends *sends, struct rmq_connection *c, const struct rmq_frame_header *h, struct rmq_send *s,
                          const struct rmq_send_target *target, uint8_t *frame, uint32_t length, struct rmq_frame_ref *ref);
void rmq_sends_publish(struct rmq_sends *sends);

/* completions.c: completions -> answers; how many */
uint32_t rmq_completions_drain(struct rmq_sends *sends);
#endif
