#include <errno.h>
#include <stdio.h>

#include "crc32.h"
#include "scenarios.h"

enum { SYS_COMMIT = 1, SYS_SUSPEND = 2, SYS_SUBSCRIPTION = 4, FRAME_ROOM = 4096, ANSWER_ROOM = 5 << 20 };

uint32_t pull_lanes(const struct pull_scenario *p)
{
    return lanes_count(&p->lanes) * (p->groups ? p->groups : 1);
}

/* The lane of a place in the row of all groups. */
static uint32_t lane_of(const struct pull_scenario *p, uint32_t place)
{
    return place % lanes_count(&p->lanes);
}

/* Writes the group of a place into `out` (TOPIC_ROOM bytes) and returns it. */
static const char *group_of(const struct pull_scenario *p, uint32_t place, char *out)
{
    if (p->groups <= 1)
        return p->group;
    snprintf(out, TOPIC_ROOM, "%s-%u", p->group, place / lanes_count(&p->lanes));
    return out;
}

enum { FILTER_RANGE = 20 }; /* a condition finds the messages of an answer among so many times as many */

/* Full speed: the queues in turn, each range of max_messages, from the start again when the end is near. */
static int choose_any(struct pull_scenario *p, struct slot *slot)
{
    for (uint32_t tries = 0; tries < pull_lanes(p); tries++) {
        uint32_t q = p->turn++ % pull_lanes(p);
        uint32_t range = p->max_messages * (p->expression || p->tag ? FILTER_RANGE : 1);
        if (p->max[q] - p->min[q] < range)
            continue;
        if (p->next[q] + range > p->max[q])
            p->next[q] = p->min[q];
        slot->lane = q;
        slot->tag = p->next[q];
        slot->want = p->max_messages;
        p->next[q] += range;
        return 1;
    }
    return 0;
}

/* Read back, follow: a queue that is neither finished nor asked already. */
static int choose_unread(struct pull_scenario *p, struct slot *slot)
{
    for (uint32_t tries = 0; tries < pull_lanes(p); tries++) {
        uint32_t q = p->turn++ % pull_lanes(p);
        if (p->in_flight[q] || p->next[q] >= p->max[q])
            continue;
        p->in_flight[q] = 1;
        slot->lane = q;
        slot->tag = p->next[q];
        slot->want = 0;
        return 1;
    }
    return 0;
}

static uint32_t pull_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct pull_scenario *p = self;
    (void)connection;
    if (!(p->kind == PULL_FULL_SPEED ? choose_any(p, slot) : choose_unread(p, slot)))
        return 0;
    char topic[TOPIC_ROOM], group[TOPIC_ROOM], queue[12], offset[24], count[12], flag[12], poll[12];
    uint32_t lane = lane_of(p, slot->lane);
    snprintf(queue, sizeof queue, "%u", lane_queue(&p->lanes, lane));
    snprintf(offset, sizeof offset, "%llu", (unsigned long long)slot->tag);
    snprintf(count, sizeof count, "%u", p->max_messages);
    int flags = p->subscription_in_pull ? SYS_SUBSCRIPTION : SYS_SUSPEND;
    flags |= (p->kind == PULL_FOLLOW ? SYS_SUSPEND : 0) | (p->commit ? SYS_COMMIT : 0);
    snprintf(flag, sizeof flag, "%d", flags);
    snprintf(poll, sizeof poll, "%u", p->poll_ms ? p->poll_ms : 1000);
    struct ext ext[] = {
        {"consumerGroup", group_of(p, slot->lane, group)}, {"topic", lane_topic(&p->lanes, lane, topic)}, {"queueId", queue}, {"queueOffset", offset},
        {"maxMsgNums", count}, {"sysFlag", flag}, {"commitOffset", p->commit ? offset : "0"}, {"suspendTimeoutMillis", p->kind == PULL_FOLLOW ? poll : "15000"},
        {"subVersion", "1"}, {"expressionType", p->expression ? "SQL92" : "TAG"}, {"maxMsgBytes", "262144"},
        {"subscription", p->expression ? p->expression : p->tag ? p->tag : p->subscription_in_pull ? "*" : ""},
    };
    struct request r = {
        .code = CODE_PULL_MESSAGE, .opaque = slot->opaque, .ext = ext, .ext_count = sizeof ext / sizeof *ext};
    return (uint32_t)wire_encode(out, &r, p->json);
}

static int read_back(struct pull_scenario *p, const struct slot *slot, const struct answer *answer)
{
    int count = 0;
    struct record record;
    for (size_t at = 0; at < answer->body_len; at += record.size) {
        if (wire_record(answer->body + at, answer->body_len - at, &record) < 0) {
            p->finished = pull_lanes(p);
            return -EBADMSG;
        }
        uint32_t crc = crc32_of(record.body, record.body_len);
        if ((crc & 0x7fffffffu) != record.body_crc)
            p->wrong_crc++;
        if (record.queue_offset != slot->tag + (uint64_t)count || record.queue_id != lane_queue(&p->lanes, lane_of(p, slot->lane)))
            p->wrong_offset++;
        p->crc_sum += crc;
        if (p->keep != NULL)
            send_back_keep(p->keep, record.physical_offset, crc);
        if (p->arrivals != NULL)
            arrivals_take(p->arrivals, &record);
        count++;
    }
    p->read += (uint64_t)count;
    p->next[slot->lane] += (uint64_t)count;
    p->in_flight[slot->lane] = 0;
    p->last_ns = now_ns();
    p->first_ns = p->first_ns ? p->first_ns : p->last_ns;
    if (count == 0)
        p->finished = pull_lanes(p); /* success without a message would be asked for ever */
    return count > 0 ? count : -EBADMSG;
}

static int pull_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct pull_scenario *p = self;
    if (p->kind != PULL_FULL_SPEED)
        return read_back(p, slot, answer);
    int count = wire_count_records(answer->body, answer->body_len);
    if (count >= 0 && (uint32_t)count != slot->want)
        p->short_answers++;
    return count;
}

static int pull_refused(void *self, const struct slot *slot, const struct answer *answer)
{
    struct pull_scenario *p = self;
    int nothing_new = p->kind == PULL_FOLLOW &&
                      (answer->code == ANSWER_PULL_NOT_FOUND || answer->code == ANSWER_PULL_RETRY_IMMEDIATELY);
    p->in_flight[slot->lane] = 0;
    /* A queue that does not answer is left alone, so that a read back always ends. */
    if (p->kind != PULL_FULL_SPEED && !nothing_new)
        p->next[slot->lane] = p->max[slot->lane];
    return nothing_new;
}

static int pull_done(void *self)
{
    struct pull_scenario *p = self;
    if (p->kind == PULL_FULL_SPEED)
        return 0;
    if (p->finished >= pull_lanes(p))
        return 1;
    if (p->kind == PULL_FOLLOW)
        return p->first_ns != 0 && now_ns() - p->last_ns >= p->idle_ns;
    for (uint32_t q = 0; q < pull_lanes(p); q++)
        if (p->in_flight[q] || p->next[q] < p->max[q])
            return 0;
    return 1;
}

int pull_init(struct pull_scenario *p, struct scenario *out)
{
    uint64_t messages = 0;
    for (uint32_t q = 0; q < pull_lanes(p); q++) {
        if (p->kind == PULL_FOLLOW)
            p->max[q] = UINT64_MAX;
        p->next[q] = p->min[q];
        p->in_flight[q] = 0;
        messages += p->max[q] - p->min[q];
    }
    p->turn = p->finished = 0;
    p->first_ns = p->last_ns = 0;
    p->read = p->crc_sum = p->wrong_crc = p->wrong_offset = p->short_answers = 0;
    *out = (struct scenario){
        .self = p,
        .frame_max = FRAME_ROOM,
        .answer_max = p->kind == PULL_FULL_SPEED ? 1 << 20 : ANSWER_ROOM,
        .messages_per_frame = 0,
        .write = pull_write,
        .answer = pull_answer,
        .refused = pull_refused,
        .done = pull_done,
    };
    return messages == 0 ? -ENODATA : 0;
}
