#include "reader/answers.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "reader/request_codes.h"

void rmq_answers_open(struct rmq_answers *answers, struct rmq_read_context *context, struct rmq_outputs *outputs)
{
    const struct rmq_settings *s = context->settings;
    uint32_t bytes = s->store_host_bytes == 16 ? 16 : 4;
    uint8_t raw[20];
    memcpy(raw, s->store_host, bytes);
    rmq_put32(raw + bytes, s->store_port);
    rmq_hex_put((uint8_t *)answers->host_hex, raw, bytes + 4);
    answers->context = context;
    answers->outputs = outputs;
    answers->broker = (struct rmq_answer_broker){
        .region = s->region_id,
        .region_length = (uint32_t)strnlen(s->region_id, sizeof s->region_id),
        .host_hex = answers->host_hex,
        .name = s->broker_name,
        .name_length = (uint32_t)strnlen(s->broker_name, sizeof s->broker_name),
        .host_hex_length = 2 * (bytes + 4),
        .trace_on = s->trace_on,
    };
}

void rmq_answer_error(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, int code,
                      const char *remark)
{
    if (h->flag & (RMQ_FLAG_ONEWAY | RMQ_FLAG_RESPONSE))
        return;
    struct rmq_answer_head head = {
        .code = code,
        .opaque = h->opaque,
        .serialise = h->serialise,
        .remark = remark,
        .remark_length = (uint32_t)strlen(remark),
    };
    const struct rmq_answer_broker *broker = rmq_is_send(h->code) ? &answers->broker : NULL;
    uint8_t *to = rmq_output_reserve(answers->outputs, c, rmq_error_answer_bound(&head, broker));
    if (to)
        rmq_output_commit(answers->outputs, c, rmq_error_answer_put(to, &head, broker));
}

void rmq_answer_busy(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, const char *remark)
{
    answers->context->counters[RMQ_READ_OVERLOAD]++;
    rmq_answer_error(answers, c, h, RMQ_ANSWER_BUSY, remark);
}

void rmq_answer_field(struct rmq_answers *answers, struct rmq_connection *c, const struct rmq_frame_header *h, const uint8_t *name,
                      uint32_t length)
{
    char remark[160];
    snprintf(remark, sizeof remark,
             "the field %.*s of a request with code %d cannot be read: a number needs decimal digits, text quotes",
             (int)(length < 32 ? length : 32), (const char *)name, h->code);
    rmq_answer_error(answers, c, h, RMQ_ANSWER_SYSTEM_ERROR, remark);
}
