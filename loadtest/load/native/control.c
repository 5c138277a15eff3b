#include "control.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ANSWER_TIMEOUT_S = 10, FIRST_CAP = 1 << 20, QUESTIONS_AT_ONCE = 64 };

int tcp_connect(const char *host, int port)
{
    char service[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return -EHOSTUNREACH;
    int rc = -EHOSTUNREACH;
    for (struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            rc = -errno;
            continue;
        }
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
            int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            freeaddrinfo(found);
            return fd;
        }
        rc = -errno;
        close(fd);
    }
    freeaddrinfo(found);
    return rc;
}

int control_open(struct control *c, const char *host, int port, int json)
{
    memset(c, 0, sizeof *c);
    c->json = json;
    c->fd = tcp_connect(host, port);
    if (c->fd < 0)
        return c->fd;
    struct timeval limit = {.tv_sec = ANSWER_TIMEOUT_S};
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    c->cap = FIRST_CAP;
    c->buffer = malloc(c->cap);
    return c->buffer == NULL ? -ENOMEM : 0;
}

void control_close(struct control *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->buffer);
    c->buffer = NULL;
    c->fd = -1;
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int read_all(int fd, uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = recv(fd, data, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        if (n == 0)
            return -ECONNRESET;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int read_frame(struct control *c, struct answer *out)
{
    int rc = read_all(c->fd, c->buffer, 4);
    if (rc < 0)
        return rc;
    size_t len = 4 + (size_t)get32(c->buffer);
    if (len < 8 || len > WIRE_FRAME_MAX)
        return -EBADMSG;
    if (len > c->cap) {
        uint8_t *bigger = realloc(c->buffer, len);
        if (bigger == NULL)
            return -ENOMEM;
        c->buffer = bigger;
        c->cap = len;
    }
    rc = read_all(c->fd, c->buffer + 4, len - 4);
    return rc < 0 ? rc : wire_decode(c->buffer, len, out);
}

/* Gives the request the next opaque and writes it. */
static int write_request(struct control *c, const struct request *r)
{
    struct request mine = *r;
    mine.opaque = ++c->opaque;
    uint8_t *frame = malloc(wire_bound(&mine));
    if (frame == NULL)
        return -ENOMEM;
    int rc = write_all(c->fd, frame, wire_encode(frame, &mine, c->json));
    free(frame);
    return rc;
}

int control_call(struct control *c, const struct request *r, struct answer *out)
{
    int rc = write_request(c, r);
    while (rc == 0) {
        rc = read_frame(c, out);
        /* Requests of the server (a rebalance notice) may come in between. */
        if (rc == 0 && !out->is_request && out->opaque == c->opaque)
            break;
    }
    if (rc == 0)
        wire_remark(out, c->remark, sizeof c->remark);
    return rc;
}

int control_create_topic(struct control *c, const char *topic, uint32_t queues)
{
    char n[12];
    snprintf(n, sizeof n, "%u", queues);
    struct ext ext[] = {
        {"topic", topic}, {"defaultTopic", "TBW102"}, {"readQueueNums", n}, {"writeQueueNums", n}, {"perm", "6"},
        {"topicFilterType", "SINGLE_TAG"}, {"topicSysFlag", "0"}, {"order", "false"},
    };
    struct request r = {.code = CODE_CREATE_TOPIC, .ext = ext, .ext_count = sizeof ext / sizeof *ext};
    struct answer a;
    int rc = control_call(c, &r, &a);
    return rc < 0 ? rc : a.code;
}

static int ask_offset(struct control *c, int code, const struct lanes *lanes, uint32_t lane)
{
    char topic[TOPIC_ROOM], queue[12];
    snprintf(queue, sizeof queue, "%u", lane_queue(lanes, lane));
    struct ext ext[] = {{"topic", lane_topic(lanes, lane, topic)}, {"queueId", queue}};
    return write_request(c, &(struct request){.code = code, .ext = ext, .ext_count = 2});
}

int control_offsets(struct control *c, int code, const struct lanes *lanes, const uint32_t *which, uint32_t count,
                    uint64_t *offsets)
{
    for (uint32_t at = 0, n; at < count; at += n) {
        uint32_t first = c->opaque + 1;
        n = count - at < QUESTIONS_AT_ONCE ? count - at : QUESTIONS_AT_ONCE;
        for (uint32_t i = 0; i < n; i++) {
            int rc = ask_offset(c, code, lanes, which ? which[at + i] : at + i);
            if (rc < 0)
                return rc;
        }
        for (uint32_t answered = 0; answered < n;) {
            struct answer a;
            int64_t offset;
            int rc = read_frame(c, &a);
            if (rc < 0)
                return rc;
            uint32_t i = a.opaque - first;
            if (a.is_request || i >= n)
                continue;
            wire_remark(&a, c->remark, sizeof c->remark);
            if (a.code != ANSWER_SUCCESS)
                return a.code;
            if (wire_ext_number(&a, "offset", &offset) < 0)
                return -EBADMSG;
            offsets[which ? which[at + i] : at + i] = offset > 0 ? (uint64_t)offset : 0;
            answered++;
        }
    }
    return 0;
}

int control_heartbeat(struct control *c, const char *group, const char *topic)
{
    char body[1024];
    int len = snprintf(
        body, sizeof body,
        "{\"clientID\":\"127.0.0.1@%d\",\"consumerDataSet\":[{\"consumeFromWhere\":\"CONSUME_FROM_FIRST_OFFSET\","
        "\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"%s\",\"messageModel\":\"CLUSTERING\","
        "\"subscriptionDataSet\":[{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\","
        "\"subString\":\"*\",\"subVersion\":1,\"tagsSet\":[],\"topic\":\"%s\"}],\"unitMode\":false}],"
        "\"heartbeatFingerprint\":0,\"producerDataSet\":[],\"withoutSub\":false}",
        getpid(), group, topic);
    if (len < 0 || (size_t)len >= sizeof body)
        return -EMSGSIZE;
    struct request r = {.code = CODE_HEART_BEAT, .body = body, .body_len = (size_t)len};
    struct answer a;
    int rc = control_call(c, &r, &a);
    return rc < 0 ? rc : a.code;
}

int control_has_key(struct control *c, const char *topic, const char *key)
{
    struct ext ext[] = {
        {"maxNum", "32"}, {"beginTimestamp", "0"}, {"key", key}, {"_UNIQUE_KEY_QUERY", "false"},
        {"topic", topic}, {"endTimestamp", "9223372036854775807"},
    };
    struct request r = {.code = CODE_QUERY_MESSAGE, .ext = ext, .ext_count = sizeof ext / sizeof *ext};
    struct answer a;
    int rc = control_call(c, &r, &a);
    if (rc < 0)
        return rc;
    if (a.code != ANSWER_SUCCESS)
        return a.code == ANSWER_QUERY_NOT_FOUND ? 0 : -EPROTO;
    /* The index finds by hash; only a record that carries the very token counts. */
    struct record record;
    for (size_t at = 0; at < a.body_len; at += record.size) {
        if (wire_record(a.body + at, a.body_len - at, &record) < 0)
            return -EBADMSG;
        if (memmem(record.properties, record.properties_len, key, strlen(key)) != NULL)
            return 1;
    }
    return 0;
}
