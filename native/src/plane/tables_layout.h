/* tables_layout.h: topics, queues, groups, subscriptions and consumer offsets. Control writes them (dispatch its half of a
 * queue), everybody looks things up in them (plane_tables.c).
 */
#ifndef RMQ_TABLES_LAYOUT_H
#define RMQ_TABLES_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_NAME_MAX 255
#define RMQ_TAGS_MAX 56
#define RMQ_NONE 0xffffffffu

/* One topic; index = topic id (0 is never used). Written by control; name, hash once. `config` is one word,
 * so a change is one store: bits 0-7 perm, 8-23 read queues, 24-39 write queues, 40-63 RMQ_TOPIC_* flags (settings_word.h). */
struct rmq_topic {
    uint64_t config;
    uint32_t name_hash;
    uint16_t name_length;
    uint16_t reserved;
    uint32_t first_queue; /* slot + 1 of queue 0, when it has been made */
    char name[256];
    uint8_t pad[44];
};
#define RMQ_TOPIC_LIVE 0x1        /* unset: never made, or deleted */
#define RMQ_TOPIC_SEND_COLD 0x2   /* system, retry, DLQ, BatchCQ, ...: every send goes to control first */
#define RMQ_TOPIC_PULL_COLD 0x4   /* BatchCQ, a broker that may not be read: control answers pulls */
#define RMQ_TOPIC_RECOVERED 0x10  /* on disk, but in no configuration: clients do not know it */
#define RMQ_TOPIC_BATCH_QUEUE 0x20 /* units go to BatchConsumeQueues */
#define RMQ_TOPIC_RESERVED 0x40   /* of the system, or compacted: services publish no client's messages to it */

#define RMQ_SIZE_CLASSES 6
/* One queue; index = queue slot. 128 bytes. First line: control, once. Second line: dispatch. */
struct rmq_queue {
    uint32_t topic_id;            /*   0 */
    uint32_t queue_id;            /*   4 */
    uint64_t replay_from;         /*   8 records below have their units, or are of an earlier topic of this name */
    uint64_t huge_records;        /*  16 dispatch: above 4 MiB; so rare that they may share this line */
    uint64_t log_end;             /*  24 the log of a start has records below this queue offset that dispatch adds yet; 0 = none */
    uint8_t pad0[32];             /*  32 */
    uint64_t max_offset;          /*  64 dispatch: next queue offset that is readable nowhere yet */
    uint64_t min_offset;          /*  72 dispatch */
    uint64_t last_store_time_ms;  /*  80 dispatch */
    uint64_t put_bytes;           /*  88 dispatch: since start */
    uint64_t max_physical_offset; /*  96 dispatch: end of the last indexed record */
    uint32_t sizes[RMQ_SIZE_CLASSES]; /* 104 dispatch: records since start of at most 1 KiB, 4 KiB, 512 KiB, 1, 2, 4 MiB */
};

/* One consumer group; index = group id (0 never used). Written by control. */
struct rmq_group {
    uint64_t config; /* RMQ_GROUP_* flags and broker ids: one store changes it */
    uint32_t name_hash;
    uint16_t name_length;
    uint16_t reserved;
    char name[256];
    uint8_t pad[48];
};
#define RMQ_GROUP_LIVE 0x1
#define RMQ_GROUP_CONSUME_ENABLE 0x2
#define RMQ_GROUP_BROADCAST_ENABLE 0x4
#define RMQ_GROUP_HAS_MEMBERS 0x8   /* a heartbeat is known */
#define RMQ_GROUP_BROADCASTING 0x10 /* message model of the latest heartbeat */
#define RMQ_GROUP_PULL_COLD 0x20    /* every pull of this group is cold (forbidden, reset pending) */
#define RMQ_GROUP_RETRY_QUEUES_SHIFT 8 /* 8 bits: retryQueueNums, at most RETRY_QUEUES_MAX */
#define RMQ_GROUP_RETRY_QUEUES_MAX 255
#define RMQ_GROUP_RETRY_TIMES_SHIFT 16 /* 16 bits: retryMaxTimes. RETRY_TIMES_MAX: as many or more, which no message reaches */
#define RMQ_GROUP_RETRY_TIMES_MAX 65535
#define RMQ_GROUP_SLOW_BROKER_SHIFT 32 /* 16 bits: whichBrokerWhenConsumeSlowly */
#define RMQ_GROUP_BROKER_SHIFT 48      /* 16 bits: brokerId, where the group reads otherwise */

/* A (group, topic) subscription. Two copies and a version (layout.h, 5). */
struct rmq_subscription_copy {
    int64_t sub_version;
    uint32_t kind; /* RMQ_SUBSCRIPTION_* */
    uint32_t tag_count;
    int32_t tags[RMQ_TAGS_MAX]; /* Java hashes; of a FILTER slot and version of its program (filter_layout.h) */
};
#define RMQ_SUBSCRIPTION_NONE 0
#define RMQ_SUBSCRIPTION_ALL 1
#define RMQ_SUBSCRIPTION_TAGS 2
#define RMQ_SUBSCRIPTION_COLD 3 /* too many tags, an expression without a program: control decides */
#define RMQ_SUBSCRIPTION_FILTER 4
struct rmq_subscription {
    uint32_t group_id;
    uint32_t topic_id;
    uint32_t version;
    uint32_t reserved;
    struct rmq_subscription_copy copy[2];
};

/* Consumer offset of (group id, queue slot). Written by control. offset -1 = none. */
struct rmq_consumer_offset {
    uint32_t group_id;
    uint32_t queue_slot;
    int64_t offset;
};


/* Offsets of the tables, in bytes from the start of the plane. A hash is an array of u32, open addressing, 0 = free cell. */
struct rmq_tables {
    uint32_t topic_capacity;
    uint32_t topic_count;        /* control: ids 1..topic_count exist */
    uint32_t queue_capacity;
    uint32_t queue_count;        /* control: slots 0..queue_count-1 exist */
    uint32_t group_capacity;
    uint32_t group_count;
    uint32_t subscription_capacity;
    uint32_t subscription_count;
    uint32_t offset_capacity;
    uint32_t offset_count;
    uint64_t topics_at, topic_hash_at; /* hash of ids */
    uint64_t queues_at, queue_hash_at; /* hash of slot + 1; the others alike */
    uint64_t groups_at, group_hash_at;
    uint64_t subscriptions_at, subscription_hash_at;
    uint64_t offsets_at, offset_hash_at;
    uint32_t topic_hash_size, queue_hash_size, group_hash_size, subscription_hash_size, offset_hash_size;
    uint32_t reserved;
};
/* cdef-end */

_Static_assert(sizeof(struct rmq_topic) == 320, "topic");
_Static_assert(sizeof(struct rmq_group) == 320, "group");
_Static_assert(sizeof(struct rmq_queue) == 128, "queue");
_Static_assert(offsetof(struct rmq_queue, replay_from) == 8, "queue");
_Static_assert(offsetof(struct rmq_queue, max_offset) == 64, "queue");
_Static_assert(sizeof(struct rmq_subscription_copy) == 240, "subscription");
#endif
