/* A connection that does not speak the protocol: the reader reports its first bytes to control and closes it. Peers can cause
 * this at any rate. So a reader reports a few a second, and none while the inbox is filling. It counts the others. */
#include "reader/reader_state.h"

#define REPORTS_PER_SECOND 8

/* 1 = reported. The inbox belongs to requests first: junk has a quarter of it. */
static int report(struct rmq_reader *r, const struct rmq_connection *c, const uint8_t *bytes, uint32_t length)
{
    const struct rmq_ring *inbox = &rmq_answerer_at(r->context.plane, RMQ_CONTROL_ANSWERER)->inbox;
    if (r->context.now_ms - r->junk_since_ms >= 1000) {
        r->junk_since_ms = r->context.now_ms;
        r->junk_reports = 0;
    }
    if (r->junk_reports >= REPORTS_PER_SECOND || rmq_ring_used(inbox) > inbox->capacity / 4)
        return 0;
    struct rmq_inbox_record record;
    rmq_inbox_head(r, c, &record);
    record.type = RMQ_INBOX_JUNK;
    if (rmq_inbox_put(r->context.plane, RMQ_CONTROL_ANSWERER, &record, bytes, length, NULL) < 0)
        return 0;
    r->junk_reports++;
    return 1;
}

void rmq_junk_close(struct rmq_reader *r, struct rmq_connection *c, const uint8_t *bytes, uint32_t length,
                    uint32_t reason)
{
    if (c->state != RMQ_CONNECTION_OPEN)
        return;
    if (!report(r, c, bytes, length < RMQ_JUNK_BYTES ? length : RMQ_JUNK_BYTES))
        rmq_store_relaxed(&r->context.port->junk_dropped, r->context.port->junk_dropped + 1);
    rmq_connection_close(&r->connections, c, reason);
}
