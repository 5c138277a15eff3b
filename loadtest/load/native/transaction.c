#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "scenarios.h"

enum { NO_HALF = UINT32_MAX, END_MAX = 1024, ID_DIGITS = 32 };

/* --- halves that are to be committed, a queue for each connection --------------------------------------------- */

static void push(struct transaction_scenario *t, uint32_t connection, const struct stored_half *half)
{
    uint32_t at = t->free;
    t->free = t->halves[at].next;
    t->halves[at] = *half;
    t->halves[at].next = NO_HALF;
    if (t->first[connection] == NO_HALF)
        t->first[connection] = at;
    else
        t->halves[t->last[connection]].next = at;
    t->last[connection] = at;
}

static struct stored_half pop(struct transaction_scenario *t, uint32_t connection)
{
    uint32_t at = t->first[connection];
    struct stored_half half = t->halves[at];
    t->first[connection] = half.next;
    t->halves[at].next = t->free;
    t->free = at;
    return half;
}

/* --- requests and answers -------------------------------------------------------------------------------------- */

static uint32_t write_commit(struct transaction_scenario *t, const struct stored_half *half, struct slot *slot, uint8_t *out)
{
    const struct message_plan *plan = &t->send.messages.plan;
    char topic[TOPIC_ROOM], key[UNIQ_TEXT + 1], offset[24], position[24];
    messages_uniq_key(plan->run_id, half->sequence, key);
    snprintf(offset, sizeof offset, "%" PRId64, half->half_offset);
    snprintf(position, sizeof position, "%" PRIu64, half->position);
    struct ext ext[] = {
        {"topic", lane_topic(&plan->lanes, half->lane, topic)}, {"producerGroup", plan->group}, {"tranStateTableOffset", offset},
        {"commitLogOffset", position}, {"commitOrRollback", "8"}, {"fromTransactionCheck", "false"}, {"msgId", key},
        {"transactionId", key}, {"bname", plan->broker_name},
    };
    struct request request = {
        .code = CODE_END_TRANSACTION, .opaque = slot->opaque, .ext = ext, .ext_count = sizeof ext / sizeof *ext,
    };
    slot->tag = half->sequence;
    slot->lane = half->lane;
    slot->want = 1;
    return (uint32_t)wire_encode(out, &request, plan->json);
}

static uint32_t transaction_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct transaction_scenario *t = self;
    if (t->first[connection] != NO_HALF) {
        struct stored_half half = pop(t, connection);
        return write_commit(t, &half, slot, out);
    }
    uint32_t length = send_write(&t->send, connection, slot, out);
    slot->want = 0;
    slot->connection = connection;
    return length;
}

/* The place of the half: its offset in the half queue, and the last 16 digits of its message id. */
static int read_place(const struct answer *answer, struct stored_half *half)
{
    size_t length = 0;
    const char *id = wire_ext_text(answer, "msgId", &length);
    char digits[17] = "", *end;
    if (id == NULL || length < ID_DIGITS || wire_ext_number(answer, "queueOffset", &half->half_offset) < 0)
        return -EBADMSG;
    memcpy(digits, id + length - 16, 16);
    half->position = strtoull(digits, &end, 16);
    return *end ? -EBADMSG : 0;
}

static int transaction_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct transaction_scenario *t = self;
    struct stored_half half = {.sequence = slot->tag, .lane = slot->lane};
    if (slot->want)
        return send_answer(&t->send, slot, answer);
    int rc = read_place(answer, &half);
    if (rc == 0)
        push(t, slot->connection, &half);
    return rc;
}

int transaction_init(struct transaction_scenario *t, const struct message_plan *plan, uint32_t requests, struct scenario *out)
{
    int rc = send_init(&t->send, plan, out);
    if (rc < 0)
        return rc;
    t->halves = calloc(requests, sizeof *t->halves);
    if (t->halves == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < requests; i++)
        t->halves[i].next = i + 1 < requests ? i + 1 : NO_HALF;
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++)
        t->first[i] = NO_HALF;
    t->free = 0;
    out->self = t;
    out->frame_max = out->frame_max > END_MAX ? out->frame_max : END_MAX;
    out->write = transaction_write;
    out->answer = transaction_answer;
    return 0;
}

void transaction_free(struct transaction_scenario *t)
{
    free(t->halves);
    send_free(&t->send);
}
