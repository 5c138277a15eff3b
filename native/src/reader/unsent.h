/* unsent.h: answers that were dropped before their first byte left, of answerers that want to know (RMQ_VERDICT_TELLS). Each is a
 * notice in the answerer's inbox, so that it takes its decision back. A notice waits here until the inbox has room. It is void
 * when the answerer has been replaced: the replacement does not know the decision.
 *
 * What stays true: the notices of an answerer leave in the order in which they came. Those of one answerer wait for no other
 * answerer.
 */
#ifndef RMQ_UNSENT_H
#define RMQ_UNSENT_H

#include "plane/asks.h"
#include "reader/read_context.h"

#define RMQ_UNSENT_WAITING_MAX 4096u /* of one answerer: beyond it the reader takes no verdict of the answerer */
#define RMQ_UNSENT_LOOK_MS 20        /* no bell rings when an inbox has room again */

/* The notice to an answerer about one of its verdicts. */
struct rmq_note {
    uint32_t connection, connection_generation, pending;
    struct rmq_unsent said;
    uint32_t answerer;
};

struct rmq_notes {
    struct rmq_note *ring;
    uint32_t head, count, capacity; /* a power of two, or 0 */
};

struct rmq_unsents {
    struct rmq_read_context *context;
    struct rmq_notes of[RMQ_ANSWERERS_MAX];
    uint32_t waiting; /* of all */
};

void rmq_unsents_open(struct rmq_unsents *unsents, struct rmq_read_context *context);
void rmq_unsents_close(struct rmq_unsents *unsents);
struct rmq_note rmq_note_of(const struct rmq_verdict *v, uint32_t answerer);
void rmq_unsent_tell(struct rmq_unsents *unsents, const struct rmq_note *note, uint32_t reason); /* RMQ_UNSENT_* */
void rmq_unsents_send_all(struct rmq_unsents *unsents);
/* Those that wait, as far as they have room now. */
static inline void rmq_unsents_send(struct rmq_unsents *unsents)
{
    if (unsents->waiting)
        rmq_unsents_send_all(unsents);
}

static inline int rmq_unsents_are_full(const struct rmq_unsents *unsents, uint32_t answerer)
{
    return unsents->of[answerer].count >= RMQ_UNSENT_WAITING_MAX;
}
#endif
