/* pop_desk.c: the loop over the inbox. */
#include "pop/pop_waiting.h"

#include <string.h>

#include "codec/frame_header.h"

#define ASKS_OF_TURN 64u        /* the read workers are woken behind them */

uint32_t rmq_pop_serve(struct rmq_pop_desk *d, int32_t code)
{
    if (rmq_pop_room(d, d->row.ask.role) < RMQ_POP_ANSWER_BYTES_MIN)
        return RMQ_POP_NO_ROOM;
    if (d->settings & RMQ_POP_IS_STOPPED)
        return RMQ_POP_STOPPED;
    switch (code) {
    case RMQ_CODE_POP: return rmq_pop_serve_pop(d, &d->row);
    case RMQ_CODE_POP_ACK: return rmq_pop_serve_ack(d, &d->row);
    case RMQ_CODE_POP_CHANGE: return rmq_pop_serve_change(d, &d->row);
    case RMQ_CODE_POP_NOTIFICATION: return rmq_pop_serve_notification(d, &d->row);
    default: return RMQ_POP_ODD;
    }
}

/* The code of a header: at the front, where stock's clients write it, else where another client has put it. 0: there is none. */
static int32_t code_of(const uint8_t *frame, uint32_t length)
{
    static const char front[] = "{\"code\":";
    const uint8_t *header = frame + 8;
    struct rmq_frame_header h;
    int32_t code = 0;
    if (length < 8 + sizeof front + 8 || memcmp(header, front, sizeof front - 1))
        return rmq_frame_header_parse(frame, length, &h) < 0 ? 0 : h.code;
    for (const uint8_t *at = header + sizeof front - 1; *at >= '0' && *at <= '9' && code < 1000000; at++)
        code = code * 10 + (*at - '0');
    return code;
}

static const struct rmq_plain_table *table_of(int32_t code)
{
    switch (code) {
    case RMQ_CODE_POP: return &rmq_pop_table;
    case RMQ_CODE_POP_ACK: return &rmq_pop_ack_table;
    case RMQ_CODE_POP_CHANGE: return &rmq_pop_change_table;
    case RMQ_CODE_POP_NOTIFICATION: return &rmq_pop_notification_table;
    default: return NULL;
    }
}

static int read_row(struct rmq_pop_row *row, const struct rmq_plain_table *table)
{
    int is_ack = table->code == RMQ_CODE_POP_ACK || table->code == RMQ_CODE_POP_CHANGE;
    void *fields = is_ack ? (void *)&row->ack : (void *)&row->pop;
    return rmq_plain_decode(table, row->frame, row->frame_bytes, &row->asked, fields, row->text) == RMQ_PLAIN_READ;
}

/* An ask that an earlier process has held. */
static void leave_head(struct rmq_pop_row *row)
{
    const struct rmq_asked_again *again = (const void *)row->frame;
    row->until_ns = again->deadline_ns;
    row->frame += sizeof *again;
    row->frame_bytes -= (uint32_t)sizeof *again;
}

static uint32_t serve_plain(struct rmq_pop_desk *d, const struct rmq_inbox_record *record)
{
    struct rmq_pop_row *row = &d->row;
    row->ask = *record;
    row->until_ns = 0;
    row->frame = (const uint8_t *)(record + 1);
    row->frame_bytes = (uint32_t)record->length - (uint32_t)sizeof *record;
    if (record->type == RMQ_INBOX_HELD)
        leave_head(row);
    else if (record->type != RMQ_INBOX_COLD_FRAME)
        return RMQ_POP_ODD;
    int32_t code = code_of(row->frame, row->frame_bytes);
    row->has_waited = 0;
    if (code == RMQ_CODE_POP_BATCH_ACK)
        return rmq_pop_serve_batch_ack(d, record);
    const struct rmq_plain_table *table = table_of(code);
    return table && read_row(row, table) ? rmq_pop_serve(d, code) : RMQ_POP_ODD;
}

uint32_t rmq_pop_desk_turn(struct rmq_pop_desk *d, uint32_t room, uint32_t *taken)
{
    struct rmq_latency_run run = {0};
    int64_t slow_ns = d->slow_after_ns ? d->now_ns - d->slow_after_ns : 0;
    uint32_t why = RMQ_POP_SERVED;
    rmq_pop_waiting_turn(d);
    for (*taken = 0; why == RMQ_POP_SERVED && *taken < room;) {
        struct rmq_inbox_record *record = rmq_inbox_take(d->plane, d->answerer);
        if (!record)
            break;
        int64_t received_ns = (int64_t)record->received_mono_ns;
        if (!rmq_ask_is_void(d->plane, d->answerer, record)) {
            why = serve_plain(d, record);
            if (why != RMQ_POP_SERVED)
                break;
            if (received_ns && received_ns < slow_ns)
                why = RMQ_POP_SLOW;
            else
                rmq_latency_run_add(d->latency, &run, received_ns, d->now_ns);
        }
        rmq_inbox_done(d->plane, d->answerer, record);
        ++*taken;
    }
    rmq_latency_run_end(d->latency, &run, d->now_ns);
    if (why == RMQ_POP_SERVED && rmq_pop_polls_is_awake(d->polls)) /* else the owner looks at the row */
        rmq_pop_waiting_turn(d);
    rmq_pop_log_turn(d);
    rmq_pop_desk_wake(d);
    return why;
}

static uint32_t serve_turn(void *owner, int64_t now_ns, uint32_t *taken)
{
    struct rmq_pop_desk *d = owner;
    (void)now_ns; /* the process may have rested since */
    d->now_ms = rmq_wall_ms();
    d->now_ns = rmq_mono_ns();
    d->share_group = 0;
    uint64_t arrivals = d->arrivals;
    uint32_t why = rmq_pop_desk_turn(d, ASKS_OF_TURN, taken);
    *taken += (uint32_t)(d->arrivals - arrivals);
    return why == RMQ_POP_SERVED && rmq_pop_waiting_has_more(d) ? RMQ_POP_POLLS_LEFT : why;
}

uint32_t rmq_pop_desk_serve(struct rmq_pop_desk *d, struct rmq_serving *s, int32_t timeout_ms)
{
    return rmq_serving_run(d->plane, s, serve_turn, d, timeout_ms);
}
