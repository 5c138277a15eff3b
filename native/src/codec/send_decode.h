/* send_decode.h: the fields and property pairs of a send (10, 310, 320), taken apart without copying. No tables, no IO. */
#ifndef RMQ_SEND_DECODE_H
#define RMQ_SEND_DECODE_H

#include "codec/frame_header.h"
#include "codec/record.h"

/* cdef-begin */
#define RMQ_RESERVED_PAIRS_MAX 8
#define RMQ_NAME_JSON_MAX 1530 /* 6 * RMQ_NAME_MAX: JSON may write six characters for one */
#define RMQ_PROPERTIES_JSON_MAX 196602 /* 6 * RMQ_PROPERTIES_BYTES_MAX: JSON may write six characters for one */

/* A pair that asks for more than storing, or that no client may store: TRAN_MSG, TIMER_*, DELAY, INNER*. */
struct rmq_reserved_pair {
    const uint8_t *name, *value;
    uint32_t name_length, value_length;
};

struct rmq_send {
    const uint8_t *topic;
    uint8_t *properties;
    uint32_t topic_length, properties_length;
    uint32_t seen;             /* fields that have come */
    uint32_t properties_escaped;
    int32_t queue_id, sys_flag, flag, reconsume_times;
    int64_t born_time_ms;
    int32_t batch;
    uint32_t topic_id, queue_slot; /* the reader's: from the tables */
    /* by rmq_send_scan */
    uint32_t uniq_key_length;
    const uint8_t *uniq_key;
    int32_t no_wait;
    int32_t drops;             /* holds pairs that the broker adds itself, broken ones, or POP_CK */
    uint32_t reserved_count;   /* RMQ_RESERVED_PAIRS_MAX + 1: more than fit */
    const struct rmq_ext_entry *unread; /* by rmq_send_decode: the field that is not of its type */
    struct rmq_reserved_pair reserved[RMQ_RESERVED_PAIRS_MAX]; /* rmq_send_decode does not clear these */
    uint8_t topic_text[RMQ_NAME_JSON_MAX];                     /* a topic that came with escapes */
};

/* Takes the fields. 0 = one is missing, or not of its type: `unread`. */
int rmq_send_decode(const struct rmq_frame_header *h, struct rmq_send *s);
/* Undoes the JSON escapes of the properties in `to`, which has room for RMQ_PROPERTIES_JSON_MAX bytes. The frame stays as it is:
 * control may have to decide. 0 = they are too long, or not well formed. */
int rmq_send_unescape(struct rmq_send *s, uint8_t *to);
/* Walks the pairs and records their meaning. 0 = they hold a NUL. */
int rmq_send_scan(struct rmq_send *s);
int rmq_send_reserves(const uint8_t *name, uint32_t length); /* 1: pairs of that name are noted in `reserved` */
/* cdef-end */

struct rmq_cut_name {
    const char *name;
    uint32_t length;
};
/* Cuts out, in place: the pairs that the broker adds itself, broken ones, POP_CK, which only brokers write, and pairs of `names`. A
 * broken pair must not be stored: recovery takes it, like a NUL, for the mark of a torn record. Then scans again. */
void rmq_send_cut(struct rmq_send *s, const struct rmq_cut_name *names, uint32_t count);
#endif
