/* One blocking connection for what surrounds a run: topics, offsets, heartbeat, queries, reading back. */
#ifndef RINGMQ_LOAD_CONTROL_H
#define RINGMQ_LOAD_CONTROL_H

#include <stdint.h>

#include "lanes.h"
#include "wire.h"

struct control {
    int fd;
    int json;
    uint32_t opaque;
    uint8_t *buffer; /* last answer's frame */
    size_t cap;
    char remark[256]; /* of the last answer */
};

/* Connects a TCP socket with TCP_NODELAY; descriptor, or negative errno. */
int tcp_connect(const char *host, int port);

int control_open(struct control *c, const char *host, int port, int json);
void control_close(struct control *c);

/* Sends a request and waits (10 s) for its answer, which stays valid until the next call. 0, or negative errno. */
int control_call(struct control *c, const struct request *r, struct answer *out);

/* The calls below return 0, a negative errno, or the positive response code that refused them. */
int control_create_topic(struct control *c, const char *topic, uint32_t queues);
/* Fills offsets[lane] by code (CODE_MIN_OFFSET, CODE_MAX_OFFSET) for `count` lanes, many questions on their way at a time;
 * `which` names them, NULL: 0 .. count - 1. */
int control_offsets(struct control *c, int code, const struct lanes *lanes, const uint32_t *which, uint32_t count,
                    uint64_t *offsets);
int control_heartbeat(struct control *c, const char *group, const char *topic);

/* 1 when a message with this KEYS token is found, 0 when none is. */
int control_has_key(struct control *c, const char *topic, const char *key);

#endif
