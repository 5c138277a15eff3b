#include "reader/overdue.h"

#include "reader/eviction_rules.h"

/* Closes a half frame whose time is over. A shortage alone does not close a half frame that waits for a block here: eviction.c
 * closes it when another frame needs its memory. */
static void look_at_half_frame(struct rmq_closings *closings, struct rmq_connection *c, uint32_t time_ms)
{
    if (c->in_starved)
        return;
    uint32_t timeout_ms = closings->context->settings->partial_frame_timeout_ms;
    int lateness = rmq_input_lateness(&c->input, timeout_ms, time_ms, closings->context->now_ms);
    if (lateness == RMQ_FRAME_LATE)
        rmq_closings_close(closings, c, RMQ_READ_CLOSED_PARTIAL);
    else if (lateness == RMQ_FRAME_SHORT && !rmq_input_is_stalled(&c->input))
        rmq_closings_evict(closings, c, RMQ_READ_CLOSED_SHORTAGE);
}

void rmq_overdue_close(struct rmq_closings *closings)
{
    const struct rmq_settings *s = closings->context->settings;
    int64_t now_ms = closings->context->now_ms;
    uint32_t time_ms = rmq_frame_time_ms(s->partial_frame_timeout_ms, closings->arena->blocks_free, closings->arena->block_pages);
    for (uint32_t i = 0; i < closings->connections->used; i++) {
        struct rmq_connection *c = rmq_connection_at(closings->connections, i);
        if (c->state != RMQ_CONNECTION_OPEN)
            continue;
        if (rmq_output_is_stuck(c, now_ms, s->send_stall_timeout_ms))
            rmq_closings_close(closings, c, RMQ_READ_CLOSED_SLOW);
        else if (s->idle_connection_ms && now_ms - c->active_ms > s->idle_connection_ms)
            rmq_closings_close(closings, c, RMQ_READ_CLOSED_IDLE);
        else
            look_at_half_frame(closings, c, time_ms);
    }
}
