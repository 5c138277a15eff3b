/* asks.h: asking another role, and answering. layout.h has the order of stores (2), asks_layout.h the words. */
#ifndef RMQ_ASKS_H
#define RMQ_ASKS_H
#include "plane/plane.h"

/* cdef-begin */
/* The row of the role. RMQ_NONE = the role is no answerer. */
uint32_t rmq_answerer_find(struct rmq_plane *plane, uint32_t role);
struct rmq_answerer *rmq_answerer_at(struct rmq_plane *plane, uint32_t answerer);
/* The rows that get requests of clients with this code, a bit each: RMQ_CONTROL_ANSWERER alone where no other row names it. */
uint32_t rmq_answerers_of(struct rmq_plane *plane, int32_t code);
/* Of these rows, of which there is one at least, the one that answers for this group and topic. The same rows, group and topic have
 * the same answerer at each start, so that it finds what it has written to disk. Nothing else decides between rows of a code. */
uint32_t rmq_answerer_choose(uint32_t rows, const uint8_t *group, uint32_t group_length, const uint8_t *topic, uint32_t topic_length);

/* The asker: puts a whole ask and wakes the answerer, or starts its dormant worker. head->role is the asker's. `position`:
 * offset of the ask in the inbox; may be NULL. Returns 0, -ENOBUFS, -EMSGSIZE if the ask exceeds half of the inbox, or -EINVAL
 * if the role never asks this answerer. */
int rmq_inbox_put(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *head, const void *payload,
                  uint32_t length, uint64_t *position);
/* The same without the wake-up, for the asks of one turn. The asker calls rmq_answerer_wake behind them. */
int rmq_inbox_add(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *head, const void *payload,
                  uint32_t length, uint64_t *position);
void rmq_answerer_wake(struct rmq_plane *plane, uint32_t answerer);
/* 1 if an ask at this position, received then, gets no answer any more. Either its answerer has died while it handled the ask,
 * or it was not serving when RMQ_ASK_TIMEOUT_MS were over. The asker checks after a change of begun_generation, and at each tick
 * while the answerer is not serving. */
int rmq_ask_is_lost(struct rmq_plane *plane, uint32_t answerer, uint64_t position, int64_t received_mono_ns, int64_t now_ns);

/* The answerer's process begins: it serves. Asks that may be taken now count; older ones were those of the dead process. */
void rmq_inbox_start(struct rmq_plane *plane, uint32_t answerer);
/* take: address of the next complete ask or NULL; PAD and orphans are skipped inside. done: gives its room back. is_void: its
 * asker has given it up, and nothing may be done for it. unblock: 1 when the record at the tail was an orphaned claim and is
 * a PAD now, else 0; exact because the supervisor resets claim_position of a dead role. */
struct rmq_inbox_record *rmq_inbox_take(struct rmq_plane *plane, uint32_t answerer);
int rmq_ask_is_void(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *record);
void rmq_inbox_done(struct rmq_plane *plane, uint32_t answerer, struct rmq_inbox_record *record);
int rmq_inbox_unblock(struct rmq_plane *plane, uint32_t answerer);

/* The answerer -> an asker; chunked by the caller to at most a quarter of the ring. 0, -ENOBUFS, -EMSGSIZE, or -EINVAL where
 * the role never asks this answerer. Wakes the asker. */
int rmq_verdict_put(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *head,
                    const void *payload, uint32_t length);
/* The same without the wake-up, for the answers of one turn. The answerer wakes the asker behind them (rmq_role_wake). */
int rmq_verdict_add(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *head,
                    const void *payload, uint32_t length);
/* The answerer: the first of its answers from *position on (0: from the first) that the asker has not given back, or NULL. Moves
 * *position behind it. The answerer alone writes the ring, so the bytes stay as they are until its next put. */
const struct rmq_verdict *rmq_verdict_waiting(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, uint64_t *position);
/* The asker: address of the next answer or NULL, and giving its room back. */
const struct rmq_verdict *rmq_verdict_take(struct rmq_plane *plane, uint32_t answerer, uint32_t asker);
void rmq_verdict_done(struct rmq_plane *plane, uint32_t answerer, uint32_t asker, const struct rmq_verdict *verdict);
/* cdef-end */

/* 1 if an answer's record is published as a whole and does not cross the ring's end. */
static inline int rmq_verdict_is_whole(const struct rmq_verdict *v, uint64_t published, uint32_t to_end)
{
    uint64_t bytes = ((uint64_t)v->length + 7) & ~7ull, least = v->type == RMQ_VERDICT_PAD ? 8 : sizeof *v;
    return v->length >= least && bytes <= published && bytes <= to_end;
}
#endif
