/* Random slaves against the HA writer, built with sanitizers by test_fuzz_ha.py: SEED ROUNDS FOLDER.
 *
 * Honest and lying slaves come, report, stall, read in odd pieces and go, while the log grows. Every byte that arrives has
 * to be the log's at its offset, and replicated_offset never passes what an honest report has said.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ha/ha_sender.h"
#include "log/segment.h"

enum { SLAVES = 20, SEGMENT = 65536, LOG_MAX = 12 * SEGMENT, RUN_NS = 200000 };

struct slave {
    int fd, asked, lied, started;
    uint8_t head[12];
    uint32_t head_bytes, body_left;
    uint64_t at, last; /* next byte of the stream, last report */
};

static struct slave slaves[SLAVES];
static struct rmq_plane plane;
static struct rmq_ha_sender *sender;
static uint8_t *log_bytes;
static uint64_t best_claim;
static uint16_t port;
static char folder[512], root[512];

static uint64_t dice(uint64_t sides) { return sides ? ((uint64_t)rand() << 20 ^ (uint64_t)rand()) % sides : 0; }

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s (errno %d)\n", what, errno);
        abort();
    }
}

static uint64_t append_offset(void) { return plane.watermarks->append_offset; }

static void append(uint64_t length)
{
    uint64_t from = append_offset(), to = from + length < LOG_MAX ? from + length : LOG_MAX;
    for (uint64_t at = from; at < to;) {
        uint64_t start = at - at % SEGMENT, end = start + SEGMENT < to ? start + SEGMENT : to;
        char path[600];
        must(rmq_segment_create(root, folder, start, SEGMENT) == 0, "segment");
        snprintf(path, sizeof path, "%s/%020llu", folder, (unsigned long long)start);
        int fd = open(path, O_WRONLY);
        must(fd >= 0 && pwrite(fd, log_bytes + at, end - at, (off_t)(at - start)) == (ssize_t)(end - at), "append");
        close(fd);
        at = end;
    }
    plane.watermarks->append_offset = to;
}

static void leave(struct slave *s)
{
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct slave){.fd = -1};
}

static void say(struct slave *s, uint64_t offset, int honest)
{
    uint8_t bytes[8];
    rmq_put64(bytes, offset);
    if (honest && !s->lied && offset > best_claim)
        best_claim = offset;
    s->lied |= !honest;
    for (size_t at = 0, part; at < 8; at += part) { /* now and then in pieces */
        part = dice(4) ? 8 - at : 1 + dice(8 - at);
        if (send(s->fd, bytes + at, part, MSG_NOSIGNAL) != (ssize_t)part) {
            leave(s);
            return;
        }
    }
}

static void talk(struct slave *s)
{
    uint64_t kind = dice(20);
    if (kind == 0) {
        uint8_t junk[40];
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (uint8_t)(dice(256) | (i % 8 ? 0 : 128));
        s->lied = 1;
        if (send(s->fd, junk, 1 + dice(sizeof junk), MSG_NOSIGNAL) < 0)
            leave(s);
    } else if (!s->asked) {
        s->asked = 1;
        s->last = s->at = dice(append_offset() + 1);
        say(s, s->last, 1);
    } else if (kind == 1) {
        say(s, dice(2) ? s->at + LOG_MAX : s->last - 1 - dice(s->last), 0); /* beyond anything, or backward (or negative) */
    } else if (s->started) {
        s->last += dice(s->at - s->last + 1);
        say(s, s->last, 1);
    } else {
        say(s, s->last, 1);
    }
}

/* Takes up to `limit` bytes of its stream and compares. */
static void listen_to(struct slave *s, size_t limit)
{
    uint8_t bytes[70000];
    ssize_t n = recv(s->fd, bytes, limit < sizeof bytes ? limit : sizeof bytes, MSG_DONTWAIT);
    if (!n || (n < 0 && errno != EAGAIN)) {
        leave(s);
        return;
    }
    for (ssize_t at = 0; at < n;) {
        if (s->body_left) {
            size_t part = (size_t)(n - at) < s->body_left ? (size_t)(n - at) : s->body_left;
            must(!memcmp(bytes + at, log_bytes + s->at, part), "bytes of the log");
            s->at += part;
            s->body_left -= (uint32_t)part;
            at += (ssize_t)part;
            continue;
        }
        s->head[s->head_bytes++] = bytes[at++];
        if (s->head_bytes < sizeof s->head)
            continue;
        s->head_bytes = 0;
        s->started = 1;
        s->body_left = rmq_get32(s->head + 8);
        must(rmq_get64(s->head) == s->at, "offset of a frame");
        must(s->body_left <= 32768 && s->at + s->body_left <= append_offset(), "length of a frame");
        must(!s->body_left || s->at / SEGMENT == (s->at + s->body_left - 1) / SEGMENT, "a frame across a file end");
    }
}

static void come(struct slave *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int small = 4096;
    *s = (struct slave){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (dice(2))
        setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    must(s->fd >= 0 && connect(s->fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
}

static void run(void)
{
    struct rmq_ha_event event;
    must(rmq_ha_sender_run(sender, RUN_NS) >= 0, "run");
    must(rmq_ha_sender_start(sender, (uint32_t)dice(20), append_offset() + 1) < 0, "a start beyond the end");
    while (rmq_ha_sender_event(sender, &event)) {
        must(event.peer < RMQ_HA_PEERS_MAX, "a place");
        if (event.kind == RMQ_HA_EVENT_CONNECTED)
            rmq_ha_sender_mark(sender, event.peer, -1, RMQ_HA_LEVEL_CACHED, dice(4) ? RMQ_HA_PEER_COUNTS : 0, "room");
        else if (event.kind == RMQ_HA_EVENT_FIRST_REPORT && event.offset <= append_offset() && dice(10))
            rmq_ha_sender_start(sender, event.peer, event.offset);
        else if (event.kind == RMQ_HA_EVENT_FIRST_REPORT)
            rmq_ha_sender_disconnect(sender, event.peer);
    }
    must(plane.watermarks->replicated_offset <= best_claim, "replicated beyond every honest report");
}

static void set_up(void)
{
    struct rmq_plane_capacity capacity = {.topics = 64, .queues = 64, .groups = 64, .subscriptions = 64, .offsets = 64,
                                          .parked_slots = 64,
                                          .commit_slots = 64, .arrived_slots = 8, .answerer_count = 1};
    capacity.answerers[0] = (struct rmq_answerer_plan){.role = RMQ_ROLE_CONTROL, .inbox_bytes = 65536, .answer_bytes = 65536,
                                                       .askers = 1u << RMQ_ROLE_HA | 1u << RMQ_ROLE_DISPATCH};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof any;
    int error = 0, listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 64) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&any, &length) == 0, "port");
    port = ntohs(any.sin_port);
    plane.base = calloc(1, rmq_plane_bytes(&capacity));
    plane.watermarks = calloc(1, sizeof *plane.watermarks);
    must(plane.base && plane.watermarks && rmq_plane_format(plane.base, &capacity, 1, (const uint64_t[2]){1, 2}) == 0, "plane");
    for (int role = 0; role < RMQ_ROLES_MAX; role++)
        plane.event_fds[role] = eventfd(0, EFD_NONBLOCK);
    struct rmq_settings *settings = &rmq_plane_header_of(&plane)->settings;
    settings->segment_bytes = SEGMENT;
    settings->message_bytes_max = 1000;
    settings->ha_transfer_bytes = 32768;
    settings->ha_heartbeat_ms = 3;
    settings->ha_housekeeping_ms = 300;
    settings->slave_timeout_ms = 10;
    settings->ha_bytes_per_second = dice(2) ? 0 : 50000000;
    snprintf(settings->commit_log_path, sizeof settings->commit_log_path, "%s", folder);
    plane.watermarks->tenure = RMQ_TENURE_MASTER;
    plane.watermarks->confirm_policy = RMQ_CONFIRM_LIMITED;
    append(1000);
    sender = rmq_ha_sender_open(&plane, listener, &error);
    must(sender != NULL, "open");
    struct rmq_ha_requirement one = {.count = 1, .conditions = {{0xffff, 1, RMQ_HA_LEVEL_CACHED}}};
    rmq_ha_sender_require(sender, &one, &one);
}

static void turn(void)
{
    struct slave *s = &slaves[dice(SLAVES)];
    if (s->fd < 0)
        come(s);
    else if (!dice(60))
        leave(s);
    else if (!dice(3))
        talk(s);
    else
        listen_to(s, 1 + dice(70000));
    if (!dice(12))
        append(dice(9000));
    if (!dice(200))
        rmq_ha_sender_disconnect(sender, (uint32_t)dice(20));
    if (!dice(3))
        run();
}

int main(int argc, char **argv)
{
    must(argc == 4, "SEED ROUNDS FOLDER");
    srand((unsigned)atoi(argv[1]));
    snprintf(root, sizeof root, "%s", argv[3]);
    snprintf(folder, sizeof folder, "%.480s/commitlog", root);
    must(rmq_folder_make(folder) == 0, "folder");
    log_bytes = malloc(LOG_MAX);
    for (uint64_t i = 0; i < LOG_MAX; i++)
        log_bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int i = 0; i < SLAVES; i++)
        slaves[i].fd = -1;
    set_up();
    for (long round = atol(argv[2]); round > 0; round--)
        turn();
    const uint64_t *counters = rmq_plane_header_of(&plane)->roles[RMQ_ROLE_HA].counters;
    printf("%llu %llu %llu %llu\n", (unsigned long long)counters[RMQ_HA_TRANSFERS], (unsigned long long)counters[RMQ_HA_FALSE_REPORTS],
           (unsigned long long)counters[RMQ_HA_REPORTS], (unsigned long long)plane.watermarks->replicated_offset);
    rmq_ha_sender_close(sender);
    for (int i = 0; i < SLAVES; i++)
        leave(&slaves[i]);
    free(log_bytes);
    free(plane.base);
    free(plane.watermarks);
    return 0;
}
