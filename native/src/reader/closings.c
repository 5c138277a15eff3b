#include "reader/closings.h"

#include <unistd.h>

void rmq_closings_open(struct rmq_closings *closings, struct rmq_cold *cold, struct rmq_parking *parking)
{
    *closings = (struct rmq_closings){
        .context = cold->context,
        .arena = cold->arena,
        .connections = cold->connections,
        .outputs = cold->outputs,
        .cold = cold,
        .parking = parking,
    };
}

static void give_back(struct rmq_closings *closings, struct rmq_connection *c)
{
    rmq_output_closing(closings->outputs, c);
    rmq_input_forget(closings->arena, &c->input);
    rmq_park_forget(closings->parking, c);
    rmq_held_forget(closings->cold, c);
    rmq_cold_forget(c);
}

void rmq_closings_settle_all(struct rmq_closings *closings)
{
    struct rmq_connections *all = closings->connections;
    for (uint32_t i = 0; i < all->closed_count; i++)
        give_back(closings, rmq_connection_at(all, all->closed[i]));
    all->closed_count = 0;
}

void rmq_closings_close(struct rmq_closings *closings, struct rmq_connection *c, uint32_t reason)
{
    rmq_connection_close(closings->connections, c, reason);
    rmq_closings_settle(closings);
}

void rmq_closings_evict(struct rmq_closings *closings, struct rmq_connection *c, uint32_t reason)
{
    closings->context->counters[RMQ_READ_SHORT_MS] = (uint64_t)closings->context->now_ms;
    rmq_closings_close(closings, c, reason);
}

void rmq_closings_end(struct rmq_closings *closings, struct rmq_connection *c)
{
    if (c->state != RMQ_CONNECTION_CLOSING || c->receiving || rmq_output_is_sending(c))
        return;
    rmq_closings_settle(closings);
    rmq_output_forget(closings->outputs, c);
    rmq_connection_hang_up(closings->connections, c);
    if (rmq_cold_report_closed(closings->cold, c) < 0) {
        rmq_connection_wait_for_report(closings->connections, c);
        return;
    }
    rmq_connection_release(closings->connections, c);
}

void rmq_closings_tick(struct rmq_closings *closings)
{
    struct rmq_connections *all = closings->connections;
    if (!all->ending)
        return;
    all->ending = 0;
    for (uint32_t i = 0; i < all->used; i++) {
        struct rmq_connection *c = rmq_connection_at(all, i);
        if (c->state == RMQ_CONNECTION_CLOSING) {
            rmq_closings_end(closings, c);
        } else if (c->state == RMQ_CONNECTION_REPORT) {
            if (rmq_cold_report_closed(closings->cold, c) == 0)
                rmq_connection_release(all, c);
            else
                all->ending++;
        }
    }
}

void rmq_closings_finish(struct rmq_closings *closings)
{
    for (uint32_t i = 0; i < closings->connections->used; i++) {
        struct rmq_connection *c = rmq_connection_at(closings->connections, i);
        if (c->state != RMQ_CONNECTION_FREE && c->fd >= 0)
            close(c->fd);
        rmq_output_end(closings->outputs, c);
        if (c->state != RMQ_CONNECTION_FREE)
            rmq_input_forget(closings->arena, &c->input);
        rmq_cold_forget(c);
    }
}
