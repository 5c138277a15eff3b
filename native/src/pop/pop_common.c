/* pop_common.c: parts of the desk that all requests have in common: names, windows, room, answers. */
#include <string.h>

#include "codec/topic_names.h"
#include "plane/settings_word.h"
#include "pop/pop_desk.h"

#define PERM_READ 4u
#define CHANGE_REMARK "not set any response code" /* of stock, for a success too */
#define ENTRIES_MIN (2 * RMQ_POP_MESSAGES_MAX) /* one answer may need one for each message */

uint32_t rmq_pop_retry_topic(uint8_t *to, const uint8_t *group, uint32_t group_length, const uint8_t *topic, uint32_t topic_length,
                             uint32_t flag)
{
    uint32_t length = RMQ_RETRY_PREFIX_LENGTH + group_length + 1 + topic_length;
    if (length > RMQ_NAME_MAX)
        return 0;
    memcpy(to, RMQ_RETRY_PREFIX, RMQ_RETRY_PREFIX_LENGTH);
    memcpy(to + RMQ_RETRY_PREFIX_LENGTH, group, group_length);
    to[RMQ_RETRY_PREFIX_LENGTH + group_length] = flag == RMQ_POP_FLAG_RETRY_V2 ? '+' : '_';
    memcpy(to + RMQ_RETRY_PREFIX_LENGTH + group_length + 1, topic, topic_length);
    return length;
}

uint32_t rmq_pop_window_of(const struct rmq_pop_desk *d, uint32_t group_id, uint32_t queue_slot)
{
    uint32_t id, place = rmq_pop_index_find(d->index, group_id, queue_slot, &id);
    if (place == RMQ_NONE)
        return RMQ_NONE;
    const struct rmq_pop_window *window = rmq_pop_window_at(d->windows, place);
    return window && window->id == id ? place : RMQ_NONE;
}

uint32_t rmq_pop_topic_id(const struct rmq_pop_desk *d, const uint8_t *name, uint32_t length, uint64_t *config)
{
    uint32_t id = rmq_topic_find(d->plane, (const char *)name, length);
    if (id == RMQ_NONE)
        return RMQ_NONE;
    *config = rmq_load(&rmq_topic_at(d->plane, id)->config);
    return rmq_topic_is_live(*config) && !(rmq_topic_flags(*config) & RMQ_TOPIC_RECOVERED) ? id : RMQ_NONE;
}

uint32_t rmq_pop_find_target(const struct rmq_pop_desk *d, const struct rmq_pop_fields *fields, const uint8_t *text,
                             struct rmq_pop_target *target)
{
    uint64_t config;
    const struct rmq_plain_text topic = fields->topic, group = fields->group;
    target->topic_id = rmq_pop_topic_id(d, text + topic.at, topic.length, &config);
    if (target->topic_id == RMQ_NONE)
        return RMQ_POP_NO_TOPIC;
    if (!(rmq_topic_perm(config) & PERM_READ))
        return RMQ_POP_TOPIC_UNREADABLE;
    target->queues = rmq_topic_read_queues(config);
    if (fields->queue_id >= (int32_t)target->queues)
        return RMQ_POP_NO_QUEUE;
    target->group_id = rmq_group_find(d->plane, (const char *)text + group.at, group.length);
    uint64_t settings = target->group_id == RMQ_NONE ? 0 : rmq_load(&rmq_group_at(d->plane, target->group_id)->config);
    if (!(settings & RMQ_GROUP_LIVE))
        return RMQ_POP_NO_GROUP;
    return settings & RMQ_GROUP_CONSUME_ENABLE ? RMQ_POP_SERVED : RMQ_POP_GROUP_DISABLED;
}

uint32_t rmq_pop_room(const struct rmq_pop_desk *d, uint32_t asker)
{
    const struct rmq_ring *ring = &rmq_plane_header_of(d->plane)->asks.answerer[d->answerer].answers[asker];
    uint64_t room = (ring->capacity - rmq_ring_used(ring)) / 2; /* the end of the ring may be in the way */
    if (room > d->room_bytes)
        room = d->room_bytes;
    return room > sizeof(struct rmq_verdict) + 8 ? (uint32_t)(room - sizeof(struct rmq_verdict) - 8) : 0;
}

struct rmq_answer_head rmq_pop_head_of(const struct rmq_pop_row *row, int32_t code, const char *remark)
{
    return (struct rmq_answer_head){.code = code, .opaque = row->asked.opaque, .serialise = row->asked.serialise,
                                    .remark = remark, .remark_length = (uint32_t)strlen(remark)};
}

void rmq_pop_put_to(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked,
                    struct rmq_verdict *verdict, const void *payload, uint32_t length)
{
    verdict->last = 1;
    verdict->connection = ask->connection;
    verdict->connection_generation = ask->connection_generation;
    verdict->pending = ask->pending;
    verdict->asker_generation = ask->role_generation;
    if (asked->is_oneway)
        verdict->type = RMQ_VERDICT_DROP, length = 0;
    int rc = rmq_verdict_add(d->plane, d->answerer, ask->role, verdict, payload, length);
    RMQ_INVARIANT(rc == 0, rc, length, ask->role, verdict->type); /* there was room before the row was served */
    d->wakes |= UINT64_C(1) << ask->role;
}

void rmq_pop_put(struct rmq_pop_desk *d, const struct rmq_pop_row *row, struct rmq_verdict *verdict, const void *payload,
                 uint32_t length)
{
    if (row->held) {
        verdict->flags |= RMQ_VERDICT_HELD;
        verdict->serial = row->serial;
    }
    rmq_pop_put_to(d, &row->ask, &row->asked, verdict, payload, length);
}

void rmq_pop_put_code(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked, int32_t code,
                      const char *remark)
{
    uint8_t frame[512];
    struct rmq_answer_head head = {.code = code, .opaque = asked->opaque, .serialise = asked->serialise, .remark = remark,
                                   .remark_length = remark ? (uint32_t)strlen(remark) : 0};
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_SEND};
    rmq_pop_put_to(d, ask, asked, &verdict, frame, (uint32_t)rmq_error_answer_put(frame, &head, NULL));
}

void rmq_pop_put_change(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked,
                        int64_t pop_time_ms, int64_t invisible_ms, int32_t revive_queue)
{
    uint8_t frame[512];
    struct rmq_pop_answer answer = {
        .head = {.code = 0, .opaque = asked->opaque, .serialise = asked->serialise, .remark = CHANGE_REMARK,
                 .remark_length = sizeof CHANGE_REMARK - 1},
        .pop_time_ms = pop_time_ms, .invisible_ms = invisible_ms, .rest = -1, .revive_queue = revive_queue};
    struct rmq_verdict verdict = {.type = RMQ_VERDICT_SEND};
    rmq_pop_put_to(d, ask, asked, &verdict, frame, (uint32_t)rmq_pop_answer_put(frame, &answer));
}

void rmq_pop_desk_wake(struct rmq_pop_desk *d)
{
    for (; d->wakes; d->wakes &= d->wakes - 1)
        rmq_role_wake(d->plane, (uint32_t)__builtin_ctzll(d->wakes));
}

void rmq_pop_wake_order(struct rmq_pop_desk *d, uint32_t group_id, uint32_t queue_slot)
{
    const struct rmq_queue *queue = rmq_queue_at(d->plane, queue_slot);
    struct rmq_pop_key key = {.topic_id = queue->topic_id, .group_id = group_id};
    for (key.kind = 0; key.kind < RMQ_POP_POLL_KINDS; key.kind++) {
        key.queue_id = (int32_t)queue->queue_id;
        rmq_pop_polls_wake_key(d->polls, &key);
        key.queue_id = -1;
        rmq_pop_polls_wake_key(d->polls, &key);
    }
}

int rmq_pop_has_room(struct rmq_pop_desk *d)
{
    if (rmq_pop_entries_free(d->windows) < ENTRIES_MIN)
        rmq_pop_forget_revived(d->windows, ENTRIES_MIN);
    return rmq_pop_entries_free(d->windows) >= ENTRIES_MIN;
}

int rmq_pop_has_its_share(struct rmq_pop_desk *d, uint32_t group_id)
{
    uint64_t entries = 0, open = 0;
    if (d->entries_max - rmq_pop_entries_free(d->windows) < d->share_max)
        return 0; /* all groups together have less */
    if (d->share_group != group_id) {
        for (uint32_t at = rmq_pop_index_first(d->index, group_id); at != RMQ_NONE; at = rmq_pop_index_next(d->index, at)) {
            entries += rmq_pop_entries_of(d->windows, at);
            open += rmq_pop_open_messages(d->windows, at);
        }
        d->share_group = group_id;
        d->share = (uint32_t)(entries < open ? entries : open); /* an open entry has an open message at least */
    }
    return d->share >= d->share_max;
}
