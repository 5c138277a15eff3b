/* plain_requests.h: requests of clients, decoded into records by tables of fields. Twin: ringmq/ipc/plain_requests.py.
 *
 * A table describes the fields of one request code. Its record is a C struct of at most RMQ_PLAIN_RECORD_BYTES_MAX bytes that
 * begins with struct rmq_plain_head; texts stand behind each other in memory of their own. A record holds what the request asks
 * for, and nothing of the frame's header: struct rmq_plain_asked has that. So other encodings can bring the same record.
 *
 * A request is plain if no byte of its fields needs a closer look. C reads plain requests alone, and Python reads the others into
 * the same record. Answers are records, too (rmq_fields_answer_put of answer.h).
 */
#ifndef RMQ_PLAIN_REQUESTS_H
#define RMQ_PLAIN_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "plane/asks.h"

/* cdef-begin */
#define RMQ_PLAIN_RECORD_BYTES_MAX 128
#define RMQ_PLAIN_FIELDS_MAX 16
#define RMQ_PLAIN_NAME_BYTES_MAX 64
#define RMQ_PLAIN_TEXT_BYTES_MAX 65535 /* of all texts of a record */

/* Types of fields, and their C types in the record. */
#define RMQ_FIELD_INT32 1        /* int32_t */
#define RMQ_FIELD_INT64 2        /* int64_t */
#define RMQ_FIELD_BOOL 3         /* uint32_t: 1 for `true` in any case, 0 for any other text */
#define RMQ_FIELD_CHOICE 4       /* int32_t: a number of 0..63 whose bit is set in `limit` */
#define RMQ_FIELD_TEXT 5         /* struct rmq_plain_text: UTF-8, at most `limit` bytes */
#define RMQ_FIELD_UNKEPT 6       /* has no place in the record: a text that no answer depends on */

struct rmq_plain_field {
    const char *name;
    uint64_t limit;              /* of a CHOICE or TEXT */
    const char *refusal;         /* the words of stock for a text beyond the limit; NULL: it has none */
    int32_t refusal_code;        /* of the answer then; 0: 1 (SYSTEM_ERROR), as for all other refusals */
    int32_t version_min;         /* of a number: the value is dropped if the client's version is lower; 0: it never is */
    uint16_t at;                 /* in the record */
    uint8_t type;                /* RMQ_FIELD_* */
    uint8_t required;
    uint32_t reserved;
};

struct rmq_plain_table {
    const char *header;          /* its name in stock, for refusals */
    int32_t code;                /* of the request */
    uint32_t record_bytes;
    uint32_t text_bytes_max;     /* the sum of the limits of its texts */
    uint32_t field_count;
    uint8_t lengths[16];         /* of the names */
    struct rmq_plain_field fields[16];
};

/* The begin of each record. */
struct rmq_plain_head {
    uint32_t present;            /* bit i: the request has the field i of the table. A missing field is 0 */
    uint32_t text_bytes;
};

struct rmq_plain_text {
    uint16_t at, length;
};

/* The values beside the record that the answer needs. */
struct rmq_plain_asked {
    int32_t code;
    int32_t opaque;
    uint8_t serialise;           /* RMQ_SERIALISE_* */
    uint8_t is_oneway;
    uint16_t reserved;
};

/* Results of rmq_plain_decode. Below 0: -1 - i, the field i is missing, unreadable or beyond its limit. */
#define RMQ_PLAIN_READ 1
#define RMQ_PLAIN_ODD 0          /* the request is not plain, or has another code */

/* Decodes a frame from its 4-byte length on; its body may be missing. `record` has record_bytes, `text` text_bytes_max. Both are
 * undefined if the result is not RMQ_PLAIN_READ. */
int rmq_plain_decode(const struct rmq_plain_table *table, const uint8_t *frame, uint32_t length, struct rmq_plain_asked *asked,
                     void *record, uint8_t *text);
/* The same for an ask of a read worker. An ask of another type is odd. */
int rmq_plain_decode_ask(const struct rmq_plain_table *table, const struct rmq_inbox_record *ask, struct rmq_plain_asked *asked,
                         void *record, uint8_t *text);
/* Answers an ask of a read worker with a code, without fields. A oneway request gets no answer, but its read worker forgets it.
 * Returns 0, or the error of rmq_verdict_put. */
int rmq_plain_answer(struct rmq_plane *plane, uint32_t answerer, const struct rmq_inbox_record *ask,
                     const struct rmq_plain_asked *asked, int32_t code);
/* cdef-end */

/* The members of a table from its rows. ROWS(ROW, record) expands to a ROW(record, member, name, type, required, limit, ...) for
 * each field; more members of the field may follow. A row without a place in the record names the member `head`. */
#define RMQ_PLAIN_ROWS(ROWS, record) \
    .record_bytes = sizeof(struct record), .text_bytes_max = 0 ROWS(RMQ_PLAIN_TEXT_BYTES, record), \
    .field_count = 0 ROWS(RMQ_PLAIN_COUNT, record), .lengths = {ROWS(RMQ_PLAIN_LENGTH, record)}, \
    .fields = {ROWS(RMQ_PLAIN_FIELD, record)}
#define RMQ_PLAIN_TEXT_BYTES(record, member, text, kind, is_required, bound, ...) + (kind == RMQ_FIELD_TEXT ? bound : 0)
#define RMQ_PLAIN_COUNT(...) + 1
#define RMQ_PLAIN_LENGTH(record, member, text, ...) sizeof text - 1,
#define RMQ_PLAIN_FIELD(record, member, text, kind, is_required, bound, ...) \
    {.name = text, .at = offsetof(struct record, member), .type = kind, .required = is_required, .limit = bound, __VA_ARGS__},
#define RMQ_PLAIN_CHECK_RECORD(record) \
    _Static_assert(sizeof(struct record) <= RMQ_PLAIN_RECORD_BYTES_MAX && _Alignof(struct record) == 8 && \
                   offsetof(struct record, head) == 0, "a record is at most 128 bytes, and its head comes first")

#endif
