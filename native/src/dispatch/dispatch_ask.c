#include "dispatch/dispatch_ask.h"

#include <string.h>

#include "plane/asks.h"
#include "plane/ring.h"

enum {
    AGAIN_MS = 1000,    /* control may have died with the question in its hand */
    TIMEOUT_MS = 10000,
    SILENCE_MS = 60000,
};

static int is_same(const struct rmq_dispatch_question *q, const uint8_t *topic, const struct rmq_record_view *view)
{
    return q->open && q->queue_id == (uint32_t)view->queue_id && q->topic_length == view->topic_length &&
           !memcmp(q->topic, topic, view->topic_length);
}

static void put(struct rmq_plane *plane, const struct rmq_dispatch_question *q)
{
    struct rmq_inbox_record head = {
        .type = RMQ_INBOX_QUEUE,
        .role = RMQ_ROLE_DISPATCH,
        .role_generation = rmq_header(plane)->roles[RMQ_ROLE_DISPATCH].generation,
        .pending = q->queue_id,
        .frame_length = q->is_batch,
    };
    rmq_inbox_put(plane, RMQ_CONTROL_ANSWERER, &head, q->topic, q->topic_length, NULL); /* a full inbox: asked again */
}

/* Drops the answers. They only wake dispatch; the table shows the result. */
static void take_answers(struct rmq_plane *plane)
{
    const struct rmq_verdict *told;
    while ((told = rmq_verdict_take(plane, RMQ_CONTROL_ANSWERER, RMQ_ROLE_DISPATCH)))
        rmq_verdict_done(plane, RMQ_CONTROL_ANSWERER, RMQ_ROLE_DISPATCH, told);
}

int rmq_dispatch_ask(struct rmq_dispatch_question *q, struct rmq_plane *plane, const uint8_t *topic,
                     const struct rmq_record_view *view)
{
    int64_t now_ms = rmq_mono_ms();
    if (view->queue_id < 0 || view->topic_length > RMQ_NAME_MAX || now_ms < q->silent_until_ms)
        return 0;
    take_answers(plane);
    if (!is_same(q, topic, view)) {
        *q = (struct rmq_dispatch_question){.queue_id = (uint32_t)view->queue_id, .topic_length = view->topic_length, .open = 1,
                                            .is_batch = !!(view->sys_flag & RMQ_SYS_INNER_BATCH),
                                            .given_up_ms = now_ms + TIMEOUT_MS};
        memcpy(q->topic, topic, view->topic_length);
    }
    if (now_ms >= q->given_up_ms) {
        *q = (struct rmq_dispatch_question){.silent_until_ms = now_ms + SILENCE_MS};
        return 0;
    }
    if (now_ms >= q->again_ms) {
        q->again_ms = now_ms + AGAIN_MS;
        put(plane, q);
    }
    return 1;
}
