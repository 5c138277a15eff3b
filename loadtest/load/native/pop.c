#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "crc32.h"
#include "scenarios.h"

enum { FRAME_ROOM = 8192, ANSWER_ROOM = 1 << 20, BITS = 64, BASE64_ROOM = 16 };

/* --- what was popped and is to be acknowledged, a ring for each connection ------------------------------------- */

static struct popped *ring_at(struct pop_scenario *p, uint32_t connection, uint64_t number)
{
    return &p->rings[(uint64_t)connection * p->depth + number % p->depth];
}

static struct popped *oldest(struct pop_scenario *p, uint32_t connection)
{
    return p->head[connection] == p->tail[connection] ? NULL : ring_at(p, connection, p->head[connection]);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static uint32_t encode(const struct pop_scenario *p, const struct slot *slot, int code, const struct ext *ext, size_t count, uint8_t *out)
{
    struct request request = {.code = code, .opaque = slot->opaque, .ext = ext, .ext_count = count};
    return (uint32_t)wire_encode(out, &request, p->json);
}

/* A connection pops one topic for one group. */
static uint32_t place_of(const struct pop_scenario *p, uint32_t connection)
{
    uint32_t groups = p->groups ? p->groups : 1;
    return connection % (groups > p->lanes.topics ? groups : p->lanes.topics);
}

static const char *topic_of(const struct pop_scenario *p, uint32_t connection, char *out)
{
    return lane_topic(&p->lanes, place_of(p, connection) % p->lanes.topics * p->lanes.queues, out);
}

static const char *group_of(const struct pop_scenario *p, uint32_t connection, char *out)
{
    snprintf(out, TOPIC_ROOM, p->groups > 1 ? "%s-%u" : "%s", p->group, place_of(p, connection));
    return out;
}

static uint32_t write_pop(const struct pop_scenario *p, struct slot *slot, uint8_t *out)
{
    char count[12], invisible[12], poll[12], born[24], topic[TOPIC_ROOM], group[TOPIC_ROOM];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(count, sizeof count, "%u", p->max_messages);
    snprintf(invisible, sizeof invisible, "%u", p->invisible_ms);
    snprintf(poll, sizeof poll, "%u", p->poll_ms);
    snprintf(born, sizeof born, "%lld", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    struct ext ext[] = {
        {"consumerGroup", group_of(p, slot->connection, group)}, {"topic", topic_of(p, slot->connection, topic)}, {"queueId", "-1"},
        {"maxMsgNums", count}, {"invisibleTime", invisible}, {"pollTime", poll}, {"bornTime", born}, {"initMode", "0"}, {"expType", "TAG"}, {"exp", "*"},
    };
    slot->want = 0;
    return encode(p, slot, CODE_POP, ext, sizeof ext / sizeof *ext, out);
}

/* Takes the lowest bit of what is to be acknowledged, and asks for that message alone. */
static uint32_t write_single_ack(struct pop_scenario *p, struct popped *popped, struct slot *slot, uint8_t *out)
{
    struct popped_queue *q = &popped->queues[popped->count - 1];
    char topic[TOPIC_ROOM], group[TOPIC_ROOM], queue[12], offset[24], receipt[256];
    uint64_t at = q->start + (uint64_t)__builtin_ctzll(q->bits);
    snprintf(queue, sizeof queue, "%u", q->queue);
    snprintf(offset, sizeof offset, "%" PRIu64, at);
    snprintf(receipt, sizeof receipt, "%" PRIu64 " %" PRId64 " %u %u 0 %s %u %" PRIu64, q->start, popped->pop_time_ms,
             p->invisible_ms, popped->revive_queue, p->broker_name, q->queue, at);
    q->bits &= q->bits - 1;
    if (q->bits == 0)
        popped->count--;
    struct ext ext[] = {
        {"consumerGroup", group_of(p, slot->connection, group)}, {"topic", topic_of(p, slot->connection, topic)}, {"queueId", queue},
        {"extraInfo", receipt}, {"offset", offset},
    };
    slot->want = 1;
    return encode(p, slot, CODE_ACK, ext, sizeof ext / sizeof *ext, out);
}

/* The set of bits as Java writes it: bytes from the lowest on, without zero bytes at the end, in Base64. */
static void base64_of(uint64_t bits, char out[BASE64_ROOM])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t length = (uint32_t)(BITS - __builtin_clzll(bits) + 7) / 8, at = 0;
    for (uint32_t i = 0; i < length; i += 3) {
        uint32_t group = 0;
        for (uint32_t k = 0; k < 3; k++)
            group = group << 8 | (i + k < length ? (uint8_t)(bits >> 8 * (i + k)) : 0);
        for (uint32_t k = 0; k < 4; k++)
            out[at++] = i + k <= length ? digits[group >> (18 - 6 * k) & 63] : '=';
    }
    out[at] = 0;
}

/* All messages of one pop in one request. */
static uint32_t write_batch_ack(struct pop_scenario *p, struct popped *popped, struct slot *slot, uint8_t *out)
{
    char body[FRAME_ROOM - 256], base64[BASE64_ROOM], topic[TOPIC_ROOM], group[TOPIC_ROOM];
    size_t at = (size_t)snprintf(body, sizeof body, "{\"acks\":[");
    slot->want = 0;
    topic_of(p, slot->connection, topic);
    group_of(p, slot->connection, group);
    for (uint32_t i = 0; i < popped->count; i++) {
        const struct popped_queue *q = &popped->queues[i];
        base64_of(q->bits, base64);
        at += (size_t)snprintf(body + at, sizeof body - at,
                               "%s{\"b\":\"%s\",\"c\":\"%s\",\"it\":%u,\"pt\":%" PRId64 ",\"q\":%u,\"r\":\"0\",\"rq\":%u,\"so\":%" PRIu64 ",\"t\":\"%s\"}",
                               i ? "," : "", base64, group, p->invisible_ms, popped->pop_time_ms, q->queue,
                               popped->revive_queue, q->start, topic);
        slot->want += (uint32_t)__builtin_popcountll(q->bits);
    }
    at += (size_t)snprintf(body + at, sizeof body - at, "],\"brokerName\":\"%s\"}", p->broker_name);
    popped->count = 0;
    struct request request = {.code = CODE_BATCH_ACK, .opaque = slot->opaque, .body = body, .body_len = at};
    return (uint32_t)wire_encode(out, &request, p->json);
}

static uint32_t pop_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct pop_scenario *p = self;
    struct popped *popped = oldest(p, connection);
    slot->connection = connection;
    if (popped != NULL) {
        uint32_t length = (p->single_acks ? write_single_ack : write_batch_ack)(p, popped, slot, out);
        if (popped->count == 0)
            p->head[connection]++;
        p->acks_under_way++;
        return length;
    }
    if (p->begun_ns == 0)
        p->begun_ns = now_ns();
    if (p->poll_ms ? p->polls[connection] >= p->depth : p->popped >= p->expected || (p->stop_ns && now_ns() - p->begun_ns >= p->stop_ns))
        return 0;
    p->pops_under_way++;
    p->polls[connection]++;
    return write_pop(p, slot, out);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* Reads a number and steps over the character behind it, which must be one of `ends`; the end of the text counts as one. */
static int take_number(const char **text, const char *end, const char *ends, uint64_t *value, char *ended_by)
{
    const char *at = *text;
    for (*value = 0; at < end && *at >= '0' && *at <= '9'; at++)
        *value = *value * 10 + (uint64_t)(*at - '0');
    if (at == *text)
        return -EBADMSG;
    *ended_by = at < end ? *at : 0;
    if (at < end && strchr(ends, *at) == NULL)
        return -EBADMSG;
    *text = at < end ? at + 1 : at;
    return 0;
}

/* `0 2 5;0 3 9`: the offset from which a queue was read. */
static int take_starts(struct popped *popped, const char *text, const char *end)
{
    uint64_t flag, queue, start;
    char by = ';';
    popped->count = 0;
    while (by == ';') {
        if (popped->count == POP_QUEUES_MAX || take_number(&text, end, " ", &flag, &by) < 0 ||
            take_number(&text, end, " ", &queue, &by) < 0 || take_number(&text, end, ";", &start, &by) < 0)
            return -EBADMSG;
        if (flag != 0)
            return -ESTALE; /* a message of the retry topic: it was popped before */
        popped->queues[popped->count++] = (struct popped_queue){.queue = (uint32_t)queue, .start = start};
    }
    return 0;
}

/* Takes one record of a queue. It must be the next of the offsets that the answer names. */
static int take_record(struct pop_scenario *p, uint32_t connection, struct popped_queue *q, uint64_t offset,
                       const struct answer *answer, size_t *at)
{
    struct record record;
    uint32_t lane = place_of(p, connection) * p->lanes.queues + q->queue;
    if (offset < q->start || offset - q->start >= BITS || wire_record(answer->body + *at, answer->body_len - *at, &record) < 0)
        return -EBADMSG;
    *at += record.size;
    if (record.queue_id != q->queue || record.queue_offset != offset || q->queue >= p->lanes.queues || offset >= p->max[lane])
        return -EBADMSG;
    uint32_t crc = crc32_of(record.body, record.body_len);
    if ((crc & 0x7fffffffu) != record.body_crc)
        p->wrong_crc++;
    uint64_t *seen = &p->seen[lane][offset / BITS], bit = 1ull << offset % BITS;
    if (*seen & bit)
        p->twice++;
    *seen |= bit;
    q->bits |= 1ull << (offset - q->start);
    p->crc_sum += crc;
    p->popped++;
    if (offset >= p->ends[lane])
        p->ends[lane] = offset + 1;
    if (p->arrivals != NULL)
        arrivals_take(p->arrivals, &record);
    return 0;
}

/* `0 2 5,6;0 3 9`: the offsets of the messages in the body, in their order. */
static int take_messages(struct pop_scenario *p, uint32_t connection, struct popped *popped, const struct answer *answer, const char *text, const char *end)
{
    uint64_t flag, queue, offset;
    size_t at = 0;
    char by = ';';
    for (uint32_t i = 0; i < popped->count; i++) {
        if (by != ';' || take_number(&text, end, " ", &flag, &by) < 0 || take_number(&text, end, " ", &queue, &by) < 0 ||
            queue != popped->queues[i].queue)
            return -EBADMSG;
        for (by = ','; by == ',';)
            if (take_number(&text, end, ",;", &offset, &by) < 0 || take_record(p, connection, &popped->queues[i], offset, answer, &at) < 0)
                return -EBADMSG;
    }
    return by == 0 && at == answer->body_len ? 0 : -EBADMSG;
}

static int take_pop(struct pop_scenario *p, uint32_t connection, const struct answer *answer)
{
    size_t starts_length = 0, messages_length = 0;
    const char *starts = wire_ext_text(answer, "startOffsetInfo", &starts_length);
    const char *messages = wire_ext_text(answer, "msgOffsetInfo", &messages_length);
    struct popped *popped = ring_at(p, connection, p->tail[connection]);
    int64_t revive_queue;
    if (starts == NULL || messages == NULL || wire_ext_number(answer, "popTime", &popped->pop_time_ms) < 0 ||
        wire_ext_number(answer, "reviveQid", &revive_queue) < 0)
        return -EBADMSG;
    popped->revive_queue = (uint32_t)revive_queue;
    int rc = take_starts(popped, starts, starts + starts_length);
    if (rc == 0)
        rc = take_messages(p, connection, popped, answer, messages, messages + messages_length);
    if (rc == -ESTALE)
        p->came_back++;
    if (rc == 0 && !p->leave_open)
        p->tail[connection]++;
    return rc == 0 ? 0 : -EBADMSG;
}

static int pop_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct pop_scenario *p = self;
    if (slot->want == 0) {
        p->pops_under_way--;
        p->polls[slot->connection]--;
        return take_pop(p, slot->connection, answer);
    }
    p->acks_under_way--;
    p->acked += slot->want;
    return (int)slot->want;
}

static int pop_refused(void *self, const struct slot *slot, const struct answer *answer)
{
    struct pop_scenario *p = self;
    if (slot->want == 0) {
        p->pops_under_way--;
        p->polls[slot->connection]--;
    } else {
        p->acks_under_way--;
    }
    int is_empty = slot->want == 0 && answer->code == ANSWER_POLLING_TIMEOUT;
    p->empty_pops += (uint64_t)is_empty;
    return is_empty;
}

static int pop_done(void *self)
{
    const struct pop_scenario *p = self;
    int is_over = p->begun_ns && (p->popped >= p->expected || (p->stop_ns && now_ns() - p->begun_ns >= p->stop_ns));
    if (!is_over || p->pops_under_way || p->acks_under_way)
        return 0;
    for (uint32_t c = 0; c < p->connections; c++)
        if (p->head[c] != p->tail[c])
            return 0;
    return 1;
}

uint32_t pop_lanes(const struct pop_scenario *p)
{
    return lanes_count(&p->lanes) * (p->groups ? p->groups : 1);
}

uint64_t pop_skipped(const struct pop_scenario *p)
{
    uint64_t passed = 0;
    for (uint32_t q = 0; q < pop_lanes(p); q++)
        passed += p->ends[q];
    return passed + p->twice - p->popped;
}

int pop_init(struct pop_scenario *p, struct scenario *out)
{
    uint64_t words = 0, at = 0;
    for (uint32_t q = 0; q < pop_lanes(p); q++) {
        p->expected += p->max[q];
        words += p->max[q] / BITS + 1;
    }
    p->rings = calloc((size_t)p->connections * p->depth, sizeof *p->rings);
    p->bits = calloc(words, sizeof *p->bits);
    if (p->rings == NULL || p->bits == NULL)
        return -ENOMEM;
    for (uint32_t q = 0; q < pop_lanes(p); q++) {
        p->seen[q] = p->bits + at;
        at += p->max[q] / BITS + 1;
    }
    *out = (struct scenario){
        .self = p, .frame_max = FRAME_ROOM, .answer_max = ANSWER_ROOM, .write = pop_write, .answer = pop_answer,
        .refused = pop_refused, .done = pop_done,
    };
    return p->expected == 0 ? -ENODATA : 0;
}

void pop_free(struct pop_scenario *p)
{
    free(p->rings);
    free(p->bits);
}
