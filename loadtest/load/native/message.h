/* Ready frames for sends: one template per lane, in which only opaque, born time and sequence digits change. */
#ifndef RINGMQ_LOAD_MESSAGE_H
#define RINGMQ_LOAD_MESSAGE_H

#include <stdint.h>

#include "lanes.h"

enum {
    SEQUENCE_DIGITS = 12, /* upper-case hex; the message's number in this run */
    BODY_MIN = 16,
    UNIQ_TEXT = 32,
    KEY_TEXT = 1 + 8 + 1 + SEQUENCE_DIGITS, /* K<run id>-<sequence> */
};

struct message_plan {
    struct lanes lanes;
    const char *broker_name, *group;
    uint32_t run_id; /* part of UNIQ_KEY and KEYS */
    uint32_t body_size; /* bytes of one body, at least BODY_MIN */
    uint32_t batch; /* messages per frame; 1 sends code 310, more send code 320 */
    int half; /* half messages of transactions */
    uint32_t delay_level; /* of single messages; 0: none */
    uint32_t timer_delay_ms; /* of single messages: their time from when the broker stores them; 0: none */
    uint64_t deliver_ms; /* of single messages: their time since 1970; 0: none */
    uint32_t tags; /* the messages of a batch have the tags Tag0, Tag1, ... by turns; 0: all have TagA */
    int json;
};

struct patch {
    uint32_t at; /* frame position of SEQUENCE_DIGITS digits */
    uint32_t element; /* number of the message of the batch to which they belong */
};

struct template {
    uint8_t *bytes;
    uint32_t len, born_at, patch_count;
    struct patch *patches; /* in ascending order of element, except a batch's own UNIQ_KEY, which comes first */
};

struct messages {
    struct message_plan plan;
    struct template *templates; /* one per lane */
    uint32_t crc_base; /* CRC-32 of a body whose sequence is 0 */
    uint32_t crc_step[SEQUENCE_DIGITS][16]; /* change of it by digit d at place i */
};

/* Builds the templates; -EINVAL for an impossible plan, -ENOMEM. crc32_init must have run. */
int messages_init(struct messages *m, const struct message_plan *plan);
void messages_free(struct messages *m);

/* Largest frame of the plan. */
uint32_t messages_frame_max(const struct messages *m);

/* Writes the frame for messages sequence .. sequence + batch - 1 of lane `lane`; returns its length. */
uint32_t messages_write(const struct messages *m, uint8_t *out, uint32_t lane, uint32_t opaque, uint64_t sequence,
                        const char born[13]);

/* CRC-32 of the body with this sequence, without building it. */
uint32_t messages_crc(const struct messages *m, uint64_t sequence);

/* Writes the UNIQ_KEY of a message and its end mark; `out` has room for UNIQ_TEXT + 1 bytes. */
void messages_uniq_key(uint32_t run_id, uint64_t sequence, char *out);

/* Writes the KEYS text of a message and its end mark; `out` has room for KEY_TEXT + 1 bytes. */
void messages_key(uint32_t run_id, uint64_t sequence, char *out);

#endif
