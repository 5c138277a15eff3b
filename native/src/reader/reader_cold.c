/* reader_cold.c: cold frames. They go to the inbox of the answerer that the table of answerers names for their code. For most
 * codes that is control. The answerer's verdicts come back. Frames wait for an answerer that is not serving or has not been
 * started yet, at most RMQ_ASK_TIMEOUT_MS. After that time, or if the answerer dies while it handles a frame, the client is
 * told to try again.
 *
 * Sends and pulls are kept, so that control can answer REDO once the reason is gone (a topic was made, a group is known).
 * Responses of clients to control's own requests carry the pending id RMQ_NONE, because they get no verdict. Only as many reach
 * control as it has requested.
 */
#include <stdio.h>
#include <stdlib.h>

#include "reader/reader_state.h"

#define LARGE_BYTES (64u << 10) /* frames above leave half of the inbox to the others */
#define OTHERS_PART 8         /* of the pending entries, for each answerer but control: a slow one leaves the others theirs */
#define LOOK_MS 50            /* at answerers that are asked and do not serve */
#define OVERLOAD "[OVERLOAD]the broker's %s process cannot take more requests now, try again later"
#define GONE "[OVERLOAD]the broker's %s process restarted, try again"
#define NOT_SERVING "[OVERLOAD]the broker's %s process has not started in time, try again"

static int is_kept(const struct rmq_frame_header *h)
{
    return !(h->flag & RMQ_FLAG_RESPONSE) && (rmq_is_send(h->code) || rmq_is_pull(h->code));
}

/* Name of the answerer's worker, as its role block has it. */
static const char *name_of(const struct rmq_reader *r, uint32_t answerer)
{
    return r->context.header->roles[r->context.header->asks.answerer[answerer].role].name;
}

void rmq_inbox_head(const struct rmq_reader *r, const struct rmq_connection *c, struct rmq_inbox_record *to)
{
    memset(to, 0, sizeof *to);
    to->role = (uint16_t)r->context.role_number;
    to->role_generation = r->context.generation;
    to->connection = rmq_connection_index(&r->connections, c);
    to->connection_generation = c->generation;
    to->pending = RMQ_NONE;
    to->peer_port = c->port;
    to->peer_v6 = c->v6;
    to->listener = c->listener;
    memcpy(to->peer_host, c->host, sizeof to->peer_host);
    to->received_mono_ns = (uint64_t)r->context.now_ms * 1000000;
}

/* `text` holds one %s, for the answerer's name. */
static void refuse_for(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, uint32_t answerer,
                       const char *text)
{
    char remark[160];
    snprintf(remark, sizeof remark, text, answerer == RMQ_CONTROL_ANSWERER ? "control" : name_of(r, answerer));
    rmq_answer_busy(&r->answers, c, h, remark);
}

/* The pending entry with its own copy of the frame where one is kept; NULL = no room. */
static struct rmq_pending *keep(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                                uint32_t length, struct rmq_frame_ref *ref, uint32_t answerer)
{
    if (answerer != RMQ_CONTROL_ANSWERER && r->asked[answerer] >= r->pending_capacity / OTHERS_PART)
        return NULL;
    if (r->cold_count >= r->pending_capacity / 2 || (is_kept(h) && !rmq_blocks_for_control(&r->arena)))
        return NULL; /* a slow control must not take the place of frames in the making */
    struct rmq_frame_ref kept = {RMQ_NONE, RMQ_NONE, 0};
    uint8_t *at = frame;
    if (is_kept(h)) {
        if (ref->buffer == RMQ_NONE && ref->block != RMQ_NONE) {
            rmq_frame_ref_retain(&r->arena, ref, &kept);
        } else {
            at = rmq_block_take(&r->arena, length, &kept);
            if (!at)
                return NULL;
            memcpy(at, frame, length);
        }
    }
    struct rmq_pending *p = rmq_pending_take(r, RMQ_PENDING_COLD, c, h);
    if (!p) {
        rmq_frame_ref_release(&r->arena, &kept);
        return NULL;
    }
    r->asked[p->answerer]--;
    r->asked[answerer]++;
    p->answerer = (uint8_t)answerer;
    p->ref = kept;
    p->frame_at = is_kept(h) ? rmq_arena_offset(&r->arena, at) : 0;
    p->frame_length = is_kept(h) ? length : 0;
    return p;
}

enum rmq_outcome rmq_cold_frame(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_frame_header *h,
                                uint8_t *frame,
                             uint32_t length, struct rmq_frame_ref *ref, uint32_t redone)
{
    uint32_t answerer = (h->flag & RMQ_FLAG_RESPONSE) || is_kept(h) ? RMQ_CONTROL_ANSWERER : rmq_answerer_of(r->context.plane, h->code);
    uint32_t body = length - 8 - h->header_length, payload = rmq_is_send(h->code) ? length - body : length;
    if (h->flag & RMQ_FLAG_RESPONSE) {
        if (!c->answers_due) {
            r->context.counters[RMQ_READ_STALE]++;
            return RMQ_OUTCOME_DONE;
        }
        c->answers_due--;
    } else if (rmq_cold_is_full(r, c) && !redone) {
        if (!r->refuses)
            return RMQ_OUTCOME_STALL;
        refuse_for(r, c, h, answerer, OVERLOAD);
        return RMQ_OUTCOME_DONE;
    }
    if (redone > RMQ_REDO_MAX) {
        rmq_answer_busy(&r->answers, c, h, "[OVERLOAD]the broker's tables change too fast for this request, try again");
        return RMQ_OUTCOME_DONE;
    }
    if (payload - 8 - h->header_length > RMQ_COLD_BODY_BYTES_MAX) {
        char remark[160];
        snprintf(remark, sizeof remark, "the body of a request with code %d may have at most %d bytes, this one has %u", h->code,
                 RMQ_COLD_BODY_BYTES_MAX, body);
        rmq_answer_error(&r->answers, c, h, RMQ_ANSWER_ILLEGAL, remark);
        return RMQ_OUTCOME_DONE;
    }
    if (h->header_length > RMQ_COLD_HEADER_BYTES_MAX) {
        char remark[160];
        snprintf(remark, sizeof remark, "the header of a request with code %d may have at most %d bytes, this one has %u", h->code,
                 RMQ_COLD_HEADER_BYTES_MAX, h->header_length);
        rmq_answer_error(&r->answers, c, h, RMQ_ANSWER_ILLEGAL, remark);
        return RMQ_OUTCOME_DONE;
    }
    if (answerer != RMQ_CONTROL_ANSWERER && h->unusual && h->header_length > RMQ_UNUSUAL_HEADER_BYTES_MAX) {
        char remark[160];
        snprintf(remark, sizeof remark,
                 "the header of a request with code %d may have at most %d bytes with nested, odd or over %d fields, this one has %u",
                 h->code, RMQ_UNUSUAL_HEADER_BYTES_MAX, RMQ_EXT_ENTRIES_MAX, h->header_length);
        rmq_answer_error(&r->answers, c, h, RMQ_ANSWER_ILLEGAL, remark);
        return RMQ_OUTCOME_DONE;
    }
    const struct rmq_ring *inbox = &rmq_answerer_at(r->context.plane, answerer)->inbox;
    if (payload > LARGE_BYTES && rmq_ring_used(inbox) + payload > inbox->capacity / 2) {
        refuse_for(r, c, h, answerer, OVERLOAD);
        return RMQ_OUTCOME_DONE;
    }
    struct rmq_inbox_record record;
    rmq_inbox_head(r, c, &record);
    record.type = RMQ_INBOX_COLD_FRAME;
    record.frame_length = length;
    struct rmq_pending *p = NULL;
    if (!(h->flag & RMQ_FLAG_RESPONSE)) {
        p = keep(r, c, h, frame, length, ref, answerer);
        if (!p) {
            refuse_for(r, c, h, answerer, OVERLOAD);
            return RMQ_OUTCOME_DONE;
        }
        p->redone = redone & 31;
        record.pending = rmq_pending_id(r, p);
    }
    const uint8_t *from = p && p->frame_length ? r->arena.bytes + p->frame_at : frame;
    uint64_t position = 0;
    if (rmq_inbox_put(r->context.plane, answerer, &record, from, payload, &position) < 0) {
        if (p)
            rmq_pending_release(r, p);
        refuse_for(r, c, h, answerer, OVERLOAD);
        return RMQ_OUTCOME_DONE;
    }
    if (p) {
        p->ask_position = position;
        p->received_ns = (int64_t)record.received_mono_ns;
        p->cold_bytes = payload;
        c->cold_bytes += payload;
    }
    c->asked |= (uint8_t)(1u << answerer);
    if (h->code == RMQ_CODE_HEARTBEAT || h->code == RMQ_CODE_LOCK)
        c->registered = 1;
    r->context.counters[RMQ_READ_COLD]++;
    return RMQ_OUTCOME_DONE;
}

/* An answerer that does not serve now has nothing of the connection, or has lost it: it need not start for that. */
static int knows_nothing(const struct rmq_reader *r, uint32_t answerer)
{
    return answerer != RMQ_CONTROL_ANSWERER && rmq_load(&r->context.header->roles[r->context.header->asks.answerer[answerer].role].state) != 2;
}

int rmq_cold_report_closed(struct rmq_reader *r, struct rmq_connection *c)
{
    struct rmq_inbox_record record;
    rmq_inbox_head(r, c, &record);
    record.type = RMQ_INBOX_CLOSED;
    for (uint32_t a = 0; a < r->context.header->asks.count; a++) {
        if (!(c->asked >> a & 1) || (!knows_nothing(r, a) && rmq_inbox_put(r->context.plane, a, &record, NULL, 0, NULL) < 0))
            continue;
        c->asked &= (uint8_t)~(1u << a);
    }
    return c->asked ? -ENOBUFS : 0;
}

/* --- verdicts ----------------------------------------------------------------------------------------------- */

/* Joins chunks in private memory; 0 when the last one has come. */
static int collect(uint8_t **text, uint32_t *length, const uint8_t *chunk, uint32_t chunk_length)
{
    uint8_t *grown = realloc(*text, (size_t)*length + chunk_length);
    if (!grown)
        return -ENOMEM;
    memcpy(grown + *length, chunk, chunk_length);
    *text = grown;
    *length += chunk_length;
    return 0;
}

/* Control sends the client a request, if `frame` needs an answer. */
static void expect_answer(struct rmq_connection *c, const uint8_t *frame, uint32_t length)
{
    struct rmq_frame_header h;
    if (rmq_frame_header_parse(frame, length, &h) == 0 && !(h.flag & (RMQ_FLAG_ONEWAY | RMQ_FLAG_RESPONSE)))
        c->answers_due++;
}

static void send_whole(struct rmq_reader *r, struct rmq_connection *c, int is_own, const uint8_t *frame, uint32_t length)
{
    if (is_own)
        expect_answer(c, frame, length);
    rmq_output_bytes(&r->outputs, c, frame, length);
}

static void send_chunk(struct rmq_reader *r, struct rmq_connection *c, uint8_t **text, uint32_t *text_length,
                       const struct rmq_verdict *v)
{
    const uint8_t *chunk = (const uint8_t *)(v + 1);
    uint32_t length = v->length - (uint32_t)sizeof *v;
    int is_own = text == &c->server_frame;
    if (v->last && !*text) {
        send_whole(r, c, is_own, chunk, length);
        return;
    }
    if (*text_length + (uint64_t)length > r->context.settings->send_queue_bytes_max || collect(text, text_length, chunk, length) < 0) {
        rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_MEMORY);
        return;
    }
    if (v->last) {
        uint8_t *whole = *text;
        *text = NULL;
        send_whole(r, c, is_own, whole, *text_length);
        *text_length = 0;
        free(whole);
    }
}

static void redo_later(struct rmq_reader *r, struct rmq_pending *p)
{
    uint32_t index = (uint32_t)(p - r->pending);
    p->next = RMQ_NONE;
    if (r->redo_tail == RMQ_NONE)
        r->redo_head = index;
    else
        r->pending[r->redo_tail].next = index;
    r->redo_tail = index;
    p->turn = (p->turn + 1) & 0xfff; /* its verdict has been spoken */
}

static void answer_pending(struct rmq_reader *r, struct rmq_connection *c, const struct rmq_pending *p, const char *text)
{
    struct rmq_frame_header h = {.code = p->code, .opaque = p->opaque, .serialise = p->serialise,
                                 .flag = p->oneway ? RMQ_FLAG_ONEWAY : 0};
    refuse_for(r, c, &h, p->answerer, text);
}

static void apply_verdict(struct rmq_reader *r, const struct rmq_verdict *v, uint32_t answerer)
{
    struct rmq_pending *p = v->pending == RMQ_NONE ? NULL : rmq_pending_find(r, v->pending);
    if (v->asker_generation != r->context.generation || (v->pending != RMQ_NONE && (!p || p->kind != RMQ_PENDING_COLD || p->answerer != answerer))) {
        r->context.counters[RMQ_READ_STALE]++;
        return;
    }
    struct rmq_connection *c = p ? rmq_connection_get(&r->connections, p->connection, p->connection_generation)
                                 : rmq_connection_get(&r->connections, v->connection, v->connection_generation);
    switch (v->type) {
    case RMQ_VERDICT_SEND:
        if (c && p && !p->oneway)
            send_chunk(r, c, &p->answer, &p->answer_length, v);
        else if (c && !p && answerer == RMQ_CONTROL_ANSWERER) /* chunks of two answerers would mix */
            send_chunk(r, c, &c->server_frame, &c->server_frame_length, v);
        if (p && v->last)
            rmq_pending_release(r, p);
        return;
    case RMQ_VERDICT_REDO:
    case RMQ_VERDICT_REDO_DEAD:
        if (p && c && p->frame_length) {
            p->dead = v->type == RMQ_VERDICT_REDO_DEAD;
            redo_later(r, p);
        } else if (p)
            rmq_pending_release(r, p);
        return;
    case RMQ_VERDICT_CLOSE:
        if (c)
            rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_CONTROL);
        /* fall through */
    default: /* DROP */
        if (p)
            rmq_pending_release(r, p);
    }
}

static uint32_t drain(struct rmq_reader *r, uint32_t answerer)
{
    struct rmq_ring *ring = &r->context.header->asks.answerer[answerer].answers[r->context.role_number];
    const char *base = r->context.plane->base + ring->slots_at;
    uint64_t tail = ring->tail, head = tail + rmq_ring_waiting(ring, tail);
    uint32_t count = 0;
    while (tail < head) {
        uint32_t at = (uint32_t)(tail & (ring->capacity - 1));
        const struct rmq_verdict *v = (const struct rmq_verdict *)(base + at);
        RMQ_INVARIANT(rmq_verdict_is_whole(v, head - tail, ring->capacity - at), v->length, v->type, at, answerer);
        if (v->type != RMQ_VERDICT_PAD) {
            apply_verdict(r, v, answerer);
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

uint32_t rmq_verdicts_drain(struct rmq_reader *r)
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < r->context.header->asks.count; a++)
        count += drain(r, a);
    return count;
}

int rmq_verdicts_wait(const struct rmq_reader *r)
{
    for (uint32_t a = 0; a < r->context.header->asks.count; a++)
        if (rmq_ring_used(&r->context.header->asks.answerer[a].answers[r->context.role_number]))
            return 1;
    return rmq_load(&r->context.header->roles[RMQ_ROLE_CONTROL].generation) != r->begun[RMQ_CONTROL_ANSWERER];
}

void rmq_redo_run(struct rmq_reader *r)
{
    while (r->redo_head != RMQ_NONE) {
        struct rmq_pending *p = &r->pending[r->redo_head];
        struct rmq_connection *c = rmq_connection_get(&r->connections, p->connection, p->connection_generation);
        if (c) {
            struct rmq_frame_ref ref = p->ref;
            p->ref = (struct rmq_frame_ref){RMQ_NONE, RMQ_NONE, 0};
            enum rmq_outcome outcome = rmq_frame_process(r, c, r->arena.bytes + p->frame_at, p->frame_length, &ref,
                                                         (p->redone + 1u) | (p->dead ? RMQ_REDO_DEAD : 0));
            if (outcome == RMQ_OUTCOME_STALL) {
                p->ref = ref;
                return;
            }
            c->stalled_ns = 0;
            rmq_frame_ref_release(&r->arena, &ref);
        }
        r->redo_head = p->next;
        if (r->redo_head == RMQ_NONE)
            r->redo_tail = RMQ_NONE;
        rmq_pending_release(r, p);
    }
}

static void give_up(struct rmq_reader *r, struct rmq_pending *p, const char *text)
{
    struct rmq_connection *c = rmq_connection_get(&r->connections, p->connection, p->connection_generation);
    if (c)
        answer_pending(r, c, p, text);
    rmq_pending_release(r, p);
}

/* Control started again: it has none of the frames that the dead control was handling, no group and no lock. */
static void watch_control(struct rmq_reader *r)
{
    uint32_t generation = rmq_load(&r->context.header->roles[RMQ_ROLE_CONTROL].generation);
    if (generation == r->begun[RMQ_CONTROL_ANSWERER])
        return;
    r->begun[RMQ_CONTROL_ANSWERER] = generation;
    r->redo_head = r->redo_tail = RMQ_NONE;
    for (uint32_t i = 0; i < r->pending_used; i++)
        if (r->pending[i].kind == RMQ_PENDING_COLD && r->pending[i].answerer == RMQ_CONTROL_ANSWERER)
            give_up(r, &r->pending[i], GONE);
    for (uint32_t i = 0; i < r->connections.used; i++) {
        struct rmq_connection *c = rmq_connection_at(&r->connections, i);
        free(c->server_frame); /* half a frame of the dead */
        c->server_frame = NULL;
        c->server_frame_length = c->answers_due = 0; /* its questions died with it */
        if (c->state == RMQ_CONNECTION_OPEN && c->registered)
            rmq_connection_close(&r->connections, c, RMQ_READ_CLOSED_CONTROL);
    }
}

/* Any other answerer, while it has asks of this reader: which of them get no answer any more. */
static void watch_other(struct rmq_reader *r, uint32_t answerer, int is_due)
{
    const struct rmq_answerer *a = &r->context.header->asks.answerer[answerer];
    uint32_t begun = rmq_load(&a->start_generation);
    int serves = rmq_load(&r->context.header->roles[a->role].state) == 2;
    if (begun == r->begun[answerer] && (serves || !is_due))
        return;
    r->begun[answerer] = begun;
    drain(r, answerer); /* answers of a dead process count */
    int64_t now_ns = rmq_mono_ns();
    for (uint32_t i = 0; i < r->pending_used; i++) {
        struct rmq_pending *p = &r->pending[i];
        if (p->kind == RMQ_PENDING_COLD && p->answerer == answerer &&
            rmq_ask_is_lost(r->context.plane, answerer, p->ask_position, p->received_ns, now_ns))
            give_up(r, p, p->ask_position < rmq_load(&a->start_position) ? GONE : NOT_SERVING);
    }
}

void rmq_answerers_watch(struct rmq_reader *r)
{
    int is_due = r->context.now_ms >= r->asks_next_ms;
    watch_control(r);
    for (uint32_t a = 1; a < r->context.header->asks.count; a++)
        if (r->asked[a])
            watch_other(r, a, is_due);
    if (is_due)
        r->asks_next_ms = r->context.now_ms + LOOK_MS;
}
