/* send_target.h: the topic and queue that a rule of admission chooses for a send, and the properties that are stored with it
 * there.
 *
 * What stays true: a target with a rule has a queue of the tables, and is used before the rules are taken again.
 */
#ifndef RMQ_SEND_TARGET_H
#define RMQ_SEND_TARGET_H

#include "admission/admission.h"
#include "plane/plane.h"

/* The target of the message, if it is not the topic that the client named. */
struct rmq_send_target {
    const struct rmq_admission_rule *rule; /* NULL: that topic */
    uint32_t level, queue_id, queue_slot;
    int64_t out_ms; /* of a timer message */
};

/* Cuts what is not stored and ends the properties as RocketMQ does. From here on nothing goes cold any more: the bytes of the
 * properties in the frame, `home`, are the reader's, and one in front of them. */
void rmq_send_finish(struct rmq_send *s, uint8_t *home, const struct rmq_admission_rule *rule);
/* The pairs of the rule. The values are those of the topic that the client named, which is still in `s`. Returns their end. */
uint8_t *rmq_send_put_pairs(struct rmq_plane *plane, const struct rmq_send *s, const struct rmq_send_target *target, uint8_t *to);
void rmq_send_redirect(struct rmq_send *s, const struct rmq_send_target *target);
#endif
