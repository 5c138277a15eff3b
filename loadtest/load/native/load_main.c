/* ringmq-load: load generator for any RocketMQ broker, speaking the remoting protocol. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "crc32.h"
#include "options.h"
#include "report.h"

enum { SENDER_DEPTH = 64 };
enum { FILES_BESIDE = 32 }; /* that a run needs beside its connections */

static struct transaction_scenario transactions;
static struct send_scenario *const sending = &transactions.send; /* of all runs that send */
static struct send_back_scenario backs;
static struct pull_scenario pulling;
static struct pop_scenario popping;
static struct arrivals arrivals;
static struct wait_scenario waiting;
static struct engine_result result;
static struct check check;
static struct watch watched;

static int fail(const char *what, int rc, const char *detail)
{
    fprintf(stderr, "ringmq-load: %s: ", what);
    if (rc < 0)
        fprintf(stderr, "%s", strerror(-rc));
    else
        fprintf(stderr, "response code %d", rc);
    fprintf(stderr, "%s%s\n", detail[0] ? ": " : "", detail);
    return 1;
}

static int pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

/* Of the scheduler (EEVDF): a thread that wakes goes before one with a longer slice. Kernels before 6.12 do not look at it. */
static int set_slice(uint32_t slice_us)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .runtime_ns = slice_us * 1000ull};
    return syscall(SYS_sched_setattr, 0, &attributes, 0) < 0 ? -errno : 0;
}

static struct engine_config config_of(const struct options *o)
{
    return (struct engine_config){
        .host = o->host, .port = (int)o->port, .connections = o->connections, .depth = o->depth, .idle = o->idle, .interval_s = o->interval,
        .warmup_s = o->warmup, .seconds = o->seconds, .messages = o->messages, .rate = o->rate, .drain_s = o->drain,
        .burst_ns = o->burst_us ? o->burst_us * 1000ull : 1, .watch = &watched,
    };
}

static struct lanes lanes_of(const struct options *o)
{
    return (struct lanes){.name = o->topic, .topics = o->topics, .queues = o->queues};
}

static struct check_plan check_plan_of(const struct options *o)
{
    return (struct check_plan){
        .host = o->host, .lanes = lanes_of(o), .group = o->group, .port = (int)o->port, .json = o->json,
        .keys = o->keys, .settle_ms = o->settle_ms, .read_back = o->read_back,
    };
}

static int is_transaction(const struct options *o) { return strcmp(o->command, "transaction") == 0; }

static struct message_plan message_plan_of(const struct options *o)
{
    return (struct message_plan){
        .lanes = lanes_of(o), .broker_name = o->broker_name, .group = o->group, .run_id = o->run_id,
        .body_size = o->size, .batch = o->batch, .delay_level = o->delay_level, .timer_delay_ms = o->timer_delay_ms,
        .deliver_ms = o->deliver_ms, .tags = o->tags, .json = o->json, .half = o->half || is_transaction(o),
    };
}

static void print_head(const struct options *o)
{
    printf("{\"scenario\":\"%s\",\"host\":\"%s\",\"port\":%u,\"topic\":\"%s\",", o->command, o->host, o->port,
           o->topic);
    printf("\"topics\":%u,\"queues\":%u,", o->topics, o->queues);
    printf("\"groups\":%u,\"idle\":%u,", o->groups, o->idle);
    printf("\"connections\":%u,\"depth\":%u,\"size\":%u,\"batch\":%u,\"rate\":%.1f,\"burst_us\":%u,\"run_id\":\"%08X\",", o->connections,
           o->depth, o->size, o->batch, o->rate, o->burst_us, o->run_id);
    printf("\"serialization\":\"%s\",", o->json ? "JSON" : "ROCKETMQ");
}

/* Creates every topic; 0, negative errno or response code. */
static int create_topics(const struct options *o, struct control *control)
{
    struct lanes lanes = lanes_of(o);
    char topic[TOPIC_ROOM];
    int rc = 0;
    for (uint32_t lane = 0; rc == 0 && lane < lanes_count(&lanes); lane += o->queues)
        rc = control_create_topic(control, lane_topic(&lanes, lane, topic), o->queues);
    return rc;
}

static int run_send(const struct options *o)
{
    struct message_plan plan = message_plan_of(o);
    struct scenario scenario;
    struct control control = {.fd = -1};
    int rc = is_transaction(o) ? transaction_init(&transactions, &plan, o->connections * o->depth, &scenario)
                               : send_init(sending, &plan, &scenario);
    if (rc < 0)
        return fail("message template", rc, "frame too large or plan impossible");
    if (o->create || o->check) {
        rc = control_open(&control, o->host, (int)o->port, o->json);
        if (rc == 0 && o->create)
            rc = create_topics(o, &control);
        if (rc == 0 && o->check)
            rc = check_offsets(&control, CODE_MAX_OFFSET, &plan.lanes, check.before);
        if (rc != 0)
            return fail("prepare the topic", rc, control.remark);
    }
    struct engine_config config = config_of(o);
    rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    int ok = report_clean(&result);
    if (o->check) {
        struct check_plan check_plan = check_plan_of(o);
        check.asked = 1;
        check_after_send(&check, &control, &check_plan, sending, result.last_answer_ns);
        ok = ok && check.ok;
    }
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"acked\":%llu,\"acked_crc_sum\":%llu,", (unsigned long long)sending->acked,
           (unsigned long long)sending->acked_crc_sum);
    report_check(stdout, &check, sending);
    printf(",\"ok\":%s}\n", ok ? "true" : "false");
    control_close(&control);
    transaction_free(&transactions);
    return ok ? 0 : 2;
}

/* Learns what the queues hold and announces the consumer group. */
static int prepare_pull(const struct options *o, struct control *control)
{
    for (uint32_t q = 0; q < lanes_count(&pulling.lanes); q++)
        pulling.max[q] = o->assume;
    if (o->assume)
        return 0;
    int rc = control_open(control, o->host, (int)o->port, o->json);
    if (rc == 0)
        rc = check_offsets(control, CODE_MIN_OFFSET, &pulling.lanes, pulling.min);
    if (rc == 0)
        rc = check_offsets(control, CODE_MAX_OFFSET, &pulling.lanes, pulling.max);
    if (rc == 0 && !pulling.subscription_in_pull)
        rc = control_heartbeat(control, o->group, o->topic);
    return rc;
}

static int run_pull(const struct options *o)
{
    struct scenario scenario;
    struct control control = {.fd = -1};
    pulling = (struct pull_scenario){
        .lanes = lanes_of(o), .group = o->group, .max_messages = o->count, .json = o->json,
        .subscription_in_pull = o->subscription_in_pull || o->topics > 1 || o->expression || o->tag, /* the heartbeat names one topic */
        .expression = o->expression, .tag = o->tag,
    };
    int rc = prepare_pull(o, &control);
    if (rc != 0)
        return fail("prepare the pulls", rc, control.remark);
    rc = pull_init(&pulling, &scenario);
    if (rc < 0)
        return fail("pull", rc, "the topic holds no messages");
    struct engine_config config = config_of(o);
    config.messages = 0;
    rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    int ok = report_clean(&result) && pulling.short_answers == 0;
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"short_answers\":%llu,\"ok\":%s}\n", (unsigned long long)pulling.short_answers, ok ? "true" : "false");
    control_close(&control);
    return ok ? 0 : 2;
}

/* Learns what the queues hold. */
static int prepare_pop(const struct options *o, struct control *control)
{
    popping = (struct pop_scenario){
        .lanes = lanes_of(o), .group = o->group, .broker_name = o->broker_name, .max_messages = o->count,
        .invisible_ms = o->invisible_ms, .connections = o->connections, .depth = o->depth, .json = o->json,
        .single_acks = o->single_acks, .leave_open = o->leave_open, .stop_ns = (uint64_t)((o->warmup + o->seconds) * 1e9),
    };
    if (o->topics > 1 || o->queues > POP_QUEUES_MAX || o->count > 32)
        return -EINVAL;
    int rc = control_open(control, o->host, (int)o->port, o->json);
    return rc == 0 ? check_offsets(control, CODE_MAX_OFFSET, &popping.lanes, popping.max) : rc;
}

/* The scenario itself ends the run, when what it has popped is acknowledged. */
static int run_pop(const struct options *o)
{
    struct scenario scenario;
    struct control control = {.fd = -1};
    int rc = prepare_pop(o, &control);
    if (rc != 0)
        return fail("prepare the pops (one topic of 64 queues, 32 messages a pop at most)", rc, control.remark);
    rc = pop_init(&popping, &scenario);
    if (rc < 0)
        return fail("pop", rc, "the topic holds no messages");
    struct engine_config config = config_of(o);
    config.messages = 0;
    config.seconds = 0;
    rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    uint64_t skipped = pop_skipped(&popping);
    uint64_t acked = o->leave_open ? 0 : popping.popped;
    int is_once = popping.twice == 0 && popping.came_back == 0 && popping.acked == acked && skipped == 0;
    int ok = report_clean(&result) && is_once && popping.wrong_crc == 0 && popping.popped > 0;
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"expected\":%llu,\"popped\":%llu,\"acked\":%llu,\"popped_crc_sum\":%llu,", (unsigned long long)popping.expected,
           (unsigned long long)popping.popped, (unsigned long long)popping.acked, (unsigned long long)popping.crc_sum);
    printf("\"twice\":%llu,\"came_back\":%llu,\"skipped\":%llu,\"wrong_crc\":%llu,\"empty_pops\":%llu,\"ok\":%s}\n",
           (unsigned long long)popping.twice, (unsigned long long)popping.came_back, (unsigned long long)skipped,
           (unsigned long long)popping.wrong_crc, (unsigned long long)popping.empty_pops, ok ? "true" : "false");
    control_close(&control);
    pop_free(&popping);
    return ok ? 0 : 2;
}

/* The pulls or pops that wait. Their topics are empty. */
static int prepare_listener(const struct options *o)
{
    const struct lanes lanes = lanes_of(o);
    uint64_t of_lane = waiting.messages / lanes_count(&lanes) + o->senders + 1;
    if (o->pulls) {
        pulling = (struct pull_scenario){
            .lanes = lanes, .group = o->group, .max_messages = o->count, .json = o->json, .kind = PULL_FOLLOW, .idle_ns = UINT64_MAX,
            .subscription_in_pull = 1, .groups = o->groups, .commit = o->commit, .poll_ms = o->poll_ms, .arrivals = &arrivals,
        };
        return pull_init(&pulling, &waiting.listener);
    }
    popping = (struct pop_scenario){
        .lanes = lanes, .groups = o->groups, .group = o->group, .broker_name = o->broker_name, .max_messages = o->count,
        .invisible_ms = o->invisible_ms, .connections = o->connections, .depth = o->depth, .json = o->json,
        .single_acks = o->single_acks, .poll_ms = o->poll_ms, .arrivals = &arrivals,
    };
    if (o->queues > POP_QUEUES_MAX || (o->topics > 1 && o->groups > 1) || o->connections < o->topics || o->connections < o->groups)
        return -EINVAL;
    for (uint32_t i = 0; i < pop_lanes(&popping); i++)
        popping.max[i] = of_lane;
    waiting.acked = &popping.acked;
    return pop_init(&popping, &waiting.listener);
}

static int prepare_wait(const struct options *o, struct scenario *out)
{
    const struct message_plan plan = message_plan_of(o);
    waiting = (struct wait_scenario){
        .send = sending, .arrivals = &arrivals, .listeners = o->connections, .messages = (uint64_t)(o->rate * (o->warmup + o->seconds)),
        .warmup_ns = (uint64_t)(o->warmup * 1e9), .end_ns = (uint64_t)((o->warmup + o->seconds + o->drain) * 1e9),
    };
    int rc = send_init(sending, &plan, &waiting.sender);
    if (rc == 0)
        rc = arrivals_init(&arrivals, waiting.messages, o->groups);
    if (rc == 0)
        rc = prepare_listener(o);
    wait_init(&waiting, out);
    return rc;
}

static void report_wait(FILE *out)
{
    fprintf(out, "\"sent\":%llu,\"received\":%llu,\"unknown\":%llu,\"popped\":%llu,\"acked\":%llu,\"twice\":%llu,",
            (unsigned long long)sending->acked, (unsigned long long)arrivals.received, (unsigned long long)arrivals.unknown,
            (unsigned long long)popping.popped, (unsigned long long)popping.acked, (unsigned long long)popping.twice);
    fprintf(out, "\"wrong_crc\":%llu,\"empty_pops\":%llu,\"waiting\":%llu,", (unsigned long long)(popping.wrong_crc + pulling.wrong_crc),
            (unsigned long long)popping.empty_pops, (unsigned long long)waiting.waiting);
    report_latency(out, "late_us", &arrivals.late);
    fputc(',', out);
    report_latency(out, "whole_us", &arrivals.whole);
    fputc(',', out);
}

static int run_wait(const struct options *o)
{
    struct scenario scenario;
    struct control control = {.fd = -1};
    int rc = prepare_wait(o, &scenario);
    if (rc < 0)
        return fail("prepare those that wait (64 queues of a topic; several topics or groups, at most one for each connection)", rc, "");
    rc = o->create ? control_open(&control, o->host, (int)o->port, o->json) : 0;
    if (rc == 0 && o->create)
        rc = create_topics(o, &control);
    if (rc != 0)
        return fail("create topic", rc, control.remark);
    struct engine_config config = config_of(o);
    config.listeners = o->connections;
    config.connections += o->senders;
    config.depth = 2 * o->depth + SENDER_DEPTH;
    config.messages = 0;
    config.seconds = waiting.messages ? 0 : o->seconds;
    rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    int is_once = popping.twice == 0 && arrivals.unknown == 0 && arrivals.received == waiting.messages * o->groups;
    int ok = report_clean(&result) && is_once && popping.acked == popping.popped && popping.wrong_crc + pulling.wrong_crc == 0;
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    report_wait(stdout);
    printf("\"ok\":%s}\n", ok ? "true" : "false");
    control_close(&control);
    arrivals_free(&arrivals);
    pop_free(&popping);
    return ok ? 0 : 2;
}

static int run_consume(const struct options *o)
{
    struct scenario scenario;
    pulling = (struct pull_scenario){
        .lanes = lanes_of(o), .group = o->group, .max_messages = o->count, .json = o->json, .kind = PULL_FOLLOW,
        .idle_ns = (uint64_t)(o->idle_ms * 1e6), .subscription_in_pull = 1, .groups = o->groups, .commit = o->commit,
    };
    pull_init(&pulling, &scenario);
    struct engine_config config = config_of(o);
    config.messages = 0;
    config.depth = (pull_lanes(&pulling) + o->connections - 1) / o->connections;
    int rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    double window_s = (double)(pulling.last_ns - pulling.first_ns) / 1e9;
    int ok = report_clean(&result) && pulling.wrong_crc == 0 && pulling.wrong_offset == 0;
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"read\":%llu,\"read_crc_sum\":%llu,\"wrong_crc\":%llu,\"wrong_offset\":%llu,\"read_s\":%.6f,\"ok\":%s}\n",
           (unsigned long long)pulling.read, (unsigned long long)pulling.crc_sum, (unsigned long long)pulling.wrong_crc,
           (unsigned long long)pulling.wrong_offset, window_s, ok ? "true" : "false");
    return ok ? 0 : 2;
}

/* Learns where the messages of the topic are, and makes the group. */
static int prepare_send_back(const struct options *o, struct control *control)
{
    static uint64_t min[LANES_MAX], max[LANES_MAX];
    struct check_plan plan = check_plan_of(o);
    uint64_t messages = 0;
    int rc = control_open(control, o->host, (int)o->port, o->json);
    if (rc == 0)
        rc = control_heartbeat(control, o->group, o->topic);
    if (rc == 0)
        rc = check_offsets(control, CODE_MIN_OFFSET, &plan.lanes, min);
    if (rc == 0)
        rc = check_offsets(control, CODE_MAX_OFFSET, &plan.lanes, max);
    if (rc != 0)
        return rc;
    for (uint32_t q = 0; q < lanes_count(&plan.lanes); q++)
        messages += max[q] - min[q];
    backs = (struct send_back_scenario){.group = o->group, .topic = o->topic, .broker_name = o->broker_name, .json = o->json};
    rc = send_back_init(&backs, messages ? messages : 1);
    if (rc != 0)
        return rc;
    plan.keep = &backs;
    check_read_back(&check, &plan, min, max);
    return backs.count == messages && messages ? 0 : -ENODATA;
}

static int run_send_back(const struct options *o)
{
    struct scenario scenario;
    struct control control = {.fd = -1};
    int rc = prepare_send_back(o, &control);
    if (rc != 0)
        return fail("prepare the send-backs", rc, rc < 0 ? check.trouble : control.remark);
    send_back_begin(&backs, &scenario);
    struct engine_config config = config_of(o);
    rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    int ok = report_clean(&result);
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"acked\":%llu,\"acked_crc_sum\":%llu,\"ok\":%s}\n", (unsigned long long)backs.acked,
           (unsigned long long)backs.acked_crc_sum, ok ? "true" : "false");
    control_close(&control);
    send_back_free(&backs);
    return ok ? 0 : 2;
}

static int run_idle(const struct options *o)
{
    struct scenario scenario = {.frame_max = 0};
    struct engine_config config = config_of(o);
    int rc = engine_run(&config, &scenario, &result);
    if (rc < 0)
        return fail("run", rc, result.trouble);
    int ok = result.still_open == o->connections + o->idle;
    print_head(o);
    report_run(stdout, &result);
    report_watch(stdout, &watched);
    printf("\"ok\":%s}\n", ok ? "true" : "false");
    return ok ? 0 : 2;
}

static int run_verify(const struct options *o)
{
    static uint64_t min[LANES_MAX], max[LANES_MAX];
    struct control control;
    struct check_plan plan = check_plan_of(o);
    int rc = control_open(&control, o->host, (int)o->port, o->json);
    if (rc == 0)
        rc = check_offsets(&control, CODE_MIN_OFFSET, &plan.lanes, min);
    if (rc == 0)
        rc = check_offsets(&control, CODE_MAX_OFFSET, &plan.lanes, max);
    if (rc != 0)
        return fail("offsets", rc, control.remark);
    uint64_t expected = 0;
    for (uint32_t q = 0; q < lanes_count(&plan.lanes); q++)
        expected += max[q] - min[q];
    check_read_back(&check, &plan, min, max);
    const struct pull_scenario *p = &check.read_back;
    int ok = p->read == expected && p->wrong_crc == 0 && p->wrong_offset == 0 && check.trouble[0] == 0;
    print_head(o);
    printf("\"expected\":%llu,\"read\":%llu,\"read_crc_sum\":%llu,", (unsigned long long)expected,
           (unsigned long long)p->read, (unsigned long long)p->crc_sum);
    printf("\"wrong_crc\":%llu,\"wrong_offset\":%llu,\"window_s\":%.6f,\"trouble\":", (unsigned long long)p->wrong_crc,
           (unsigned long long)p->wrong_offset, check.read_result.window_s);
    report_text(stdout, check.trouble);
    printf(",\"ok\":%s}\n", ok ? "true" : "false");
    control_close(&control);
    return ok ? 0 : 2;
}

static int run_keys(const struct options *o)
{
    struct control control;
    if (o->topics > 1)
        return fail("keys", -EINVAL, "of one topic only");
    int rc = control_open(&control, o->host, (int)o->port, o->json);
    if (rc != 0)
        return fail("connect", rc, "");
    struct check_plan plan = check_plan_of(o);
    check_keys_of(&check, &control, &plan, o->run_id, o->messages);
    int ok = check.keys_found == check.keys_asked && check.keys_asked > 0;
    print_head(o);
    printf("\"keys_asked\":%u,\"keys_found\":%u,\"index_ms\":%.3f,\"trouble\":", check.keys_asked, check.keys_found,
           check.index_ms);
    report_text(stdout, check.trouble);
    printf(",\"ok\":%s}\n", ok ? "true" : "false");
    control_close(&control);
    return ok ? 0 : 2;
}

static int run_create(const struct options *o)
{
    struct control control;
    int rc = control_open(&control, o->host, (int)o->port, o->json);
    if (rc == 0)
        rc = create_topics(o, &control);
    if (rc != 0)
        return fail("create topic", rc, control.remark);
    print_head(o);
    printf("\"ok\":true}\n");
    control_close(&control);
    return 0;
}

static int run_frame(const struct options *o)
{
    struct message_plan plan = message_plan_of(o);
    struct scenario scenario;
    int rc = send_init(sending, &plan, &scenario);
    uint8_t *frame = rc < 0 ? NULL : malloc(scenario.frame_max);
    if (frame == NULL)
        return fail("message template", rc < 0 ? rc : -ENOMEM, "");
    uint32_t len = messages_write(&sending->messages, frame, 0, 7, 0xabc, "1700000000123");
    printf("{\"hex\":\"");
    for (uint32_t i = 0; i < len; i++)
        printf("%02x", frame[i]);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < o->batch; i++)
        sum += messages_crc(&sending->messages, 0xabc + i);
    printf("\",\"crc_sum\":%llu}\n", (unsigned long long)sum);
    free(frame);
    transaction_free(&transactions);
    return 0;
}

static int run_hist(void)
{
    static struct hist h;
    unsigned long long value;
    hist_init(&h);
    while (scanf("%llu", &value) == 1)
        hist_add(&h, value);
    printf("{");
    report_latency(stdout, "latency_us", &h);
    printf("}\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct options o;
    int rc = options_parse(&o, argc, argv);
    if (rc != 0) {
        fputs(rc > 0 ? OPTIONS_HELP : "", stdout);
        return rc > 0 ? 0 : 1;
    }
    if (o.pin >= 0 && (rc = pin_to(o.pin)) < 0)
        return fail("pin", rc, "");
    if (o.slice_us && (rc = set_slice(o.slice_us)) < 0)
        return fail("--slice-us", rc, "");
    if (o.watch != NULL && (rc = watch_parse(&watched, o.watch)) < 0)
        return fail("--watch", rc, o.watch);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_max < o.connections + o.idle + o.senders + FILES_BESIDE) {
            fprintf(stderr, "ringmq-load: %u connections need as many open files and %d more, the hard limit is %llu "
                    "(ulimit -Hn)\n", o.connections + o.idle, FILES_BESIDE, (unsigned long long)files.rlim_max);
            return 1;
        }
    }
    while (o.run_id == 0)
        if (getrandom(&o.run_id, sizeof o.run_id, 0) != sizeof o.run_id)
            return fail("random run id", -errno, "");
    crc32_init();
    if (strcmp(o.command, "send") == 0 || strcmp(o.command, "batch") == 0 || is_transaction(&o))
        return run_send(&o);
    if (strcmp(o.command, "pull") == 0)
        return run_pull(&o);
    if (strcmp(o.command, "send-back") == 0)
        return run_send_back(&o);
    if (strcmp(o.command, "pop") == 0)
        return run_pop(&o);
    if (strcmp(o.command, "wait") == 0)
        return run_wait(&o);
    if (strcmp(o.command, "consume") == 0)
        return run_consume(&o);
    if (strcmp(o.command, "idle") == 0)
        return run_idle(&o);
    if (strcmp(o.command, "verify") == 0)
        return run_verify(&o);
    if (strcmp(o.command, "keys") == 0)
        return run_keys(&o);
    if (strcmp(o.command, "create") == 0)
        return run_create(&o);
    if (strcmp(o.command, "frame") == 0)
        return run_frame(&o);
    if (strcmp(o.command, "hist") == 0)
        return run_hist();
    fprintf(stderr, "ringmq-load: unknown command %s (--help lists them)\n", o.command);
    return 1;
}
