#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

enum { READ_CONNECTIONS = 8 };
/* Beyond the allowed time it goes on looking for a while, to tell late from lost. */
static const double TIMEOUT_MS = 20000;

static double ms_since(uint64_t then)
{
    uint64_t now = now_ns();
    return now > then ? (double)(now - then) / 1e6 : 0;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int check_offsets(struct control *c, int code, const struct lanes *lanes, uint64_t *offsets)
{
    return control_offsets(c, code, lanes, NULL, lanes_count(lanes), offsets);
}

/* Collects the lanes that do not hold all that was acknowledged yet; their number. */
static uint32_t sum_up(struct check *k, const struct check_plan *plan, const struct send_scenario *sent, uint32_t *open)
{
    uint32_t count = 0;
    k->in_queues = 0;
    k->queues_wrong = 0;
    for (uint32_t q = 0; q < lanes_count(&plan->lanes); q++) {
        uint64_t grown = k->after[q] - k->before[q];
        k->in_queues += grown;
        k->queues_wrong += grown != sent->acked_of_lane[q];
        if (grown < sent->acked_of_lane[q])
            open[count++] = q;
    }
    return count;
}

/* Every lane is asked until it is complete and not again: with 10,000 of them a round takes a while. */
static int wait_for_queues(struct check *k, struct control *c, const struct check_plan *plan,
                           const struct send_scenario *sent, uint64_t since_ns)
{
    static uint32_t open[LANES_MAX];
    uint32_t count = lanes_count(&plan->lanes);
    for (uint32_t q = 0; q < count; q++)
        open[q] = q;
    for (;;) {
        double at_ms = ms_since(since_ns);
        int rc = control_offsets(c, CODE_MAX_OFFSET, &plan->lanes, open, count, k->after);
        if (rc != 0) {
            snprintf(k->trouble, sizeof k->trouble, "maximum offset of %.80s: %d %.80s", plan->lanes.name, rc, c->remark);
            return -1;
        }
        count = sum_up(k, plan, sent, open);
        if (count == 0) {
            k->queue_ms = at_ms;
            return 0;
        }
        if (at_ms > plan->settle_ms + TIMEOUT_MS) {
            snprintf(k->trouble, sizeof k->trouble, "the queues hold %llu of %llu messages",
                     (unsigned long long)k->in_queues, (unsigned long long)sent->acked);
            return -1;
        }
        nap();
    }
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* One key until it is found: 1, or 0 when the time is over, or negative errno. */
static int wait_for_key(struct check *k, struct control *c, const struct check_plan *plan, uint32_t lane,
                        const char *key, uint64_t since_ns)
{
    char topic[TOPIC_ROOM];
    for (;;) {
        double at_ms = ms_since(since_ns);
        int rc = control_has_key(c, lane_topic(&plan->lanes, lane, topic), key);
        if (rc != 0)
            return rc;
        if (at_ms > plan->settle_ms + TIMEOUT_MS)
            return 0;
        /* Time of the last look in vain: looking up many keys takes time of its own, which is not the index's. */
        k->index_ms = at_ms;
        nap();
    }
}

void check_keys(struct check *k, struct control *c, const struct check_plan *plan, uint32_t run_id,
                const uint64_t *sequences, const uint32_t *in_lane, uint64_t count, uint64_t since_ns)
{
    if (k->index_ms < 0)
        k->index_ms = 0;
    for (uint64_t i = 0; i < count; i++) {
        char key[KEY_TEXT + 1];
        messages_key(run_id, sequences[i], key);
        k->keys_asked++;
        int rc = wait_for_key(k, c, plan, in_lane ? in_lane[i] : 0, key, since_ns);
        if (rc == 1) {
            k->keys_found++;
            continue;
        }
        k->index_ms = -1;
        if (rc < 0)
            snprintf(k->trouble, sizeof k->trouble, "query of key %s: %d %.80s", key, rc, c->remark);
        else
            snprintf(k->trouble, sizeof k->trouble, "key %s is not in the index", key);
        return;
    }
}

void check_keys_of(struct check *k, struct control *c, const struct check_plan *plan, uint32_t run_id, uint64_t total)
{
    uint64_t since_ns = now_ns();
    for (uint32_t i = 0; i < plan->keys && total > 0 && k->trouble[0] == 0; i++) {
        uint64_t sequence = i == 0 ? total - 1 : mix(run_id + (uint64_t)i) % total;
        check_keys(k, c, plan, run_id, &sequence, NULL, 1, since_ns);
    }
}

/* Keys of the last acknowledged messages and of an even sample of all. */
static void check_sent_keys(struct check *k, struct control *c, const struct check_plan *plan,
                            const struct send_scenario *sent, uint64_t since_ns)
{
    uint32_t run_id = sent->messages.plan.run_id;
    uint64_t last = sent->acked_frames < LAST_MAX ? sent->acked_frames : LAST_MAX;
    uint64_t wanted = plan->keys < sent->sample_count ? plan->keys : sent->sample_count;
    k->index_ms = 0;
    check_keys(k, c, plan, run_id, sent->last, sent->last_lane, plan->keys < last ? plan->keys : last, since_ns);
    for (uint64_t i = 0; i < wanted && k->trouble[0] == 0; i++) {
        uint64_t at = i * sent->sample_count / wanted;
        check_keys(k, c, plan, run_id, &sent->sample[at], &sent->sample_lane[at], 1, since_ns);
    }
}

void check_read_back(struct check *k, const struct check_plan *plan, const uint64_t *min, const uint64_t *max)
{
    struct pull_scenario *p = &k->read_back;
    struct scenario scenario;
    *p = (struct pull_scenario){
        .lanes = plan->lanes,
        .group = plan->group,
        .max_messages = 32,
        .json = plan->json,
        .kind = PULL_READ_ALL,
        .subscription_in_pull = 1,
        .keep = plan->keep,
    };
    uint32_t lanes = lanes_count(&plan->lanes);
    memcpy(p->min, min, lanes * sizeof *min);
    memcpy(p->max, max, lanes * sizeof *max);
    k->read_asked = 1;
    if (pull_init(p, &scenario) == -ENODATA)
        return;
    struct engine_config config = {
        .host = plan->host,
        .port = plan->port,
        .connections = lanes < READ_CONNECTIONS ? lanes : READ_CONNECTIONS,
        .depth = (lanes + READ_CONNECTIONS - 1) / READ_CONNECTIONS,
        .drain_s = 10,
    };
    if (engine_run(&config, &scenario, &k->read_result) < 0 || k->read_result.trouble[0])
        snprintf(k->trouble, sizeof k->trouble, "reading back: %.150s", k->read_result.trouble);
    else if (k->read_result.code_count)
        snprintf(k->trouble, sizeof k->trouble, "reading back: code %d %.150s", k->read_result.codes[0].code,
                 k->read_result.remark);
}

void check_after_send(struct check *k, struct control *c, const struct check_plan *plan, const struct send_scenario *sent,
                      uint64_t last_answer_ns)
{
    k->queue_ms = k->index_ms = -1;
    if (wait_for_queues(k, c, plan, sent, last_answer_ns) == 0) {
        check_sent_keys(k, c, plan, sent, last_answer_ns);
        if (plan->read_back)
            check_read_back(k, plan, k->before, k->after);
    }
    int in_time = k->queue_ms >= 0 && k->queue_ms <= plan->settle_ms && k->index_ms >= 0 && k->index_ms <= plan->settle_ms;
    int read_ok = !plan->read_back || (k->read_back.read == sent->acked && k->read_back.crc_sum == sent->acked_crc_sum &&
                                       k->read_back.wrong_crc == 0 && k->read_back.wrong_offset == 0);
    k->ok = in_time && read_ok && k->queues_wrong == 0 && k->in_queues == sent->acked &&
            k->keys_found == k->keys_asked && k->trouble[0] == 0;
}
