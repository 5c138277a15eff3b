#include "scenarios.h"

enum { ANSWER_ROOM = 1 << 16 };

static int is_listening(const struct wait_scenario *w, uint32_t connection) { return connection < w->listeners; }

static int is_over(const struct wait_scenario *w)
{
    if (w->begun_ns == 0)
        return 0;
    uint64_t wanted = w->messages * w->arrivals->groups;
    int is_received = wanted && w->answered == w->messages && w->arrivals->received >= wanted;
    return (is_received && (w->acked == NULL || *w->acked >= wanted)) || now_ns() - w->begun_ns >= w->end_ns;
}

static uint32_t wait_write(void *self, uint32_t connection, struct slot *slot, uint8_t *out)
{
    struct wait_scenario *w = self;
    uint64_t start_ns = slot->start_ns;
    w->begun_ns = w->begun_ns ? w->begun_ns : start_ns;
    slot->connection = connection;
    if (is_listening(w, connection)) {
        uint32_t length = is_over(w) ? 0 : w->listener.write(w->listener.self, connection, slot, out);
        w->waiting += length && slot->want == 0;
        return length;
    }
    if (w->send->next_sequence >= w->messages)
        return 0;
    arrivals_sent(w->arrivals, w->send->next_sequence, start_ns < w->begun_ns + w->warmup_ns ? 0 : start_ns);
    return w->sender.write(w->sender.self, connection - w->listeners, slot, out);
}

static int wait_answer(void *self, const struct slot *slot, const struct answer *answer)
{
    struct wait_scenario *w = self;
    if (is_listening(w, slot->connection)) {
        w->waiting -= slot->want == 0;
        return w->listener.answer(w->listener.self, slot, answer);
    }
    w->answered++;
    return w->sender.answer(w->sender.self, slot, answer);
}

static int wait_refused(void *self, const struct slot *slot, const struct answer *answer)
{
    struct wait_scenario *w = self;
    if (is_listening(w, slot->connection)) {
        w->waiting -= slot->want == 0;
        return w->listener.refused(w->listener.self, slot, answer);
    }
    w->answered++;
    return 0;
}

static int wait_done(void *self) { return is_over(self); }

static uint64_t wait_left(void *self) { return ((const struct wait_scenario *)self)->waiting; }

void wait_init(struct wait_scenario *w, struct scenario *out)
{
    uint32_t frame_max = w->sender.frame_max > w->listener.frame_max ? w->sender.frame_max : w->listener.frame_max;
    *out = (struct scenario){
        .self = w, .frame_max = frame_max, .answer_max = ANSWER_ROOM, .messages_per_frame = 1, .write = wait_write,
        .answer = wait_answer, .refused = wait_refused, .done = wait_done, .left_waiting = wait_left,
    };
}
