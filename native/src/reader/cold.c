#include "reader/cold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/answerer_rules.h"
#include "reader/request_codes.h"

#define LARGE_BYTES (64u << 10) /* frames above leave half of the inbox to the others */
#define OTHERS_PART 8         /* of the pending entries, for each answerer but control: a slow one leaves the others theirs. An answerer
                               * may name another number (cold_max) */
#define UNWOKEN_MAX 32u       /* asks of a turn that wait for its end: an answerer works beside the rest of a long turn */
#define OVERLOAD "[OVERLOAD]the broker's %s process cannot take more requests now, try again later"

/* A frame on its way to an answerer. */
struct cold_frame {
    struct rmq_connection *c;
    const struct rmq_frame_header *h;
    uint8_t *bytes;
    uint32_t length, payload; /* control needs no body of a send */
    struct rmq_frame_ref *ref;
    uint32_t answerer, redone;
};

/* Entries of `capacity` that this answerer may have. A connection counts its own in 16 bits. */
static uint32_t asked_max(const struct rmq_answerer *a, uint32_t answerer, uint32_t capacity)
{
    uint32_t half = capacity / 2 < UINT16_MAX ? capacity / 2 : UINT16_MAX;
    uint32_t usual = answerer == RMQ_CONTROL_ANSWERER ? half : capacity / OTHERS_PART;
    return !a->cold_max ? usual : a->cold_max < half ? a->cold_max : half;
}

void rmq_cold_open(struct rmq_cold *cold, struct rmq_answers *answers, struct rmq_pendings *pendings,
                   struct rmq_records *records, struct rmq_held *held)
{
    const struct rmq_plane_header *header = answers->context->header;
    uint32_t answerer_count = header->asks.count;
    RMQ_INVARIANT(answerer_count && answerer_count <= RMQ_ANSWERERS_MAX, answerer_count);
    for (uint32_t a = 0; a < answerer_count; a++) {
        uint32_t role = header->asks.answerer[a].role;
        RMQ_INVARIANT(role < RMQ_ROLES_MAX, a, role);
    }
    *cold = (struct rmq_cold){
        .context = answers->context,
        .arena = pendings->arena,
        .connections = pendings->connections,
        .outputs = answers->outputs,
        .answers = answers,
        .pendings = pendings,
        .records = records,
        .held = held,
        .answerer_count = answerer_count,
        .redo_head = RMQ_NONE,
        .redo_tail = RMQ_NONE,
    };
    for (uint32_t a = 0; a < answerer_count; a++)
        cold->asked_max[a] = asked_max(&header->asks.answerer[a], a, pendings->capacity);
    cold->begun[RMQ_CONTROL_ANSWERER] = rmq_load(&header->roles[RMQ_ROLE_CONTROL].generation);
}

void rmq_cold_close(struct rmq_cold *cold)
{
    struct rmq_pendings *pendings = cold->pendings;
    for (uint32_t i = 0; pendings && i < pendings->used; i++)
        if (pendings->table[i].kind == RMQ_PENDING_COLD)
            free(rmq_ask_of(&pendings->table[i])->answer);
}

static int is_response(const struct rmq_frame_header *h) { return (h->flag & RMQ_FLAG_RESPONSE) != 0; }

static int is_kept(const struct rmq_frame_header *h) { return !is_response(h) && (rmq_is_send(h->code) || rmq_is_pull(h->code)); }

/* The answerer of a request. Control has the answers to requests that a master alone may do while the broker is none. */
static uint32_t answerer_of(const struct rmq_cold *cold, const struct rmq_frame_header *h)
{
    const struct rmq_plane_header *header = cold->context->header;
    if (is_response(h) || is_kept(h))
        return RMQ_CONTROL_ANSWERER;
    uint32_t answerer = rmq_answerer_for(cold->context->plane, h);
    if (answerer == RMQ_NONE || answerer == RMQ_CONTROL_ANSWERER || rmq_is_master(cold->context->plane->watermarks))
        return answerer;
    uint32_t flags = rmq_load_relaxed(&header->roles[header->asks.answerer[answerer].role].flags);
    return flags & RMQ_ROLE_OF_MASTER ? RMQ_CONTROL_ANSWERER : answerer;
}

void rmq_inbox_head(const struct rmq_read_context *context, const struct rmq_connections *connections,
                    const struct rmq_connection *c, struct rmq_inbox_record *to)
{
    memset(to, 0, sizeof *to);
    to->role = (uint16_t)context->role_number;
    to->role_generation = context->generation;
    to->connection = rmq_connection_index(connections, c);
    to->connection_generation = c->generation;
    to->pending = RMQ_NONE;
    to->peer_port = c->port;
    to->peer_v6 = c->v6;
    to->listener = c->listener;
    memcpy(to->peer_host, c->host, sizeof to->peer_host);
    to->received_mono_ns = (uint64_t)context->now_ms * 1000000;
}

/* Name of the answerer's worker, as its role block has it. */
static const char *name_of(const struct rmq_cold *cold, uint32_t answerer)
{
    const struct rmq_plane_header *header = cold->context->header;
    return answerer == RMQ_CONTROL_ANSWERER ? "control" : header->roles[header->asks.answerer[answerer].role].name;
}

void rmq_cold_refuse(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint32_t answerer,
                     const char *text)
{
    char remark[160];
    snprintf(remark, sizeof remark, text, name_of(cold, answerer));
    rmq_answer_busy(cold->answers, c, h, remark);
}

void rmq_cold_error(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint32_t answerer,
                    const char *text)
{
    char remark[160];
    snprintf(remark, sizeof remark, text, name_of(cold, answerer));
    rmq_answer_error(cold->answers, c, h, RMQ_ANSWER_SYSTEM_ERROR, remark);
}

/* --- asks ----------------------------------------------------------------------------------------------------- */

void rmq_ask_release(struct rmq_cold *cold, struct rmq_pending *p)
{
    struct rmq_ask *ask = rmq_ask_of(p);
    struct rmq_connection *c = rmq_connection_at(cold->connections, p->connection);
    cold->asked[ask->answerer]--;
    if (ask->held)
        rmq_held_release(cold->held, rmq_held_at(cold->held, ask->held));
    if (c->generation == p->connection_generation && !ask->is_again) {
        c->cold.counts[ask->answerer]--;
        c->cold.bytes[ask->answerer] -= ask->bytes;
    }
    free(ask->answer);
    rmq_pending_release(cold->pendings, p);
}

/* The ask with its own copy of the frame where one is kept; NULL = no room. */
static struct rmq_pending *keep(struct rmq_cold *cold, const struct cold_frame *f)
{
    struct rmq_pendings *pendings = cold->pendings;
    int kept = is_kept(f->h);
    if (rmq_cold_asked(cold, f->answerer) >= cold->asked_max[f->answerer])
        return NULL;
    if (pendings->counts[RMQ_PENDING_COLD] >= pendings->capacity / 2 || (kept && !rmq_blocks_for_control(cold->arena)))
        return NULL; /* a slow control must not take the place of frames in the making */
    struct rmq_frame_ref ref = {RMQ_NONE, RMQ_NONE, 0};
    uint8_t *at = f->bytes;
    if (kept && f->ref->buffer == RMQ_NONE && f->ref->block != RMQ_NONE) {
        rmq_frame_ref_retain(cold->arena, f->ref, &ref);
    } else if (kept) {
        at = rmq_block_take(cold->arena, f->length, &ref);
        if (!at)
            return NULL;
        memcpy(at, f->bytes, f->length);
    }
    struct rmq_pending *p = rmq_pending_take(pendings, RMQ_PENDING_COLD, f->c, f->h);
    if (!p) {
        rmq_frame_ref_release(cold->arena, &ref);
        return NULL;
    }
    *rmq_ask_of(p) = (struct rmq_ask){.answerer = (uint8_t)f->answerer, .redone = (uint8_t)f->redone};
    cold->asked[f->answerer]++;
    f->c->cold.counts[f->answerer]++;
    p->ref = ref;
    rmq_ask_of(p)->frame_at = kept ? rmq_arena_offset(cold->arena, at) : 0;
    p->frame_length = kept ? f->length : 0;
    return p;
}

void rmq_cold_wake_asked(struct rmq_cold *cold)
{
    for (; cold->wakes; cold->wakes &= cold->wakes - 1)
        rmq_answerer_wake(cold->context->plane, (uint32_t)__builtin_ctz(cold->wakes));
    cold->unwoken = 0;
}

/* Into the inbox. 0, or -ENOBUFS if there or here is no room. */
static int put(struct rmq_cold *cold, const struct cold_frame *f)
{
    const struct rmq_read_context *context = cold->context;
    const struct rmq_ring *inbox = &rmq_answerer_at(context->plane, f->answerer)->inbox;
    if (f->payload > LARGE_BYTES && rmq_ring_used(inbox) + f->payload > inbox->capacity / 2)
        return -ENOBUFS;
    struct rmq_inbox_record record;
    rmq_inbox_head(context, cold->connections, f->c, &record);
    record.type = RMQ_INBOX_COLD_FRAME;
    record.frame_length = f->length;
    struct rmq_pending *p = is_response(f->h) ? NULL : keep(cold, f);
    if (!p && !is_response(f->h))
        return -ENOBUFS;
    if (p)
        record.pending = rmq_pending_id(cold->pendings, p);
    const uint8_t *from = p && p->frame_length ? cold->arena->bytes + rmq_ask_of(p)->frame_at : f->bytes;
    uint64_t position = 0;
    if (rmq_inbox_add(context->plane, f->answerer, &record, from, f->payload, &position) < 0) {
        if (p)
            rmq_ask_release(cold, p);
        return -ENOBUFS;
    }
    cold->wakes |= 1u << f->answerer;
    if (++cold->unwoken >= UNWOKEN_MAX)
        rmq_cold_wake_asked(cold);
    if (p) {
        rmq_ask_of(p)->position = position;
        rmq_ask_of(p)->bytes = f->payload;
        rmq_ask_of(p)->frame_bytes = f->length;
        p->received_ns = (int64_t)record.received_mono_ns;
        f->c->cold.bytes[f->answerer] += f->payload;
    }
    return 0;
}

/* --- cold frames ---------------------------------------------------------------------------------------------- */

/* 1 = its answerer may have it now. Else *outcome says what became of it. */
static int may_ask(struct rmq_cold *cold, const struct cold_frame *f, enum rmq_outcome *outcome)
{
    *outcome = RMQ_OUTCOME_DONE;
    if (is_response(f->h)) {
        int is_due = f->c->cold.answers_due > 0;
        f->c->cold.answers_due -= (uint32_t)is_due;
        cold->context->counters[RMQ_READ_STALE] += !is_due;
        return is_due;
    }
    if (f->redone > RMQ_REDO_MAX) {
        rmq_answer_busy(cold->answers, f->c, f->h, "[OVERLOAD]the broker's tables change too fast for this request, try again");
        return 0;
    }
    if (f->redone || !rmq_cold_is_full(cold, f->c, f->answerer))
        return 1;
    if (cold->pendings->refuses) {
        rmq_cold_refuse(cold, f->c, f->h, f->answerer, OVERLOAD);
    } else {
        rmq_cold_await(f->c, f->answerer);
        *outcome = RMQ_OUTCOME_STALL;
    }
    return 0;
}

/* 1 = no part of it is too large. Else the client has been told. */
static int has_size(struct rmq_cold *cold, const struct cold_frame *f)
{
    const struct rmq_frame_header *h = f->h;
    char remark[160];
    if (f->payload - 8 - h->header_length > RMQ_COLD_BODY_BYTES_MAX)
        snprintf(remark, sizeof remark, "the body of a request with code %d may have at most %d bytes, this one has %u", h->code,
                 RMQ_COLD_BODY_BYTES_MAX, f->length - 8 - h->header_length);
    else if (h->header_length > RMQ_COLD_HEADER_BYTES_MAX)
        snprintf(remark, sizeof remark, "the header of a request with code %d may have at most %d bytes, this one has %u", h->code,
                 RMQ_COLD_HEADER_BYTES_MAX, h->header_length);
    else if (f->answerer != RMQ_CONTROL_ANSWERER && h->unusual && h->header_length > RMQ_UNUSUAL_HEADER_BYTES_MAX)
        snprintf(remark, sizeof remark,
                 "the header of a request with code %d may have at most %d bytes with nested, odd or over %d fields, this one has %u",
                 h->code, RMQ_UNUSUAL_HEADER_BYTES_MAX, RMQ_EXT_ENTRIES_MAX, h->header_length);
    else
        return 1;
    rmq_answer_error(cold->answers, f->c, h, RMQ_ANSWER_ILLEGAL, remark);
    return 0;
}

static void refuse_shared(struct rmq_cold *cold, const struct cold_frame *f)
{
    char remark[160];
    snprintf(remark, sizeof remark,
             "a request with code %d needs a plain group and topic in at most %d fields, none nested: they choose its worker",
             f->h->code, RMQ_EXT_ENTRIES_MAX);
    rmq_answer_error(cold->answers, f->c, f->h, RMQ_ANSWER_ILLEGAL, remark);
}

enum rmq_outcome rmq_cold_frame(struct rmq_cold *cold, struct rmq_connection *c, const struct rmq_frame_header *h, uint8_t *frame,
                                uint32_t length, struct rmq_frame_ref *ref, uint32_t redone)
{
    struct cold_frame f = {
        .c = c,
        .h = h,
        .bytes = frame,
        .length = length,
        .payload = rmq_is_send(h->code) ? 8 + h->header_length : length,
        .ref = ref,
        .answerer = answerer_of(cold, h),
        .redone = redone,
    };
    enum rmq_outcome outcome;
    if (f.answerer == RMQ_NONE) {
        refuse_shared(cold, &f);
        return RMQ_OUTCOME_DONE;
    }
    RMQ_INVARIANT(f.answerer < cold->answerer_count, f.answerer, cold->answerer_count, h->code);
    if (!may_ask(cold, &f, &outcome) || !has_size(cold, &f))
        return outcome;
    if (put(cold, &f) < 0) {
        rmq_cold_refuse(cold, c, h, f.answerer, OVERLOAD);
        return RMQ_OUTCOME_DONE;
    }
    c->cold.asked |= (uint8_t)(1u << f.answerer);
    if (h->code == RMQ_CODE_HEARTBEAT || h->code == RMQ_CODE_LOCK)
        c->cold.registered = 1;
    cold->context->counters[RMQ_READ_COLD]++;
    return RMQ_OUTCOME_DONE;
}

/* --- closed connections --------------------------------------------------------------------------------------- */

/* An answerer that does not serve now has nothing of the connection, or has lost it: it need not start for that. */
static int knows_nothing(const struct rmq_cold *cold, uint32_t answerer)
{
    const struct rmq_plane_header *header = cold->context->header;
    return answerer != RMQ_CONTROL_ANSWERER && rmq_load(&header->roles[header->asks.answerer[answerer].role].state) != 2;
}

int rmq_cold_report_closed(struct rmq_cold *cold, struct rmq_connection *c)
{
    const struct rmq_read_context *context = cold->context;
    if (!c->cold.asked)
        return 0;
    struct rmq_inbox_record record;
    rmq_inbox_head(context, cold->connections, c, &record);
    record.type = RMQ_INBOX_CLOSED;
    for (uint32_t a = 0; a < cold->answerer_count; a++) {
        if (!(c->cold.asked >> a & 1) ||
            (!knows_nothing(cold, a) && rmq_inbox_put(context->plane, a, &record, NULL, 0, NULL) < 0))
            continue;
        c->cold.asked &= (uint8_t)~(1u << a);
    }
    return c->cold.asked ? -ENOBUFS : 0;
}

void rmq_cold_forget(struct rmq_connection *c)
{
    free(c->cold.frame);
    c->cold.frame = NULL;
}

/* --- frames to be run again ----------------------------------------------------------------------------------- */

void rmq_redo_later(struct rmq_cold *cold, struct rmq_pending *p)
{
    uint32_t index = (uint32_t)(p - cold->pendings->table);
    p->next = RMQ_NONE;
    if (cold->redo_tail == RMQ_NONE)
        cold->redo_head = index;
    else
        cold->pendings->table[cold->redo_tail].next = index;
    cold->redo_tail = index;
    p->turn = (p->turn + 1) & RMQ_PENDING_TURN_MASK; /* its verdict has been spoken */
}

void rmq_redo_done(struct rmq_cold *cold)
{
    struct rmq_pending *p = rmq_redo_first(cold);
    cold->redo_head = p->next;
    if (cold->redo_head == RMQ_NONE)
        cold->redo_tail = RMQ_NONE;
    rmq_ask_release(cold, p);
}
