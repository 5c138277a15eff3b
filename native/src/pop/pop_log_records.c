/* pop_log_records.c: check points and acknowledgements as requests. The keys of JSON stand in the order of RocketMQ's writer. */
#include "pop/pop_log_records.h"

#include <string.h>

#include "base/number_text.h"

#define NUMBERS_BYTES 2000 /* all of a record but its names */

struct writer {
    const struct rmq_pop_log_room *room;
    uint8_t *at;
};

static void put(struct writer *t, const void *text, size_t length)
{
    memcpy(t->at, text, length);
    t->at += length;
}
#define PUT(t, text) put(t, text, sizeof(text) - 1)

static void put_number(struct writer *t, int64_t value) { t->at = rmq_put_decimal(t->at, value); }
static void put_json(struct writer *t, const struct rmq_pop_log_text *of) { put(t, t->room->texts + of->json_at, of->json_length); }
static void put_raw(struct writer *t, const struct rmq_pop_log_text *of) { put(t, t->room->texts + of->at, of->length); }

static void put_list(struct writer *t, const struct rmq_pop_log_record *r, int64_t from)
{
    for (uint32_t i = 0; i < r->count; i++) {
        put(t, i ? "," : "[", 1);
        put_number(t, r->offsets[i] - from);
    }
    PUT(t, "]");
}

static void put_point_body(struct writer *t, const struct rmq_pop_log_record *r)
{
    PUT(t, "{\"bm\":0,\"bn\":\"");
    put_json(t, &t->room->broker);
    PUT(t, "\",\"c\":\"");
    put_json(t, &r->group);
    PUT(t, "\",\"d\":");
    put_list(t, r, r->start);
    PUT(t, ",\"it\":");
    put_number(t, r->invisible_ms);
    PUT(t, ",\"n\":");
    put_number(t, r->count);
    PUT(t, ",\"pt\":");
    put_number(t, r->pop_time_ms);
    PUT(t, ",\"q\":");
    put_number(t, r->queue_id);
    PUT(t, ",\"reviveTime\":");
    put_number(t, r->pop_time_ms + r->invisible_ms);
    PUT(t, ",\"ro\":0,\"so\":");
    put_number(t, r->start);
    PUT(t, ",\"t\":\"");
    put_json(t, &r->topic);
    PUT(t, "\"}");
}

static void put_ack_body(struct writer *t, const struct rmq_pop_log_record *r)
{
    PUT(t, "{\"ao\":");
    put_number(t, r->count == 1 ? r->offsets[0] : -1);
    if (r->count != 1) {
        PUT(t, ",\"aol\":");
        put_list(t, r, 0);
    }
    PUT(t, ",\"bn\":\"");
    put_json(t, &t->room->broker);
    PUT(t, "\",\"c\":\"");
    put_json(t, &r->group);
    PUT(t, "\",\"pt\":");
    put_number(t, r->pop_time_ms);
    PUT(t, ",\"q\":");
    put_number(t, r->queue_id);
    PUT(t, ",\"so\":");
    put_number(t, r->start);
    PUT(t, ",\"t\":\"");
    put_json(t, &r->topic);
    PUT(t, "\"}");
}

static void put_key(struct writer *t, const struct rmq_pop_log_record *r)
{
    PUT(t, "\002UNIQ_KEY\001");
    put_raw(t, &r->topic);
    PUT(t, "@");
    put_number(t, r->queue_id);
    PUT(t, "@");
    put_number(t, !r->is_ack ? r->start : r->count == 1 ? r->offsets[0] : -1);
    PUT(t, "@");
    put_raw(t, &r->group);
    PUT(t, "@");
    put_number(t, r->pop_time_ms);
    PUT(t, "@");
    put_raw(t, &t->room->broker);
    if (!r->is_ack)
        PUT(t, "@ck\002TAGS\001ck\002");
    else if (r->count == 1)
        PUT(t, "@ack\002TAGS\001ack\002");
    else
        PUT(t, "@ack\002TAGS\001bAck\002");
}

static void put_pairs(struct writer *t, const struct rmq_pop_log_record *r, int64_t deliver_ms, int is_timed, uint32_t revive_queue)
{
    if (is_timed) {
        PUT(t, "REAL_TOPIC\001");
        put_raw(t, &t->room->revive_topic);
        PUT(t, "\002");
    }
    PUT(t, "TIMER_DELIVER_MS\001");
    put_number(t, deliver_ms);
    put_key(t, r);
    if (is_timed) {
        int64_t over = deliver_ms % t->room->precision_ms;
        PUT(t, "TIMER_OUT_MS\001");
        put_number(t, deliver_ms - (over ? over : t->room->precision_ms));
        PUT(t, "\002REAL_QID\001");
        put_number(t, revive_queue);
        PUT(t, "\002");
    }
}

uint64_t rmq_pop_log_record_bytes(const struct rmq_pop_log_room *room, const struct rmq_pop_log_record *r)
{
    uint64_t names = (uint64_t)r->group.json_length + r->group.length + r->topic.json_length + r->topic.length +
                     room->broker.json_length + room->broker.length + room->revive_topic.length;
    return names + NUMBERS_BYTES;
}

void rmq_pop_log_origin(const struct rmq_pop_log_room *room, struct rmq_request *request)
{
    request->kind = RMQ_APPEND_SINGLE;
    request->flags = (uint16_t)(RMQ_APPEND_FLAG_COPY | (room->born_v6 ? RMQ_APPEND_FLAG_BORN_V6 : 0));
    request->born_time_ms = room->now_ms;
    request->born_port = room->born_port;
    memcpy(request->born_host, room->born_host, sizeof request->born_host);
}

void rmq_pop_log_record_put(struct rmq_pop_log_room *room, struct rmq_request *request, const struct rmq_pop_log_record *r)
{
    int64_t deliver_ms = r->pop_time_ms + r->invisible_ms - (r->is_ack ? 0 : RMQ_POP_POINT_EARLIER_MS);
    uint32_t revive = r->revive_queue % room->revive_queues;
    int is_timed = room->timer_slot != RMQ_NONE && deliver_ms > room->now_ms;
    struct writer t = {room, room->arena + room->arena_at};
    *request = (struct rmq_request){.body_at = room->arena_at};
    rmq_pop_log_origin(room, request);
    if (r->is_ack)
        put_ack_body(&t, r);
    else
        put_point_body(&t, r);
    request->body_length = (uint32_t)(t.at - room->arena - request->body_at);
    request->properties_at = request->body_at + request->body_length;
    put_pairs(&t, r, deliver_ms, is_timed, room->revive_ids[revive]);
    request->properties_length = (uint16_t)(t.at - room->arena - request->properties_at);
    request->topic_id = is_timed ? room->timer_topic_id : room->revive_topic_id;
    request->queue_slot = is_timed ? room->timer_slot : room->revive_slots[revive];
    request->queue_id = is_timed ? 0 : room->revive_ids[revive];
    room->arena_at = (uint64_t)(t.at - room->arena);
}
