/* held_asks.c: what becomes of held polls: verdicts of their answerer, deadlines, another answerer, closed connections. */
#include <stdlib.h>

#include "reader/cold.h"

#define AGAIN_OF_TURN 1024u
#define DEADLY "the broker's %s process has ended several times while it served this request"
#define AGAIN_PART 8 /* of the pending entries, for the answerers that have held polls: asks of clients keep theirs */

static void tell(struct rmq_cold *cold, const struct rmq_verdict *v, uint32_t answerer, uint32_t reason)
{
    struct rmq_note note = rmq_note_of(v, answerer);
    rmq_unsent_tell(cold->outputs->unsents, &note, reason);
}

/* The answer that the answerer has named for the deadline. */
static void answer_itself(struct rmq_cold *cold, struct rmq_held_poll *poll)
{
    struct rmq_connection *c = rmq_connection_get(cold->connections, poll->connection, poll->connection_generation);
    if (c)
        rmq_output_bytes(cold->outputs, c, rmq_held_answer(poll), poll->answer_bytes);
}

void rmq_held_end(struct rmq_cold *cold, struct rmq_held_poll *poll)
{
    struct rmq_pending *p = poll->state == RMQ_HELD_ASKED ? rmq_pending_find(cold->pendings, poll->pending) : NULL;
    if (p)
        rmq_ask_release(cold, p); /* and the poll */
    else
        rmq_held_release(cold->held, poll);
}

/* --- HOLD ------------------------------------------------------------------------------------------------------------- */

static const struct rmq_hold *hold_of(const struct rmq_verdict *v, const struct rmq_pending *p, const struct rmq_ask *ask)
{
    const struct rmq_hold *hold = (const struct rmq_hold *)(v + 1);
    uint64_t bytes = v->length - sizeof *v;
    RMQ_INVARIANT(bytes >= sizeof *hold && hold->slot < RMQ_HELD_SLOTS, bytes, v->pending);
    RMQ_INVARIANT(sizeof *hold + (uint64_t)hold->ask_bytes + hold->answer_bytes == bytes && hold->ask_bytes == ask->bytes &&
                      hold->answer_bytes >= 8,
                  hold->ask_bytes, hold->answer_bytes, ask->bytes, bytes);
    RMQ_INVARIANT(!p->frame_length, p->code, p->frame_length); /* a send or a pull: control answers these at once */
    return hold;
}

void rmq_held_take(struct rmq_cold *cold, struct rmq_connection *c, struct rmq_pending *p, const struct rmq_verdict *v)
{
    const struct rmq_ask *from = rmq_ask_of(p);
    const struct rmq_hold *hold = hold_of(v, p, from);
    struct rmq_held_ask ask = {
        .c = c, .opaque = p->opaque, .code = p->code, .frame_bytes = from->frame_bytes, .serial = v->serial,
        .answerer = from->answerer, .serialise = p->serialise, .hold = hold,
    };
    int waits = c && !p->oneway, is_stale = v->answerer_generation != cold->held->generation[ask.answerer];
    rmq_ask_release(cold, p); /* and its poll, if it was held by a predecessor */
    if (!waits || is_stale) {
        if (waits)
            rmq_output_bytes(cold->outputs, c, (const uint8_t *)(hold + 1) + hold->ask_bytes, hold->answer_bytes);
        tell(cold, v, ask.answerer, waits ? RMQ_UNSENT_STALE : RMQ_UNSENT_GONE);
        return;
    }
    struct rmq_held_poll *old = rmq_held_in(cold->held, ask.answerer, hold->slot);
    if (old) { /* the answerer has given it up */
        answer_itself(cold, old);
        rmq_held_release(cold->held, old);
    }
    if (c->state == RMQ_CONNECTION_OPEN && !rmq_held_put(cold->held, &ask)) {
        rmq_output_bytes(cold->outputs, c, (const uint8_t *)(hold + 1) + hold->ask_bytes, hold->answer_bytes);
        tell(cold, v, ask.answerer, RMQ_UNSENT_FULL);
    }
    RMQ_CRASH("reader-poll-held");
}

/* --- verdicts of held polls --------------------------------------------------------------------------------------------- */

static void answer(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_verdict *v, uint32_t answerer)
{
    struct rmq_note note = rmq_note_of(v, answerer);
    int tells = v->flags & RMQ_VERDICT_TELLS;
    if (v->type == RMQ_VERDICT_RECORDS)
        rmq_records_send(cold->records, c, v, tells ? &note : NULL);
    else if (!tells || rmq_output_tell(cold->outputs, c, &note))
        rmq_output_bytes(cold->outputs, c, (const uint8_t *)(v + 1), v->length - sizeof *v);
}

void rmq_held_verdict(struct rmq_cold *cold, const struct rmq_verdict *v, uint32_t answerer)
{
    struct rmq_held_poll *poll = rmq_held_in(cold->held, answerer, v->pending);
    int is_stale = !poll || poll->serial != v->serial || v->asker_generation != cold->context->generation ||
                   v->answerer_generation != cold->held->generation[answerer];
    struct rmq_connection *c =
        is_stale ? NULL : rmq_connection_get(cold->connections, poll->connection, poll->connection_generation);
    if (!c) {
        cold->context->counters[RMQ_READ_STALE]++;
        if (v->flags & RMQ_VERDICT_TELLS)
            tell(cold, v, answerer, is_stale ? RMQ_UNSENT_STALE : RMQ_UNSENT_GONE);
        return; /* the poll of a closed connection goes when the close is settled */
    }
    switch (v->type) {
    case RMQ_VERDICT_REDO:
        rmq_held_again(cold->held, poll);
        return;
    case RMQ_VERDICT_SEND:
    case RMQ_VERDICT_RECORDS:
        RMQ_INVARIANT(v->last || v->type == RMQ_VERDICT_RECORDS, v->type, v->pending, answerer);
        answer(cold, c, v, answerer);
        break;
    case RMQ_VERDICT_CLOSE:
        rmq_connection_close(cold->connections, c, RMQ_READ_CLOSED_CONTROL);
        break;
    default:
        RMQ_INVARIANT(v->type == RMQ_VERDICT_DROP, v->type, v->pending, answerer);
    }
    rmq_held_release(cold->held, poll);
    RMQ_CRASH("reader-poll-answered");
}

/* --- another answerer ----------------------------------------------------------------------------------------------------- */

void rmq_held_watch(struct rmq_cold *cold, uint32_t answerer, uint32_t generation)
{
    if ((int32_t)(generation - cold->held->generation[answerer]) <= 0)
        return;
    rmq_held_begin(cold->held, answerer, generation);
    RMQ_CRASH("reader-polls-emptied");
}

static int serves(const struct rmq_cold *cold, uint32_t answerer)
{
    const struct rmq_plane_header *header = cold->context->header;
    return rmq_load(&header->roles[header->asks.answerer[answerer].role].state) == 2;
}

/* Polls that this answerer may be asked for at a time. None keeps those of another one waiting. One that does not serve needs
 * one ask to start, and the others would wait in its inbox, void when it comes to them. */
static uint32_t again_most(const struct rmq_cold *cold, uint32_t answerer)
{
    if (!serves(cold, answerer))
        return 1;
    uint32_t holders = 0;
    for (uint32_t a = 0; a < cold->answerer_count; a++)
        holders += cold->held->slots[a] != NULL;
    uint32_t part = cold->pendings->capacity / AGAIN_PART / holders;
    return part < cold->asked_max[answerer] ? part : cold->asked_max[answerer];
}

/* 0: no room there or here. */
static int ask_again(struct rmq_cold *cold, struct rmq_held_poll *poll)
{
    struct rmq_read_context *context = cold->context;
    struct rmq_pendings *pendings = cold->pendings;
    struct rmq_connection *c = rmq_connection_at(cold->connections, poll->connection);
    if (pendings->counts[RMQ_PENDING_COLD] >= pendings->capacity / 2)
        return 0;
    struct rmq_frame_header h = {.code = poll->code, .opaque = poll->opaque, .serialise = poll->serialise};
    struct rmq_pending *p = rmq_pending_take(pendings, RMQ_PENDING_COLD, c, &h);
    if (!p)
        return 0;
    struct rmq_ask *ask = rmq_ask_of(p);
    *ask = (struct rmq_ask){.answerer = poll->answerer, .bytes = poll->ask_bytes, .frame_bytes = poll->frame_bytes,
                            .held = rmq_held_name(cold->held, poll), .is_again = 1};
    if (serves(cold, poll->answerer))
        ask->begun = rmq_load(&context->header->asks.answerer[poll->answerer].start_generation);
    p->frame_length = 0;
    cold->asked[poll->answerer]++;
    rmq_held_asked(cold->held, poll, rmq_pending_id(pendings, p));
    struct rmq_inbox_record record;
    rmq_inbox_head(context, cold->connections, c, &record);
    record.type = RMQ_INBOX_HELD;
    record.frame_length = poll->frame_bytes;
    record.pending = poll->pending;
    uint32_t bytes = (uint32_t)sizeof(struct rmq_asked_again) + poll->ask_bytes;
    if (rmq_inbox_put(context->plane, poll->answerer, &record, poll->bytes, bytes, &ask->position) < 0) {
        rmq_held_lost(cold, p);
        return 0;
    }
    p->received_ns = (int64_t)record.received_mono_ns;
    return 1;
}

int rmq_held_died(struct rmq_cold *cold, struct rmq_pending *p)
{
    const struct rmq_ask *ask = rmq_ask_of(p);
    struct rmq_held_poll *poll = rmq_held_at(cold->held, ask->held);
    if (++poll->deaths < RMQ_HELD_DEATHS_MAX)
        return 0;
    struct rmq_connection *c = rmq_connection_get(cold->connections, poll->connection, poll->connection_generation);
    const struct rmq_frame_header h = {.code = poll->code, .opaque = poll->opaque, .serialise = poll->serialise};
    if (c)
        rmq_cold_error(cold, c, &h, ask->answerer, DEADLY);
    rmq_ask_release(cold, p); /* and the poll */
    return 1;
}

void rmq_held_lost(struct rmq_cold *cold, struct rmq_pending *p)
{
    struct rmq_ask *ask = rmq_ask_of(p);
    rmq_held_again(cold->held, rmq_held_at(cold->held, ask->held));
    cold->asked[ask->answerer]--;
    free(ask->answer); /* chunks of a dead answerer */
    rmq_pending_release(cold->pendings, p);
}

void rmq_held_ask_again(struct rmq_cold *cold)
{
    struct rmq_held *held = cold->held;
    for (uint32_t a = 0, left = AGAIN_OF_TURN; a < cold->answerer_count; a++)
        for (struct rmq_held_poll *poll; left && (poll = rmq_held_next(held, a)) != NULL; left--) {
            struct rmq_connection *c = rmq_connection_get(cold->connections, poll->connection, poll->connection_generation);
            if (!c)
                rmq_held_release(held, poll);
            else if (held->asked_of[a] >= again_most(cold, a) || !ask_again(cold, poll))
                break;
            RMQ_CRASH("reader-poll-asked-again");
        }
}

int rmq_held_waits(const struct rmq_cold *cold)
{
    for (uint32_t a = 0; a < cold->answerer_count; a++)
        if (cold->held->again[a].first)
            return 1;
    return 0;
}

/* --- deadlines and closed connections --------------------------------------------------------------------------------------- */

void rmq_held_expire(struct rmq_cold *cold)
{
    struct rmq_held *held = cold->held;
    while (rmq_held_due_ns(held) <= cold->context->now_ns) {
        struct rmq_held_poll *poll = &held->table[held->heap[0]];
        answer_itself(cold, poll);
        rmq_held_end(cold, poll);
    }
}

void rmq_held_forget(struct rmq_cold *cold, struct rmq_connection *c)
{
    for (struct rmq_held_poll *poll; (poll = rmq_held_first_of(cold->held, c)) != NULL;) {
        struct rmq_pending *p = poll->state == RMQ_HELD_ASKED ? rmq_pending_find(cold->pendings, poll->pending) : NULL;
        if (p)
            rmq_ask_of(p)->held = 0; /* its verdict finds no poll, and the answerer is told */
        rmq_held_release(cold->held, poll);
    }
}
