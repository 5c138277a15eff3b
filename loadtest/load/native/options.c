#include "options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "message.h"
#include "scenarios.h"

const char OPTIONS_HELP[] =
    "usage: ringmq-load COMMAND [options]     (prints one JSON object)\n"
    "\n"
    "  send     single messages, code 310\n"
    "  batch    --batch messages in one frame, code 320\n"
    "  transaction  half messages, each committed by code 37; a pair counts when the commit is answered\n"
    "  send-back  each message of the topic once, code 36, as a consumer of the group that failed\n"
    "  pull     --count messages a pull, code 11, over and over\n"
    "  consume  pulls everything as it comes, until nothing has come for --idle-ms\n"
    "  pop      --count messages a pop, code 200050; those of a pop are acknowledged together, code 200151; JSON headers\n"
    "  wait     pops that wait, each on its connection; --rate messages/s are sent beside them, and each group is to get each one\n"
    "  idle     connections that say nothing\n"
    "  verify   reads the topic back: messages and the sum of the CRC-32 of their bodies\n"
    "  keys     looks up --check-keys keys of messages 0 .. --messages - 1 of run --run-id\n"
    "  create   creates the topic\n"
    "  frame    prints the request that would be sent, in hex\n"
    "  hist     reads numbers (ns) and prints their percentiles\n"
    "\n"
    "  --host 127.0.0.1 --port 10911    broker\n"
    "  --topic LoadTest --topics 1      several topics are NAME-0, NAME-1, ...\n"
    "  --queues 4 --group load_group --broker-name broker\n"
    "  --connections 1 --depth 1        closed loop: requests on their way per connection\n"
    "  --idle 0                         further connections that say nothing\n"
    "  --rate 0                         messages/s (consume: pulls/s) of an open loop; latency counts from the intended time\n"
    "  --burst-us 0                     of that loop: what is due within so many us of each other is due together, when they begin\n"
    "  --size 200 --batch 32 --count 32 bytes of a body, messages of a batch, messages of a pull\n"
    "  --tags 0                         batch: its messages have the tags Tag0, Tag1, ... by turns; 0: TagA\n"
    "  --delay-level 0                  send: messages wait for this level's time\n"
    "  --timer-delay-ms 0 | --deliver-ms 0\n"
    "                                   send: messages wait so long, or for this time since 1970\n"
    "  --half                           send: half messages, whose transactions stay open\n"
    "  --seconds 5 | --messages N       length of the measured part\n"
    "  --warmup 0 --drain 10            seconds before it, seconds to wait for late answers\n"
    "  --interval S                     also report every S seconds of it by themselves\n"
    "  --create                         create the topic first\n"
    "  --check --check-keys 64 --settle-ms 1000 --read-back\n"
    "                                   after sending: queue maxima, index, and everything read back\n"
    "  --json                           JSON headers instead of binary ones\n"
    "  --subscription-in-pull           instead of a heartbeat before the pulls\n"
    "  --expression SQL92 | --tag TAG   pull: messages that match; a range has 20 times as many as an answer\n"
    "  --invisible-ms 60000 --single-acks | --leave-open\n"
    "                                   pop: acknowledges each message alone, code 200051; or none of them\n"
    "  --poll-ms 15000 --senders 4 --pulls\n"
    "                                   wait: time of a poll, connections that send; pulls of each queue instead of pops\n"
    "  --idle-ms 3000                   consume: the end\n"
    "  --groups 1 --commit              consume, wait: several groups GROUP-0, GROUP-1, ..., each reads everything; pulls commit offsets\n"
    "  --assume N                       pull without asking first: every queue holds offsets 0 .. N - 1\n"
    "  --run-id HEX                     8 digits in UNIQ_KEY and KEYS (default: random)\n"
    "  --watch PID,PID                  also report the processor time of these processes\n"
    "  --pin CPU\n"
    "  --slice-us 0                     100 to 100000: a slice of its CPU shorter than others' (Linux 6.12), so that it waits for none of them\n";

enum kind { TEXT, WHOLE, REAL, FLAG, HEX };

struct known {
    const char *name;
    enum kind kind;
    size_t at;
    double min, max;
};

#define AT(field) offsetof(struct options, field)
static const struct known known[] = {
    {"--host", TEXT, AT(host), 0, 0},
    {"--topic", TEXT, AT(topic), 0, 0},
    {"--group", TEXT, AT(group), 0, 0},
    {"--broker-name", TEXT, AT(broker_name), 0, 0},
    {"--expression", TEXT, AT(expression), 0, 0},
    {"--tag", TEXT, AT(tag), 0, 0},
    {"--watch", TEXT, AT(watch), 0, 0},
    {"--port", WHOLE, AT(port), 1, 65535},
    {"--topics", WHOLE, AT(topics), 1, LANES_MAX},
    {"--queues", WHOLE, AT(queues), 1, LANES_MAX},
    {"--groups", WHOLE, AT(groups), 1, LANES_MAX},
    {"--idle", WHOLE, AT(idle), 0, CONNECTIONS_MAX},
    {"--connections", WHOLE, AT(connections), 1, CONNECTIONS_MAX},
    {"--depth", WHOLE, AT(depth), 1, DEPTH_MAX},
    {"--size", WHOLE, AT(size), BODY_MIN, 4194304},
    {"--batch", WHOLE, AT(batch), 1, 8192},
    {"--count", WHOLE, AT(count), 1, 1024},
    {"--check-keys", WHOLE, AT(keys), 0, 1000000},
    {"--invisible-ms", WHOLE, AT(invisible_ms), 1, 2147483647.0},
    {"--poll-ms", WHOLE, AT(poll_ms), 1, 3600000},
    {"--senders", WHOLE, AT(senders), 1, CONNECTIONS_MAX},
    {"--tags", WHOLE, AT(tags), 0, 8192},
    {"--delay-level", WHOLE, AT(delay_level), 0, 50},
    {"--timer-delay-ms", WHOLE, AT(timer_delay_ms), 0, 4294967295.0},
    {"--deliver-ms", REAL, AT(deliver_ms), 0, 1e15},
    {"--run-id", HEX, AT(run_id), 0, 4294967295.0},
    {"--messages", REAL, AT(messages), 1, 1e12},
    {"--assume", REAL, AT(assume), 1, 1e12},
    {"--seconds", REAL, AT(seconds), 0, 86400},
    {"--warmup", REAL, AT(warmup), 0, 86400},
    {"--rate", REAL, AT(rate), 0, 1e9},
    {"--burst-us", WHOLE, AT(burst_us), 0, 1000000},
    {"--drain", REAL, AT(drain), 0, 3600},
    {"--interval", REAL, AT(interval), 0.01, 3600},
    {"--settle-ms", REAL, AT(settle_ms), 0, 3600000},
    {"--idle-ms", REAL, AT(idle_ms), 1, 3600000},
    {"--pin", WHOLE, AT(pin), 0, 1023},
    {"--slice-us", WHOLE, AT(slice_us), 0, 100000},
    {"--json", FLAG, AT(json), 0, 0},
    {"--half", FLAG, AT(half), 0, 0},
    {"--create", FLAG, AT(create), 0, 0},
    {"--check", FLAG, AT(check), 0, 0},
    {"--commit", FLAG, AT(commit), 0, 0},
    {"--single-acks", FLAG, AT(single_acks), 0, 0},
    {"--leave-open", FLAG, AT(leave_open), 0, 0},
    {"--pulls", FLAG, AT(pulls), 0, 0},
    {"--read-back", FLAG, AT(read_back), 0, 0},
    {"--subscription-in-pull", FLAG, AT(subscription_in_pull), 0, 0},
};

static int set(struct options *o, const struct known *k, const char *text)
{
    char *field = (char *)o + k->at, *end;
    if (k->kind == FLAG) {
        *(int *)field = 1;
        return 0;
    }
    if (text == NULL) {
        fprintf(stderr, "ringmq-load: %s needs a value\n", k->name);
        return -1;
    }
    if (k->kind == TEXT) {
        if (text[0] == 0 || strlen(text) > (k->at == AT(watch) ? 1023u : 127u) || strpbrk(text, "\"\\#\x01\x02") != NULL) {
            fprintf(stderr, "ringmq-load: %s: 1 to 127 characters without quotes, backslash and #\n", k->name);
            return -1;
        }
        *(const char **)field = text;
        return 0;
    }
    double value = k->kind == HEX ? (double)strtoull(text, &end, 16) : strtod(text, &end);
    if (*end != 0 || end == text || !(value >= k->min && value <= k->max)) {
        fprintf(stderr, "ringmq-load: %s %s: a number from %.0f to %.0f is needed\n", k->name, text, k->min, k->max);
        return -1;
    }
    if (k->at == AT(messages) || k->at == AT(assume) || k->at == AT(deliver_ms))
        *(uint64_t *)field = (uint64_t)value;
    else if (k->kind == REAL)
        *(double *)field = value;
    else
        *(uint32_t *)field = (uint32_t)value;
    return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){
        .host = "127.0.0.1", .topic = "LoadTest", .group = "load_group", .broker_name = "broker", .port = 10911,
        .topics = 1, .queues = 4, .groups = 1, .connections = 1, .depth = 1, .size = 200, .batch = 32, .count = 32, .keys = 64, .invisible_ms = 60000, .poll_ms = 15000, .senders = 4,
        .seconds = -1, .drain = 10, .settle_ms = 1000, .idle_ms = 3000, .pin = -1,
    };
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return 1;
    o->command = argv[1];
    for (int i = 2; i < argc; i++) {
        const struct known *k = NULL;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            if (strcmp(argv[i], known[j].name) == 0)
                k = &known[j];
        if (k == NULL) {
            fprintf(stderr, "ringmq-load: unknown option %s (--help lists them)\n", argv[i]);
            return -1;
        }
        if (set(o, k, i + 1 < argc ? argv[i + 1] : NULL) < 0)
            return -1;
        if (k->kind != FLAG)
            i++;
    }
    if ((uint64_t)o->topics * o->queues * o->groups > LANES_MAX) {
        fprintf(stderr, "ringmq-load: --topics %u with --queues %u each, --groups %u: at most %d in all\n", o->topics,
                o->queues, o->groups, LANES_MAX);
        return -1;
    }
    uint32_t senders = strcmp(o->command, "wait") == 0 ? o->senders : 0;
    if (o->connections + o->idle + senders > CONNECTIONS_MAX) {
        fprintf(stderr, "ringmq-load: --connections %u, --idle %u and --senders %u: at most %d in all\n", o->connections, o->idle,
                senders, CONNECTIONS_MAX);
        return -1;
    }
    if (o->burst_us && o->rate == 0) {
        fprintf(stderr, "ringmq-load: --burst-us %u needs --rate: without one nothing is due at a time\n", o->burst_us);
        return -1;
    }
    int has_time = o->timer_delay_ms || o->deliver_ms;
    if ((o->delay_level || has_time) && strcmp(o->command, "send") != 0 && strcmp(o->command, "frame") != 0) {
        fprintf(stderr, "ringmq-load: %s: only send delays\n", has_time ? "--timer-delay-ms, --deliver-ms" : "--delay-level");
        return -1;
    }
    if (o->half && strcmp(o->command, "send") != 0) {
        fprintf(stderr, "ringmq-load: --half: only send leaves half messages open\n");
        return -1;
    }
    if (o->seconds < 0 && strcmp(o->command, "consume") == 0)
        o->seconds = 0;
    if (o->seconds < 0)
        o->seconds = o->messages ? 0 : 5;
    if (strcmp(o->command, "pop") == 0 || strcmp(o->command, "wait") == 0)
        o->json = 1; /* a binary header has 16 bits for a code */
    if (strcmp(o->command, "batch") != 0 && strcmp(o->command, "frame") != 0)
        o->batch = 1;
    return 0;
}
