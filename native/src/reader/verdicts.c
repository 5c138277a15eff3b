/* verdicts.c: what answerers say about cold frames, and the asks of answerers that died or do not serve. */
#include <stdlib.h>
#include <string.h>

#include "reader/cold.h"

#define LOOK_MS 50
#define GONE "[OVERLOAD]the broker's %s process restarted, try again"
#define NOT_SERVING "[OVERLOAD]the broker's %s process has not started in time, try again"

/* Joins chunks in private memory, up to `most` bytes. 0 or -ENOMEM. */
static int collect(struct rmq_joined **text, const uint8_t *chunk, uint32_t length, uint64_t most)
{
    uint32_t had = *text ? (*text)->length : 0;
    struct rmq_joined *grown = had + (uint64_t)length > most ? NULL : realloc(*text, sizeof *grown + had + length);
    if (!grown)
        return -ENOMEM;
    memcpy(grown->bytes + had, chunk, length);
    grown->length = had + length;
    *text = grown;
    return 0;
}

/* Control sends the client a request, if `frame` needs an answer. */
static void expect_answer(struct rmq_connection *c, const uint8_t *frame, uint32_t length)
{
    struct rmq_frame_header h;
    if (rmq_frame_header_parse(frame, length, &h) == 0 && !(h.flag & (RMQ_FLAG_ONEWAY | RMQ_FLAG_RESPONSE)))
        c->cold.answers_due++;
}

static void send_whole(struct rmq_cold *cold, struct rmq_connection *c, int is_own, const uint8_t *frame, uint32_t length)
{
    if (is_own)
        expect_answer(c, frame, length);
    rmq_output_bytes(cold->outputs, c, frame, length);
}

static void send_chunk(struct rmq_cold *cold, struct rmq_connection *c, struct rmq_joined **text, const struct rmq_verdict *v)
{
    const uint8_t *chunk = (const uint8_t *)(v + 1);
    uint32_t length = v->length - (uint32_t)sizeof *v;
    int is_own = text == &c->cold.frame;
    if (v->last && !*text) {
        send_whole(cold, c, is_own, chunk, length);
        return;
    }
    if (collect(text, chunk, length, cold->context->settings->send_queue_bytes_max) < 0) {
        rmq_connection_close(cold->connections, c, RMQ_READ_CLOSED_MEMORY);
        return;
    }
    if (v->last) {
        struct rmq_joined *whole = *text;
        *text = NULL;
        send_whole(cold, c, is_own, whole->bytes, whole->length);
        free(whole);
    }
}

static void answer_pending(struct rmq_cold *cold, struct rmq_connection *c, struct rmq_pending *p, const char *text)
{
    struct rmq_frame_header h = {.code = p->code, .opaque = p->opaque, .serialise = p->serialise,
                                 .flag = p->oneway ? RMQ_FLAG_ONEWAY : 0};
    rmq_cold_refuse(cold, c, &h, rmq_ask_of(p)->answerer, text);
}

/* A whole answer whose answerer wants to be told: one in chunks tells with the last. */
static int tells(const struct rmq_verdict *v)
{
    return v->flags & RMQ_VERDICT_TELLS && (v->last || v->type == RMQ_VERDICT_RECORDS);
}

/* Tells the answerer of a verdict without a receiver, if it wants to know, and of each poll that is not held. */
static void tell_unsent(struct rmq_cold *cold, const struct rmq_verdict *v, uint32_t answerer, uint32_t reason)
{
    struct rmq_note note = rmq_note_of(v, answerer);
    if (tells(v) || v->type == RMQ_VERDICT_HOLD)
        rmq_unsent_tell(cold->outputs->unsents, &note, reason);
}

/* The answer to an ask: the connection is there, or has been closed meanwhile. */
static void answer(struct rmq_cold *cold, struct rmq_connection *c, struct rmq_pending *p, const struct rmq_verdict *v)
{
    struct rmq_ask *ask = rmq_ask_of(p);
    struct rmq_note note = rmq_note_of(v, ask->answerer);
    if (!c || p->oneway) {
        if (tells(v))
            rmq_unsent_tell(cold->outputs->unsents, &note, RMQ_UNSENT_GONE);
    } else if (v->type == RMQ_VERDICT_RECORDS) {
        rmq_records_send(cold->records, c, v, tells(v) ? &note : NULL);
    } else if (!tells(v) || rmq_output_tell(cold->outputs, c, &note)) {
        send_chunk(cold, c, &ask->answer, v);
    }
    if (v->last || v->type == RMQ_VERDICT_RECORDS)
        rmq_ask_release(cold, p);
}

static void apply_verdict(struct rmq_cold *cold, const struct rmq_verdict *v, uint32_t answerer)
{
    if (v->answerer_generation != cold->held->generation[answerer])
        rmq_held_watch(cold, answerer, v->answerer_generation);
    if (v->flags & RMQ_VERDICT_HELD) {
        rmq_held_verdict(cold, v, answerer);
        return;
    }
    struct rmq_pending *p = v->pending == RMQ_NONE ? NULL : rmq_pending_find(cold->pendings, v->pending);
    struct rmq_ask *ask = p && p->kind == RMQ_PENDING_COLD ? rmq_ask_of(p) : NULL;
    if (v->asker_generation != cold->context->generation || (v->pending != RMQ_NONE && (!ask || ask->answerer != answerer))) {
        cold->context->counters[RMQ_READ_STALE]++;
        tell_unsent(cold, v, answerer, RMQ_UNSENT_STALE);
        return;
    }
    struct rmq_connection *c = p ? rmq_pending_connection(cold->pendings, p)
                                 : rmq_connection_get(cold->connections, v->connection, v->connection_generation);
    switch (v->type) {
    case RMQ_VERDICT_SEND:
        if (p)
            answer(cold, c, p, v);
        else if (c && answerer == RMQ_CONTROL_ANSWERER) /* chunks of two answerers would mix */
            send_chunk(cold, c, &c->cold.frame, v);
        return;
    case RMQ_VERDICT_RECORDS:
        RMQ_INVARIANT(p != NULL, answerer, v->connection, v->length);
        answer(cold, c, p, v);
        return;
    case RMQ_VERDICT_HOLD:
        RMQ_INVARIANT(p != NULL, answerer, v->connection, v->length);
        rmq_held_take(cold, c, p, v);
        return;
    case RMQ_VERDICT_REDO:
        RMQ_INVARIANT(v->rule < RMQ_REDO_RULES, v->rule, answerer, v->pending);
        if (p && c && p->frame_length) {
            ask->rule = (uint8_t)v->rule;
            rmq_redo_later(cold, p);
        } else if (p)
            rmq_ask_release(cold, p);
        return;
    case RMQ_VERDICT_CLOSE:
        if (c)
            rmq_connection_close(cold->connections, c, RMQ_READ_CLOSED_CONTROL);
        /* fall through */
    default: /* DROP */
        if (p)
            rmq_ask_release(cold, p);
    }
}

static uint32_t drain(struct rmq_cold *cold, uint32_t answerer)
{
    struct rmq_ring *ring = &cold->context->header->asks.answerer[answerer].answers[cold->context->role_number];
    const char *base = cold->context->plane->base + ring->slots_at;
    uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
    uint32_t count = 0;
    while (tail < head && !rmq_unsents_are_full(cold->outputs->unsents, answerer)) {
        uint32_t at = (uint32_t)(tail & (ring->capacity - 1));
        const struct rmq_verdict *v = (const struct rmq_verdict *)(base + at);
        RMQ_INVARIANT(rmq_verdict_is_whole(v, head - tail, ring->capacity - at), v->length, v->type, at, answerer);
        if (v->type != RMQ_VERDICT_PAD) {
            apply_verdict(cold, v, answerer);
            count++;
        }
        tail += RMQ_ALIGN8(v->length);
    }
    if (tail != ring->tail) {
        RMQ_CRASH("reader-verdicts-applied");
        rmq_store(&ring->tail, tail);
    }
    return count;
}

uint32_t rmq_verdicts_drain(struct rmq_cold *cold)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < cold->answerer_count; a++)
        count += drain(cold, a);
    return count;
}

int rmq_verdicts_wait(const struct rmq_cold *cold)
{
    for (uint32_t a = 0; a < cold->answerer_count; a++)
        if (!rmq_unsents_are_full(cold->outputs->unsents, a) &&
            rmq_ring_used(&cold->context->header->asks.answerer[a].answers[cold->context->role_number]))
            return 1;
    return rmq_load(&cold->context->header->roles[RMQ_ROLE_CONTROL].generation) != cold->begun[RMQ_CONTROL_ANSWERER];
}

/* `is_taken`: the answerer died with it. Else it did not start in time. */
static void give_up(struct rmq_cold *cold, struct rmq_pending *p, int is_taken)
{
    struct rmq_connection *c = rmq_pending_connection(cold->pendings, p);
    if (rmq_ask_of(p)->held) {
        if (!is_taken || !rmq_held_died(cold, p))
            rmq_held_lost(cold, p);
        return;
    }
    if (c)
        answer_pending(cold, c, p, is_taken ? GONE : NOT_SERVING);
    rmq_ask_release(cold, p);
}

/* Control started again: it has none of the frames that the dead control was handling, no group and no lock. */
static void watch_control(struct rmq_cold *cold)
{
    uint32_t generation = rmq_load(&cold->context->header->roles[RMQ_ROLE_CONTROL].generation);
    if (generation == cold->begun[RMQ_CONTROL_ANSWERER])
        return;
    cold->begun[RMQ_CONTROL_ANSWERER] = generation;
    rmq_held_watch(cold, RMQ_CONTROL_ANSWERER, generation);
    cold->redo_head = cold->redo_tail = RMQ_NONE;
    for (uint32_t i = 0; i < cold->pendings->used; i++) {
        struct rmq_pending *p = &cold->pendings->table[i];
        if (p->kind == RMQ_PENDING_COLD && rmq_ask_of(p)->answerer == RMQ_CONTROL_ANSWERER)
            give_up(cold, p, 1);
    }
    for (uint32_t i = 0; i < cold->connections->used; i++) {
        struct rmq_connection *c = rmq_connection_at(cold->connections, i);
        rmq_cold_forget(c); /* half a frame of the dead */
        c->cold.answers_due = 0; /* its questions died with it */
        if (c->state == RMQ_CONNECTION_OPEN && c->cold.registered)
            rmq_connection_close(cold->connections, c, RMQ_READ_CLOSED_CONTROL);
    }
}

/* A held poll whose record is the first one of an answerer that began as `begun`, and was there for its predecessor, too. */
static int may_be_cause(const struct rmq_ask *ask, uint64_t start_position, uint32_t begun)
{
    return ask->held && ask->begun && ask->begun != begun && ask->position == start_position;
}

/* Any other answerer, while it has asks of this reader: which of them get no answer any more. */
static void watch_other(struct rmq_cold *cold, uint32_t answerer, int is_due)
{
    const struct rmq_answerer *a = &cold->context->header->asks.answerer[answerer];
    uint32_t begun = rmq_load(&a->start_generation);
    int serves = rmq_load(&cold->context->header->roles[a->role].state) == 2;
    if (begun == cold->begun[answerer] && (serves || !is_due))
        return;
    cold->begun[answerer] = begun;
    drain(cold, answerer); /* answers of a dead process count */
    rmq_held_watch(cold, answerer, begun);
    int64_t now_ns = rmq_mono_ns();
    uint64_t start_position = rmq_load(&a->start_position);
    struct rmq_pending *first = NULL;
    int has_taken = 0; /* the predecessor died with others in its hands */
    for (uint32_t i = 0; i < cold->pendings->used; i++) {
        struct rmq_pending *p = &cold->pendings->table[i];
        const struct rmq_ask *ask = rmq_ask_of(p);
        if (p->kind != RMQ_PENDING_COLD || ask->answerer != answerer)
            continue;
        if (rmq_ask_is_lost(cold->context->plane, answerer, ask->position, p->received_ns, now_ns)) {
            has_taken |= ask->position < start_position;
            give_up(cold, p, ask->position < start_position);
        } else if (may_be_cause(ask, start_position, begun)) {
            first = p;
        }
    }
    if (first)
        rmq_ask_of(first)->begun = begun;
    if (first && !has_taken)
        rmq_held_died(cold, first);
}

void rmq_answerers_watch(struct rmq_cold *cold)
{
    int is_due = cold->context->now_ms >= cold->look_next_ms;
    watch_control(cold);
    for (uint32_t a = 1; a < cold->answerer_count; a++)
        if (cold->asked[a] || cold->held->counts[a])
            watch_other(cold, a, is_due);
    if (is_due)
        cold->look_next_ms = cold->context->now_ms + LOOK_MS;
}
