#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "scenarios.h"

enum { SEND_BACK_MAX = 1024 };

void send_back_keep(struct send_back_scenario *s, uint64_t position, uint32_t crc)
{
    if (s->count < s->room)
        s->sources[s->count++] = (struct send_back_source){position, crc};
}

static uint32_t send_back_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct send_back_scenario *s = self;
    char offset[24];
    (void)connection;
    if (s->next == s->count)
        return 0;
    slot->tag = s->next++;
    snprintf(offset, sizeof offset, "%" PRIu64, s->sources[slot->tag].position);
    /* Names as the Java client sends them. It leaves the level to the broker. */
    struct ext ext[] = {
        {"offset", offset}, {"group", s->group}, {"delayLevel", "0"}, {"originTopic", s->topic}, {"unitMode", "false"},
        {"maxReconsumeTimes", "16"}, {"bname", s->broker_name},
    };
    struct request request = {
        .code = CODE_SEND_BACK, .opaque = slot->opaque, .ext = ext, .ext_count = sizeof ext / sizeof *ext,
    };
    return (uint32_t)wire_encode(out, &request, s->json);
}

static int send_back_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct send_back_scenario *s = self;
    (void)answer;
    s->acked++;
    s->acked_crc_sum += s->sources[slot->tag].crc;
    return 1;
}

static int send_back_done(void *self)
{
    const struct send_back_scenario *s = self;
    return s->next == s->count;
}

int send_back_init(struct send_back_scenario *s, uint64_t room)
{
    s->sources = calloc(room, sizeof *s->sources);
    s->room = room;
    return s->sources == NULL ? -ENOMEM : 0;
}

void send_back_begin(struct send_back_scenario *s, struct scenario *out)
{
    *out = (struct scenario){
        .self = s, .frame_max = SEND_BACK_MAX, .answer_max = 4096, .messages_per_frame = 1, .write = send_back_write,
        .answer = send_back_answer, .done = send_back_done,
    };
}

void send_back_free(struct send_back_scenario *s)
{
    free(s->sources);
    s->sources = NULL;
}
