/* pop_log_batch.c: the records of a batch of acknowledgements and changes. Twin: ringmq/pop/log_acks_twin.py. */
#include <string.h>

#include "pop/pop_entries.h"
#include "pop/pop_log_acks.h"

#define BATCH RMQ_POP_LOG_BATCH
#define CELLS 1024u /* of the hash of entries */

/* A record of the batch. */
struct planned {
    uint64_t act;                /* number of the first act that needs it */
    uint32_t entry;              /* of messages that are done; RMQ_NONE: the record is that of the act's check point */
    uint32_t is_point;
    uint64_t bits;
};

struct plan {
    struct rmq_pop_windows *windows;
    struct planned records[BATCH];
    uint32_t count;
    uint16_t cells[CELLS];       /* acknowledgements by entry: record + 1 */
};

/* --- names ---------------------------------------------------------------------------------------------------------------- */

static void put_name(struct rmq_pop_log_acks *la, uint32_t *at, struct rmq_pop_log_text *to, const char *name, uint32_t length)
{
    *to = (struct rmq_pop_log_text){.at = *at, .length = length};
    memcpy(la->texts + *at, name, length);
    to->json_at = *at += length;
    for (uint32_t i = 0; i < length; i++) {
        uint8_t c = (uint8_t)name[i];
        if (c < 0x20) {
            memcpy(la->texts + *at, "\\u00", 4);
            la->texts[*at + 4] = (uint8_t)"0123456789abcdef"[c >> 4];
            la->texts[*at + 5] = (uint8_t)"0123456789abcdef"[c & 15];
            *at += 6;
            continue;
        }
        if (c == '"' || c == '\\')
            la->texts[(*at)++] = '\\';
        la->texts[(*at)++] = c;
    }
    to->json_length = *at - to->json_at;
}

void rmq_pop_log_names(struct rmq_pop_log_acks *la, struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot)
{
    if (la->names[0].length && la->names_group == group_id && la->names_slot == queue_slot)
        return;
    const struct rmq_group *group = rmq_group_at(plane, group_id);
    const struct rmq_topic *topic = rmq_topic_at(plane, rmq_queue_at(plane, queue_slot)->topic_id);
    uint32_t at = la->texts_bytes;
    put_name(la, &at, &la->names[0], group->name, group->name_length);
    put_name(la, &at, &la->names[1], topic->name, topic->name_length);
    la->names_group = group_id;
    la->names_slot = queue_slot;
}

/* --- a plan --------------------------------------------------------------------------------------------------------------- */

static struct planned *add(struct plan *plan, uint64_t act, uint32_t entry, uint64_t bits)
{
    struct planned *made = &plan->records[plan->count++];
    *made = (struct planned){.act = act, .entry = entry, .bits = bits};
    return made;
}

/* Messages of one entry that are done: with those of earlier acts, in one record. */
static void add_ack(struct plan *plan, uint64_t act, uint32_t entry, uint64_t bits)
{
    uint32_t cell = (uint32_t)rmq_pop_mix(entry) % CELLS;
    for (; plan->cells[cell]; cell = (cell + 1) % CELLS)
        if (plan->records[plan->cells[cell] - 1].entry == entry) {
            plan->records[plan->cells[cell] - 1].bits |= bits;
            return;
        }
    add(plan, act, entry, bits);
    plan->cells[cell] = (uint16_t)plan->count;
}

static void plan_act(struct plan *plan, struct rmq_pop_log_act *act, uint64_t number)
{
    const struct rmq_pop_windows *w = plan->windows;
    uint32_t at = rmq_pop_receipt_first(w, act->window, act->start_offset, act->pop_time_ms);
    if (act->kind == RMQ_POP_LOG_END) {
        add(plan, number, RMQ_NONE, 1);
        return;
    }
    for (; at; at = rmq_pop_receipt_next(w, at, act->window, act->start_offset, act->pop_time_ms)) {
        uint64_t bits = rmq_pop_bits_in(&w->entries[at - 1], act->offset, act->bits) & rmq_pop_in_log_bits(w, at - 1);
        if (!bits)
            continue;
        if (act->kind == RMQ_POP_LOG_ACK) {
            add_ack(plan, number, at - 1, bits);
            continue;
        }
        add(plan, number, RMQ_NONE, 1)->is_point = act->is_written = 1;
        add(plan, number, at - 1, bits);
        return;
    }
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static void put_record(struct rmq_pop_log_acks *la, const struct plan *plan, const struct planned *planned, struct rmq_request *request)
{
    const struct rmq_pop_windows *w = plan->windows;
    const struct rmq_pop_log_act *act = rmq_pop_log_act_at(la, planned->act);
    const struct rmq_pop_entry *e = planned->entry == RMQ_NONE ? NULL : &w->entries[planned->entry];
    int64_t offsets[RMQ_POP_ENTRY_MESSAGES], base = e ? (int64_t)e->base_offset : act->offset;
    struct rmq_pop_log_record record = {
        .group = la->names[0], .topic = la->names[1], .offsets = offsets, .is_ack = !planned->is_point,
        .queue_id = w->windows[w->places[act->window] - 1].queue_id,
        .start = e ? rmq_pop_start_of(e) : planned->is_point ? act->offset : act->start_offset,
        .pop_time_ms = e ? e->pop_time_ms : act->give.pop_time_ms,
        .invisible_ms = e ? e->invisible_ms : act->give.invisible_ms,
        .revive_queue = (e ? e->revive_queue : act->give.revive_queue) & ~(uint32_t)RMQ_POP_CHANGED,
    };
    for (uint64_t left = planned->bits; left; left &= left - 1)
        offsets[record.count++] = base + __builtin_ctzll(left);
    rmq_pop_log_record_put(&la->room, request, &record);
    request->token = RMQ_POP_LOG_TOKEN | (planned->act & (RMQ_POP_LOG_ACTS_MAX - 1));
    if (planned->is_point)
        request->flags |= RMQ_APPEND_FLAG_WITH_NEXT;
}

uint32_t rmq_pop_log_batch(struct rmq_pop_log_acks *la, struct rmq_plane *plane, struct rmq_pop_windows *windows,
                           struct rmq_request *requests, uint32_t room)
{
    struct plan plan = {.windows = windows};
    room = room < BATCH ? room : BATCH;
    for (; la->sent < la->to && plan.count + 2 <= room; la->sent++) { /* 64 offsets lie in two entries of a pop at most */
        struct rmq_pop_log_act *act = rmq_pop_log_act_at(la, la->sent);
        if (windows->places[act->window])
            plan_act(&plan, act, la->sent);
    }
    la->room.arena_at = 0;
    la->names[0].length = 0; /* a slot may have another topic since the last batch */
    for (uint32_t i = 0; i < plan.count; i++) {
        const struct rmq_pop_log_act *act = rmq_pop_log_act_at(la, plan.records[i].act);
        rmq_pop_log_names(la, plane, act->group_id, act->queue_slot);
        put_record(la, &plan, &plan.records[i], &requests[i]);
    }
    return plan.count;
}
