#include "reader/junk.h"

#define REPORTS_PER_SECOND 8

/* 1 = reported. The inbox belongs to requests first: junk has a quarter of it. */
static int report(struct rmq_junk *junk, const struct rmq_connection *c, const uint8_t *bytes, uint32_t length)
{
    const struct rmq_read_context *context = junk->context;
    const struct rmq_ring *inbox = &rmq_answerer_at(context->plane, RMQ_CONTROL_ANSWERER)->inbox;
    if (context->now_ms - junk->since_ms >= 1000) {
        junk->since_ms = context->now_ms;
        junk->reports = 0;
    }
    if (junk->reports >= REPORTS_PER_SECOND || rmq_ring_used(inbox) > inbox->capacity / 4)
        return 0;
    struct rmq_inbox_record record;
    rmq_inbox_head(context, junk->connections, c, &record);
    record.type = RMQ_INBOX_JUNK;
    if (rmq_inbox_put(context->plane, RMQ_CONTROL_ANSWERER, &record, bytes, length, NULL) < 0)
        return 0;
    junk->reports++;
    return 1;
}

void rmq_junk_close(struct rmq_junk *junk, struct rmq_connection *c, const uint8_t *bytes, uint32_t length, uint32_t reason)
{
    struct rmq_port *port = junk->context->port;
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    if (!report(junk, c, bytes, length < RMQ_JUNK_BYTES ? length : RMQ_JUNK_BYTES))
        rmq_store_relaxed(&port->junk_dropped, port->junk_dropped + 1);
    rmq_connection_close(junk->connections, c, reason);
}
