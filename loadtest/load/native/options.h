/* Command line of ringmq-load. */
#ifndef RINGMQ_LOAD_OPTIONS_H
#define RINGMQ_LOAD_OPTIONS_H

#include <stdint.h>

struct options {
    const char *command, *host, *topic, *group, *broker_name, *watch, *expression, *tag;
    uint32_t port, topics, queues, groups, connections, idle, depth, size, batch, count, keys, run_id, slice_us, burst_us, delay_level, timer_delay_ms, tags, invisible_ms, poll_ms, senders;
    uint64_t messages, assume, deliver_ms;
    double seconds, warmup, rate, drain, settle_ms, idle_ms, interval;
    int pin; /* CPU, -1: none */
    int json, half, create, check, read_back, subscription_in_pull, commit, single_acks, leave_open, pulls;
};

/* Fills `o`; 0, or -1 after saying on standard error which option is wrong and why. 1: help was asked for. */
int options_parse(struct options *o, int argc, char **argv);

extern const char OPTIONS_HELP[];

#endif
