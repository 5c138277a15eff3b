#include "reader/closings.h"

#include <unistd.h>

#include "reader/reader_state.h"
#include "reader/spans.h"

static void give_back(struct rmq_reader *r, struct rmq_connection *c)
{
    rmq_output_closing(&r->outputs, c);
    rmq_spans_forget(&r->arena, c);
    rmq_park_forget(&r->parking, c);
    rmq_cold_forget(c);
}

void rmq_closings_settle_all(struct rmq_reader *r)
{
    struct rmq_connections *all = &r->connections;
    for (uint32_t i = 0; i < all->closed_count; i++)
        give_back(r, rmq_connection_at(all, all->closed[i]));
    all->closed_count = 0;
}

void rmq_closings_close(struct rmq_reader *r, struct rmq_connection *c, uint32_t reason)
{
    rmq_connection_close(&r->connections, c, reason);
    rmq_closings_settle(r);
}

void rmq_closings_evict(struct rmq_reader *r, struct rmq_connection *c, uint32_t reason)
{
    r->context.counters[RMQ_READ_SHORT_MS] = (uint64_t)r->context.now_ms;
    rmq_closings_close(r, c, reason);
}

void rmq_closings_end(struct rmq_reader *r, struct rmq_connection *c)
{
    if (c->state != RMQ_CONNECTION_CLOSING || c->receiving || c->sending)
        return;
    rmq_closings_settle(r);
    rmq_output_forget(&r->outputs, c);
    rmq_connection_hang_up(&r->connections, c);
    if (c->asked && rmq_cold_report_closed(&r->cold, c) < 0) {
        c->state = RMQ_CONNECTION_REPORT;
        r->connections.ending++;
        return;
    }
    rmq_connection_release(&r->connections, c);
}

void rmq_closings_tick(struct rmq_reader *r)
{
    struct rmq_connections *all = &r->connections;
    if (!all->ending)
        return;
    all->ending = 0;
    for (uint32_t i = 0; i < all->used; i++) {
        struct rmq_connection *c = rmq_connection_at(all, i);
        if (c->state == RMQ_CONNECTION_CLOSING) {
            rmq_closings_end(r, c);
        } else if (c->state == RMQ_CONNECTION_REPORT) {
            if (rmq_cold_report_closed(&r->cold, c) == 0)
                rmq_connection_release(all, c);
            else
                all->ending++;
        }
    }
}

void rmq_closings_finish(struct rmq_reader *r)
{
    for (uint32_t i = 0; i < r->connections.used; i++) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, i);
        if (c->state != RMQ_CONNECTION_FREE && c->fd >= 0)
            close(c->fd);
        rmq_output_forget(&r->outputs, c);
        if (c->state != RMQ_CONNECTION_FREE)
            rmq_spans_forget(&r->arena, c);
        rmq_cold_forget(c);
    }
}
