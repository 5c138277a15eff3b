/* Commit log records: encode, parse, property scan, bounded log scan.
 *
 * Bytes as in RocketMQ 5.3 (MessageExtEncoder.encode, CommitLog.checkMessageAndReturnSize), all big-endian:
 *
 *    0 total size   4 magic    8 body crc   12 queue id   16 flag   20 queue offset   28 physical offset
 *   36 sys flag    40 born time   48 born host (B = 8 or 20)   48+B store time   56+B store host (S = 8 or 20)
 *   56+B+S reconsume times   60+B+S prepared transaction offset   68+B+S body length, body
 *   then topic (i8 length in V1, i16 in V2), then properties (i16 length)
 *
 * Every reader here is bounded by the `left` or `length` it is given and treats the bytes as hostile.
 * `rmq_` functions return a count or a negative value; nothing prints, nothing allocates.
 */
#ifndef RMQ_RECORD_H
#define RMQ_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_MAGIC_V1 0xDAA320A7
#define RMQ_MAGIC_V2 0xDAA320AB
#define RMQ_MAGIC_BLANK 0xCBD43194

#define RMQ_BLANK_BYTES 8           /* always left free at the end of a log file */
#define RMQ_RECORD_FIXED_BYTES 91   /* V1, IPv4 hosts, everything empty */
#define RMQ_TOPIC_BYTES_MAX 255
#define RMQ_PROPERTIES_BYTES_MAX 32767
#define RMQ_PROPERTY_PIECES 3

#define RMQ_SYS_COMPRESSED 0x1
#define RMQ_SYS_TRANSACTION_MASK 0xC
#define RMQ_SYS_TRANSACTION_PREPARED 0x4
#define RMQ_SYS_TRANSACTION_COMMIT 0x8
#define RMQ_SYS_TRANSACTION_ROLLBACK 0xC
#define RMQ_SYS_BORN_HOST_V6 0x10
#define RMQ_SYS_STORE_HOST_V6 0x20
#define RMQ_SYS_INNER_BATCH 0x80

/* Results of rmq_record_parse. Stock's (size, success) pair: OK = (size, true), BLANK = (0, true),
 * BAD_LENGTH = (size, false), all others = (-1, false). */
#define RMQ_RECORD_OK 1
#define RMQ_RECORD_BLANK 0
#define RMQ_RECORD_SHORT -1         /* fewer bytes left than the record claims, or four and less */
#define RMQ_RECORD_BAD_MAGIC -2
#define RMQ_RECORD_BAD_CRC -3
#define RMQ_RECORD_MALFORMED -4     /* an inner length is negative or leads out of the bytes left */
#define RMQ_RECORD_BAD_LENGTH -5    /* inner lengths do not add up to the total size */

/* Further stop reasons of rmq_log_scan. */
#define RMQ_SCAN_END 2              /* reached the end of the range */
#define RMQ_SCAN_FULL 3             /* the caller's table is full: call again from `at` */

/* State of a properties string (rmq_properties_state). */
#define RMQ_PROPERTIES_WHOLE 0
#define RMQ_PROPERTIES_NUL -1
#define RMQ_PROPERTIES_UNENDED -2   /* the last byte is not 0x02 */
#define RMQ_PROPERTIES_UNPAIRED -3  /* a pair without 0x01 */

/* The write role's input for one message. Pointers are borrowed for the call only. */
struct rmq_record_in {
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_time_ms;
    int64_t store_time_ms;
    int64_t prepared_transaction_offset;
    const uint8_t *body;
    const uint8_t *topic;
    /* Concatenated in this order; a non-empty piece that does not end in 0x02 gets one. NULL with length 0 is fine. */
    const uint8_t *properties[3];
    uint32_t properties_length[3];
    uint32_t body_length;
    uint32_t topic_length;          /* bytes of UTF-8; above 127 makes a V2 record */
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;               /* bits 0x10 and 0x20 choose 16-byte hosts */
    int32_t reconsume_times;
    int32_t born_port;
    int32_t store_port;
    uint8_t born_host[16];          /* raw address; the first 4 bytes for IPv4 */
    uint8_t store_host[16];
};

/* A parsed record. `*_at` count from the first byte of the record. */
struct rmq_record_view {
    int64_t position;               /* filled by rmq_log_scan: commit log offset where it was found */
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_time_ms;
    int64_t store_time_ms;
    int64_t prepared_transaction_offset;
    uint32_t total_size;
    uint32_t magic;
    uint32_t body_crc;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    uint32_t born_host_at;
    uint32_t store_host_at;
    uint32_t body_at;
    uint32_t body_length;
    uint32_t topic_at;
    uint32_t topic_length;
    uint32_t properties_at;
    uint32_t properties_length;
    uint32_t reserved;
};

/* The properties that dispatch needs, found in one pass; a NULL pointer means absent. Of a name that occurs
 * twice the last one with a value counts, as in MessageDecoder.string2messageProperties. */
struct rmq_dispatch_keys {
    const uint8_t *tags;
    const uint8_t *keys;
    const uint8_t *uniq_key;
    const uint8_t *delay_level;
    const uint8_t *inner_num;
    uint32_t tags_length;
    uint32_t keys_length;
    uint32_t uniq_key_length;
    uint32_t delay_level_length;
    uint32_t inner_num_length;
    uint32_t reserved;
};

struct rmq_delay_levels {
    int32_t count;                  /* levels 1..count */
    int32_t reserved;
    int64_t delay_ms[64];
};

/* CRC-32 (zlib) & 0x7fffffff. */
uint32_t rmq_crc32(const void *bytes, size_t length);

/* java.lang.String.hashCode of UTF-8 text; malformed bytes count as U+FFFD like Java's decoder. `_from` continues
 * a hash: rmq_java_hash_from(rmq_java_hash(a), b) == rmq_java_hash(a + b) when a ends at a character border. */
int32_t rmq_java_hash(const uint8_t *utf8, size_t length);
int32_t rmq_java_hash_from(int32_t seed, const uint8_t *utf8, size_t length);

/* Whole size of the record, or -EMSGSIZE (properties or topic too long, or body over 2^31 - 65536). */
int64_t rmq_record_size(const struct rmq_record_in *in);

/* Writes the record to `to`; returns its size, -ENOSPC when `room` is too small, -EMSGSIZE as above. */
int64_t rmq_record_encode(uint8_t *to, size_t room, const struct rmq_record_in *in);

/* Writes the 8-byte end-of-file blank for a file with `remaining` bytes left; returns 8, or -EINVAL below 8. */
int64_t rmq_blank_encode(uint8_t *to, size_t remaining);

int rmq_record_parse(const uint8_t *at, size_t left, int check_crc, struct rmq_record_view *out);

/* Scans [from, end) of one mapped log file whose first byte has commit-log offset `file_start`; fills up to `rows_max` rows.
 * Returns the number of rows. `*at` = end of the last row in the file. `*reason` = RMQ_SCAN_* or the RMQ_RECORD_* that ended
 * the scan. Offsets are relative to the file. Rows may have impossible values (record_values.h), for example a physical offset
 * other than `position`. */
int64_t rmq_log_scan(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start, int check_crc,
                     struct rmq_record_view *rows, size_t rows_max, uint64_t *at, int *reason);

/* The first place behind `from` whose bytes are a record that names this place, -1 without one: where scans go on behind
 * damage. The CRC does not matter. Arguments as rmq_log_scan. */
int64_t rmq_log_next_record(const uint8_t *file, uint64_t from, uint64_t end, int64_t file_start);

/* Values borrowed from `properties`, NULL when absent. The last non-empty value wins. */
void rmq_dispatch_keys_find(const uint8_t *properties, size_t length, struct rmq_dispatch_keys *out);

/* RMQ_PROPERTIES_WHOLE, or the reason why no encoder has written the string (rule for the last record of a log). */
int rmq_properties_state(const uint8_t *properties, size_t length);

/* tagsCode of the ConsumeQueue unit: hash of TAGS, or the delivery time for SCHEDULE_TOPIC_XXXX with DELAY > 0. */
int64_t rmq_tags_code(const uint8_t *topic, size_t topic_length, const struct rmq_dispatch_keys *keys,
                      int64_t store_time_ms, const struct rmq_delay_levels *levels);

/* Messages in the record as the queue counts them: INNER_NUM of an inner batch (absent or < 1 is 1), else 1. */
int32_t rmq_message_count(const struct rmq_dispatch_keys *keys, int32_t sys_flag, int is_batch_queue);
/* cdef-end */

_Static_assert(sizeof(struct rmq_record_in) == 160, "rmq_record_in");
_Static_assert(offsetof(struct rmq_record_in, properties) == 56, "rmq_record_in.properties");
_Static_assert(offsetof(struct rmq_record_in, born_host) == 124, "rmq_record_in.born_host");
_Static_assert(sizeof(struct rmq_record_view) == 112, "rmq_record_view");
_Static_assert(offsetof(struct rmq_record_view, total_size) == 48, "rmq_record_view.total_size");
_Static_assert(offsetof(struct rmq_record_view, properties_at) == 100, "rmq_record_view.properties_at");

#endif
