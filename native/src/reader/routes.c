/* routes.c: routes a whole frame of a client.
 *
 *   send (10, 310, 320)         rmq_send_frame puts a request into the port's ring. A broker that is no master refuses it with 2.
 *   pull (11, 361)              rmq_pull_frame answers it, or parks it until messages come.
 *   every other code            cold: rmq_cold_frame brings the frame to the answerer of its code. That is control unless a
 *                               row of ipc/workers.py names the code. Control answers an unknown code with 3.
 *   responses, unusual headers  cold, and so are sends and pulls for which the two functions return COLD
 *   an unknown opaque           no answer could name the request, so the connection is closed. Control logs the first bytes.
 *
 * A frame begins with its length in 4 bytes. frames.c finds frames by it in the received bytes and collects them. It closes a
 * connection whose length is below 4 or above frame_bytes_max.
 *
 * `ref` owns the frame's bytes: a receive buffer or a block. A function that keeps the bytes takes them out of `ref`. The
 * caller releases the rest. Without room in the request ring or at the answerer the outcome is STALL: nothing has happened, the
 * connection's bytes wait, and the same frame comes again. `redone` counts how often control has said "run it again"; such a
 * frame is approved. `rule` is the one by which it said so. Control's reader takes more headers than this one. So an approved frame that cannot be read here is refused:
 * control would only approve it again.
 */
#include <stdio.h>

#include "reader/frames.h"
#include "reader/request_codes.h"

/* Code and first part of the remark as stock's (`SendMessageProcessor.rejectRequest`). Control answers the same
 * (request.py). */
static enum rmq_outcome refuse_send(struct rmq_frames *frames, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    rmq_answer_error(frames->cold->answers, c, h, RMQ_ANSWER_BUSY,
                     "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, send to its master");
    return RMQ_OUTCOME_DONE;
}

static enum rmq_outcome refuse_form(struct rmq_frames *frames, struct rmq_connection *c, const struct rmq_frame_header *h)
{
    static const char *const FAULTS[] = {[RMQ_UNUSUAL_FORM] = "is no standard JSON",
                                         [RMQ_UNUSUAL_KEY] = "has a field whose name has escapes",
                                         [RMQ_UNUSUAL_NESTED] = "has a field that is an object or a list",
                                         [RMQ_UNUSUAL_COUNT] = "has more fields than the limit of 40"};
    char remark[160];
    snprintf(remark, sizeof remark, "the header of a request with code %d %s", h->code, FAULTS[h->unusual]);
    rmq_answer_error(frames->cold->answers, c, h, RMQ_ANSWER_SYSTEM_ERROR, remark);
    return RMQ_OUTCOME_DONE;
}

enum rmq_outcome rmq_frame_process(struct rmq_frames *frames, struct rmq_connection *c, uint8_t *frame, uint32_t length,
                                   struct rmq_frame_ref *ref, uint32_t redone, uint32_t rule)
{
    struct rmq_frame_header h;
    if (rmq_frame_header_parse(frame, length, &h) < 0) {
        rmq_junk_close(&frames->junk, c, frame, length, RMQ_READ_CLOSED_FRAME);
        return RMQ_OUTCOME_CLOSED;
    }
    enum rmq_outcome outcome = RMQ_OUTCOME_COLD;
    int approved = redone > 0;
    if (!h.unusual && !(h.flag & RMQ_FLAG_RESPONSE)) {
        if (rmq_is_send(h.code) && !rmq_is_master(frames->context->plane->watermarks))
            outcome = refuse_send(frames, c, &h);
        else if (rmq_is_send(h.code))
            outcome = rmq_send_frame(frames->sends, c, &h, frame, length, ref, approved, rule);
        else if (rmq_is_pull(h.code))
            outcome = rmq_pull_frame(frames->pulls, c, &h, frame, length, approved);
    }
    else if (h.unusual && approved)
        outcome = refuse_form(frames, c, &h);
    if (outcome == RMQ_OUTCOME_COLD)
        outcome = rmq_cold_frame(frames->cold, c, &h, frame, length, ref, redone); /* control decides anew, also by which rule */
    if (outcome != RMQ_OUTCOME_STALL)
        frames->context->counters[RMQ_READ_FRAMES]++;
    return c->state == RMQ_CONNECTION_OPEN ? outcome : RMQ_OUTCOME_CLOSED;
}

void rmq_redo_run(struct rmq_frames *frames)
{
    for (struct rmq_pending *p; (p = rmq_redo_first(frames->cold)) != NULL; rmq_redo_done(frames->cold)) {
        struct rmq_connection *c = rmq_pending_connection(frames->pendings, p);
        const struct rmq_ask *ask = rmq_ask_of(p);
        if (!c)
            continue;
        struct rmq_frame_ref ref = p->ref;
        p->ref = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
        enum rmq_outcome outcome = rmq_frame_process(frames, c, frames->arena->bytes + ask->frame_at, p->frame_length, &ref,
                                                     ask->redone + 1u, ask->rule);
        if (outcome == RMQ_OUTCOME_STALL) {
            p->ref = ref;
            return;
        }
        rmq_send_waits_no_more(c);
        rmq_frame_ref_release(frames->arena, &ref);
    }
}
