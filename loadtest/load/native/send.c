#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "scenarios.h"

/* Born time in ms as text; the wall clock is read at most once a millisecond of the loop's own time. */
static void refresh_born(struct send_scenario *s, uint64_t now)
{
    if (s->born_at_ns != 0 && now - s->born_at_ns < 1000000)
        return;
    struct timespec t;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(text, sizeof text, "%013lld", (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000);
    memcpy(s->born, text, sizeof s->born);
    s->born_at_ns = now;
}

uint32_t send_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct send_scenario *s = self;
    uint64_t turn = s->written_frames[connection]++;
    slot->lane = (uint32_t)((connection + turn) % lanes_count(&s->messages.plan.lanes));
    slot->tag = s->next_sequence;
    slot->want = s->messages.plan.batch;
    s->next_sequence += slot->want;
    refresh_born(s, slot->start_ns);
    return messages_write(&s->messages, out, slot->lane, slot->opaque, slot->tag, s->born);
}

/* Keeps every n-th acknowledged sequence; when the table is full, every other one goes and n doubles. */
static void remember(struct send_scenario *s, uint64_t sequence, uint32_t lane)
{
    s->last[s->acked_frames % LAST_MAX] = sequence;
    s->last_lane[s->acked_frames % LAST_MAX] = lane;
    if (s->acked_frames++ % s->sample_stride != 0)
        return;
    if (s->sample_count == SAMPLE_MAX) {
        for (uint32_t i = 0; i < SAMPLE_MAX / 2; i++) {
            s->sample[i] = s->sample[2 * i];
            s->sample_lane[i] = s->sample_lane[2 * i];
        }
        s->sample_count = SAMPLE_MAX / 2;
        s->sample_stride *= 2;
    }
    s->sample_lane[s->sample_count] = lane;
    s->sample[s->sample_count++] = sequence;
}

int send_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct send_scenario *s = self;
    (void)answer;
    for (uint32_t i = 0; i < slot->want; i++)
        s->acked_crc_sum += messages_crc(&s->messages, slot->tag + i);
    remember(s, slot->tag + (s->acked_frames & 0xffff) % slot->want, slot->lane);
    s->acked += slot->want;
    s->acked_of_lane[slot->lane] += slot->want;
    return (int)slot->want;
}

int send_init(struct send_scenario *s, const struct message_plan *plan, struct scenario *out)
{
    memset(s, 0, sizeof *s);
    s->sample_stride = 1;
    if (lanes_count(&plan->lanes) > LANES_MAX)
        return -EINVAL;
    int rc = messages_init(&s->messages, plan);
    if (rc < 0)
        return rc;
    *out = (struct scenario){
        .self = s,
        .frame_max = messages_frame_max(&s->messages),
        /* A batch is answered with one id of 32 digits (IPv6: 56) and a comma per message. */
        .answer_max = 4096 + 64 * (size_t)plan->batch,
        .messages_per_frame = plan->batch,
        .write = send_write,
        .answer = send_answer,
    };
    return 0;
}

void send_free(struct send_scenario *s)
{
    messages_free(&s->messages);
}
