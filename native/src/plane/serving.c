#include "plane/serving.h"

#include "plane/asks.h"
#include "plane/ring.h"

#define NS_A_MS 1000000ll

uint32_t rmq_serving_step(struct rmq_serving *s, const struct rmq_serving_seen *seen)
{
    uint32_t is_rung = s->is_rung;
    s->is_rung = 0;
    if (seen->has_news)
        return RMQ_SERVING_NEWS;
    if (seen->now_ns >= s->until_ns)
        return RMQ_SERVING_DUE;
    if (seen->has_ask) {
        int64_t busy_ns = seen->now_ns + RMQ_SERVING_BUSY_MS * NS_A_MS;
        if (!s->has_served && busy_ns < s->until_ns)
            s->until_ns = busy_ns;
        s->has_served = 1;
        return RMQ_SERVING_SERVE;
    }
    if (is_rung && !s->is_late)
        return RMQ_SERVING_NEWS; /* no word says for what the bell rang */
    s->is_late &= !is_rung;
    return RMQ_SERVING_SLEEP;
}

static void look(struct rmq_plane *plane, struct rmq_serving *s, struct rmq_serving_seen *seen)
{
    const struct rmq_ring *inbox = &rmq_answerer_at(plane, s->answerer)->inbox;
    *seen = (struct rmq_serving_seen){.now_ns = rmq_mono_ns(), .has_ask = rmq_ring_used(inbox) != 0};
    seen->has_ask |= s->arrived && rmq_ring_used(s->arrived);
    seen->has_news = rmq_load(&rmq_header(plane)->settings.config_version) != s->config_version;
    if (rmq_load_relaxed(&s->news))
        seen->has_news = __atomic_exchange_n(&s->news, 0, __ATOMIC_ACQ_REL);
    for (uint32_t i = 0; i < s->ring_count; i++)
        seen->has_news |= rmq_ring_used(s->rings[i]) != 0;
}

/* 0: the time is over, or a signal has come. */
static int sleep_once(struct rmq_plane *plane, struct rmq_serving *s, struct rmq_serving_seen *seen)
{
    rmq_role_arm(plane, s->role);
    look(plane, s, seen);
    if (seen->has_ask || seen->has_news || seen->now_ns >= s->until_ns) {
        rmq_role_disarm(plane, s->role);
        s->is_late = 1;
        return 1;
    }
    s->sleeps++;
    s->is_rung = (uint32_t)rmq_role_wait(plane, s->role, (int)((s->until_ns - seen->now_ns + NS_A_MS - 1) / NS_A_MS));
    look(plane, s, seen);
    return s->is_rung != 0;
}

uint32_t rmq_serving_run(struct rmq_plane *plane, struct rmq_serving *s, rmq_serving_turn *turn, void *owner, int32_t timeout_ms)
{
    struct rmq_serving_seen seen;
    rmq_role_disarm(plane, s->role);
    look(plane, s, &seen);
    s->until_ns = seen.now_ns + timeout_ms * NS_A_MS;
    s->has_served = s->is_rung = s->is_late = s->why = 0;
    for (;;) {
        uint32_t taken, decision = rmq_serving_step(s, &seen);
        if (decision >= RMQ_SERVING_DUE)
            return decision;
        if (decision == RMQ_SERVING_SLEEP) {
            if (!sleep_once(plane, s, &seen))
                return RMQ_SERVING_DUE;
            continue;
        }
        s->why = turn(owner, seen.now_ns, &taken);
        s->asks += taken;
        if (s->why)
            return RMQ_SERVING_LEFT;
        if (!taken)
            return RMQ_SERVING_BLOCKED;
        look(plane, s, &seen);
    }
}
