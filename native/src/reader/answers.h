/* answers.h: answers that read workers make without another role, and what all answers tell about the broker.
 *
 * What stays true: `broker` points into the settings and into host_hex, which live as long as the part. Only a request gets an
 * answer: a response and a one-way request get none.
 */
#ifndef RMQ_ANSWERS_H
#define RMQ_ANSWERS_H

#include "codec/answer.h"
#include "codec/frame_header.h"
#include "reader/output.h"

struct rmq_answers {
    struct rmq_read_context *context;
    struct rmq_outputs *outputs;
    struct rmq_answer_broker broker;
    char host_hex[48];
};

/* The outcome of a frame. */
enum rmq_outcome { RMQ_OUTCOME_DONE, RMQ_OUTCOME_STALL, RMQ_OUTCOME_COLD, RMQ_OUTCOME_CLOSED };

void rmq_answers_open(struct rmq_answers *answers, struct rmq_read_context *context, struct rmq_outputs *outputs);
void rmq_answer_error(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, int code,
                      const char *remark);
/* SYSTEM_BUSY: the client tries again. Counts as an overload. */
void rmq_answer_busy(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, const char *remark);
/* Answers an approved request with a field that control's reader can read and this one cannot. */
void rmq_answer_field(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, const uint8_t *name,
                      uint32_t length);
#endif
