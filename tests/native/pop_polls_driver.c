/* pop_polls_driver.c: random calls of POP's table of polls, and of its table of expressions, under sanitizers. The twins compare
 * results; here no byte outside of either table may be read or written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_invariant.h"
#include "pop/pop_filters.c"
#include "pop/pop_hash.c"
#include "pop/pop_polls.c"
#include "pop/pop_wheel.c"

#define TOPICS 6
#define GROUPS 3
#define SERIALS 200
#define TEXT_BYTES (RMQ_POP_FILTERS_BYTES_MAX / 8)

static uint64_t seed;
static int64_t now = 5;
static uint32_t serial;

static uint32_t pick(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* Programs are the matter of the fuzzer of filters. */
int rmq_filter_verify(const struct rmq_filter_program *program, uint64_t room)
{
    (void)program;
    return room > 1 ? 0 : -EINVAL;
}

static struct rmq_pop_key some_key(void)
{
    return (struct rmq_pop_key){.topic_id = 1 + pick(TOPICS), .group_id = 1 + pick(GROUPS), .queue_id = (int32_t)pick(4) - 1,
                                .kind = pick(RMQ_POP_POLL_KINDS)};
}

static void begin_poll(struct rmq_pop_polls *p)
{
    uint8_t bytes[64] = {0};
    struct rmq_pop_poll_limits limits = {.polls = 1 + pick(SERIALS), .keys = 1 + pick(40), .of_key = pick(30)};
    struct rmq_pop_poll_ask ask = {.key = some_key(), .role = pick(2), .role_generation = pick(3), .connection = pick(5),
                                   .connection_generation = pick(2), .serial = ++serial,
                                   .due_ms = now + (int64_t[]){0, 1, 64, 15000, 3600000}[pick(5)]};
    rmq_pop_polls_add(p, &limits, &ask, bytes, pick(sizeof bytes));
}

/* A poll; RMQ_NONE: none has the serial. */
static uint32_t some_poll(struct rmq_pop_polls *p)
{
    return rmq_pop_polls_named(p, serial - pick(serial < SERIALS ? serial + 1 : SERIALS));
}

static void serve(struct rmq_pop_polls *p)
{
    uint32_t number = rmq_pop_polls_take_awake(p), ends = pick(3);
    while (number != RMQ_NONE && ends--) {
        uint32_t next = rmq_pop_polls_next_of(p, number);
        rmq_pop_polls_end(p, number);
        number = next;
    }
    if (number != RMQ_NONE && pick(2))
        rmq_pop_polls_resume(p, number);
}

static void pass_time(struct rmq_pop_polls *p)
{
    uint32_t number, steps = pick(50);
    now += (int64_t[]){0, 1, 70, 20000}[pick(4)];
    while ((number = rmq_pop_polls_due(p, now, &steps)) != RMQ_NONE)
        rmq_pop_polls_end(p, number);
}

static void look(struct rmq_pop_polls *p)
{
    struct rmq_pop_key key;
    for (uint32_t at = 0; (at = rmq_pop_polls_key_from(p, at, &key)) != RMQ_NONE; at++)
        rmq_pop_polls_set_retries(p, &key, pick(2) ? 1 + pick(TOPICS + 2) : RMQ_NONE, pick(2) ? 1 + pick(TOPICS) : RMQ_NONE);
}

static void act(struct rmq_pop_polls *p, uint32_t choice)
{
    struct rmq_pop_key key = some_key();
    uint32_t poll = choice < 60 ? RMQ_NONE : some_poll(p);
    if (choice < 40)
        begin_poll(p);
    else if (choice < 50)
        rmq_pop_polls_wake_queue(p, pick(TOPICS + 3), pick(4));
    else if (choice < 53)
        rmq_pop_polls_wake_group(p, pick(GROUPS + 3));
    else if (choice < 56)
        rmq_pop_polls_wake_key(p, &key);
    else if (choice < 57)
        rmq_pop_polls_closed(p, pick(2), pick(3), pick(5), pick(2));
    else if (choice < 58)
        rmq_pop_polls_restarted(p, pick(2), pick(3));
    else if (choice < 60)
        rmq_pop_polls_go_on(p, pick(9));
    else if (choice < 70 && poll != RMQ_NONE)
        rmq_pop_polls_put_behind(p, poll);
    else if (choice < 75 && poll != RMQ_NONE)
        rmq_pop_polls_end(p, poll);
    else if (choice < 93)
        serve(p);
    else if (choice < 97)
        pass_time(p);
    else
        look(p);
}

static void play_polls(void)
{
    struct rmq_pop_polls *p = rmq_pop_polls_open(TOPICS, GROUPS, now);
    for (uint32_t i = 0; i < 3000; i++)
        act(p, pick(100));
    rmq_pop_polls_close(p);
}

/* The last expression is there. One that is not is one of before. */
static void play_filters(void)
{
    static uint8_t text[TEXT_BYTES];
    struct rmq_pop_filters *filters = rmq_pop_filters_open((uint64_t[]){seed, now});
    for (uint32_t i = 0; i < 3 * RMQ_POP_FILTERS_MAX; i++) {
        uint32_t length = pick(200) ? 4 + pick(40) : 4 + pick(TEXT_BYTES - 4), program = pick(8);
        struct rmq_subscription_copy wanted = {.kind = program ? RMQ_SUBSCRIPTION_FILTER : RMQ_SUBSCRIPTION_ALL};
        memcpy(text, &i, sizeof i);
        int rc = rmq_pop_filter_put(filters, text, length, &wanted, text, program);
        RMQ_INVARIANT((rc == 0) == (program != 1), rc, program, i);
        RMQ_INVARIANT((rmq_pop_filter_find(filters, text, length) != NULL) == (rc == 0), rc, i);
        RMQ_INVARIANT(rmq_pop_filters_count(filters) <= RMQ_POP_FILTERS_MAX, i);
    }
    rmq_pop_filters_close(filters);
}

int main(int count, char **words)
{
    uint32_t rounds = count > 1 ? (uint32_t)atoi(words[1]) : 10;
    for (seed = count > 2 ? (uint64_t)atoll(words[2]) : 1; rounds--;) {
        play_polls();
        play_filters();
    }
    puts("played");
    return 0;
}
