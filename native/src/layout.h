/* layout.h: the shared-memory plane, byte by byte.
 *
 * All worker processes of one broker map the same three kinds of files under /dev/shm:
 *   <name>-watermarks   one page, readable by outsiders (Spark, `store inspect`)
 *   <name>-plane        tables, rings, journal: this header's struct rmq_plane_header says where
 *   <name>-arena<R>     receive memory of read worker R: its provided buffers, then its frame blocks
 * <name> is ringmq-<st_dev>-<st_ino> of the store root in hex, so that a store has one plane.
 *
 * What must stay true:
 *  1. One writer per word. The comment behind each block names the role that alone writes it.
 *  2. A word is published after what it promises (release), and read before it is relied on (acquire).
 *  3. Any worker may die between any two stores. `write` commits a batch by ONE store of
 *     journal_generation; the words published after it are a redo of that journal entry.
 *  4. Ids (topic, group, queue slot, connection generation) are never reused while the plane lives.
 * All integers are in the machine's own order: the plane never leaves the machine.
 */
#ifndef RMQ_LAYOUT_H
#define RMQ_LAYOUT_H
#include <stddef.h>
#include <stdint.h>

#include "metrics_layout.h"

/* cdef-begin */
#define RMQ_READERS_MAX 16
#define RMQ_PRODUCERS_MAX 17 /* request rings: readers 0..15, then control (index 16) */
#define RMQ_CONTROL_PRODUCER 16
#define RMQ_ROLES_MAX 32
#define RMQ_NAME_MAX 255
#define RMQ_PATH_MAX 1024
#define RMQ_TAGS_MAX 56
#define RMQ_NONE 0xffffffffu

/* Role numbers: index into rmq_plane_header.roles. Readers are RMQ_ROLE_READ + reader. */
#define RMQ_ROLE_SUPERVISOR 0
#define RMQ_ROLE_CONTROL 1
#define RMQ_ROLE_WRITE 2
#define RMQ_ROLE_FLUSH 3
#define RMQ_ROLE_DISPATCH 4
#define RMQ_ROLE_NAMESRV 5
#define RMQ_ROLE_HA 6 /* a master's HA writer, a slave's HA client */
#define RMQ_ROLE_METRICS 7
#define RMQ_ROLE_READ 8

/* confirm_policy: which words bound what consumers may see, bits. */
#define RMQ_CONFIRM_APPENDED 0 /* ASYNC_FLUSH */
#define RMQ_CONFIRM_FLUSHED 1  /* SYNC_FLUSH */
#define RMQ_CONFIRM_LIMITED 2  /* confirm_limit too: replicas have to hold it, or a slave's master has to have said so */

/* store_fault (flush), dispatch_fault (dispatch): why the store refuses writes; 0 = it does not. */
#define RMQ_FAULT_NONE 0
#define RMQ_FAULT_FSYNC 1        /* an fsync failed: stays until an operator restarts */
#define RMQ_FAULT_DISK_FULL 2    /* goes away when there is room again */
#define RMQ_FAULT_CREATE_FILE 3  /* the next segment could not be made */
#define RMQ_FAULT_QUEUE_IO 5     /* dispatch could not write a consume queue or index; a successor tries again */
#define RMQ_FAULT_QUEUE_SYNC 6   /* fsync of a queue or index file failed: stays until an operator restarts */

/* stop_requested: the phase of a clean stop, 0 = none. A role stops once it is at or beyond its own phase and has
 * finished what earlier phases gave it. */
#define RMQ_STOP_READ 1
#define RMQ_STOP_CONTROL 2
#define RMQ_STOP_WRITE 3
#define RMQ_STOP_FLUSH 4
#define RMQ_STOP_DISPATCH 5
#define RMQ_STOP_HA 6 /* a master's; a slave's ends in the phase of write, whose work it does */
#define RMQ_STOP_SLAVES_MS 3000 /* a stop waits no longer for slaves, whatever slaveTimeout says */

/* replication_state. Anything but OK: write refuses a send that waits for replicas before it is appended, the completer
 * answers what is parked behind replicated_offset at once with this response code. */
#define RMQ_REPLICATION_OK 0
#define RMQ_REPLICATION_LOST 11    /* SLAVE_NOT_AVAILABLE: too few replicas are connected */
#define RMQ_REPLICATION_STALLED 12 /* FLUSH_SLAVE_TIMEOUT: connected, and silent with data outstanding */

/* write_hold: why every send is refused until an operator, or a configured rule, has chosen. */
#define RMQ_HOLD_NONE 0
#define RMQ_HOLD_LONGER_SLAVE 1 /* a slave's log is longer than this master's, or differs from it */

/* memory_level: how near the memory of all processes is to memory_max_bytes (ipc/memory.py). */
#define RMQ_MEMORY_FREE 0
#define RMQ_MEMORY_NEAR 1 /* new connections, and new names and registrations of clients, are refused */
#define RMQ_MEMORY_FULL 2 /* readers close the largest backlogs of answers, too */

/* The page that outsiders may map: 4096 bytes, one word per cache line.
 *   0 magic "RMQWATER"  8 version  12 confirm_policy  16 start_id  24 owner_pid  32 store_dev  40 store_ino
 *  64 append_offset (write)      128 flushed_offset (flush)     192 dispatched_offset (dispatch)
 * 256 min_offset (flush)         320 replicated_offset (ha)     384 store_fault, store_fault_errno (flush)
 * 448 dispatch_fault, dispatch_fault_errno (dispatch)           512 stop_requested (supervisor): RMQ_STOP_*
 * 576 confirm_limit (ha)         640 replication_state, in_sync_replicas (ha)
 * 704 write_hold (control): RMQ_HOLD_*
 * A reader from outside trusts it only while byte 0 of <store>/lock is locked and store_dev/ino match. */
struct rmq_watermarks {
    uint64_t magic;
    uint32_t version;
    uint32_t confirm_policy;
    uint64_t start_id;
    uint32_t owner_pid;
    uint32_t reserved0;
    uint64_t store_dev;
    uint64_t store_ino;
    uint8_t pad0[16];
    uint64_t append_offset;
    uint8_t pad1[56];
    uint64_t flushed_offset;
    uint8_t pad2[56];
    uint64_t dispatched_offset;
    uint8_t pad3[56];
    uint64_t min_offset;
    uint8_t pad4[56];
    uint64_t replicated_offset;
    uint8_t pad5[56];
    uint32_t store_fault;
    int32_t store_fault_errno;
    uint8_t pad6[56];
    uint32_t dispatch_fault;
    int32_t dispatch_fault_errno;
    uint8_t pad7[56];
    uint32_t stop_requested;
    uint8_t pad8[60];
    uint64_t confirm_limit;      /* with RMQ_CONFIRM_LIMITED; ~0 = no limit */
    uint8_t pad9[56];
    uint32_t replication_state;  /* RMQ_REPLICATION_*: what write and the completer do with sends that wait for replicas */
    uint32_t in_sync_replicas;   /* the master counted */
    uint8_t pad10[56];
    uint32_t write_hold;
    uint8_t pad11[60];
    uint8_t rest[3328];
};

/* A sleeper's bell. The sleeper stores RMQ_BELL_*, fences, looks once more, then waits on its eventfd.
 * A waker publishes, fences, reads `sleeping`, writes the eventfd only when it is not 0. */
#define RMQ_BELL_ASLEEP 1
#define RMQ_BELL_AT_DISK 2 /* flush: waits for a sync; what only asks for the next one need not wake it */
struct rmq_bell {
    uint32_t sleeping; /* the sleeper */
    uint8_t pad[60];
};

/* 512 bytes per role, written by that role's process (pid and generation by the supervisor). */
struct rmq_role {
    struct rmq_bell bell;     /*   0 */
    uint32_t pid;             /*  64 supervisor */
    uint32_t generation;      /*  68 supervisor: +1 at each start of the worker */
    uint32_t state;           /*  72 role: 0 down, 1 starting, 2 serving, 3 stopping */
    uint32_t cpu;             /*  76 supervisor */
    uint64_t progress;        /*  80 role: turns of its loop; control waits for one of write when a topic goes */
    uint64_t claim_position;  /*  88 role, ~0 = none: where it may hold a claim in the inbox; reset by the supervisor */
    uint64_t counters[52];    /*  96 role: meaning in each role's header */
};

/* Settings every worker needs; written by the supervisor before any worker starts. Those of live properties control
 * writes again while workers run, a word at a time (broker/live_settings.py). */
struct rmq_settings {
    uint64_t segment_bytes;            /* mappedFileSizeCommitLog */
    uint64_t queue_file_bytes;         /* mappedFileSizeConsumeQueue, multiple of 20 */
    uint32_t index_slot_count;         /* maxHashSlotNum */
    uint32_t index_entry_count;        /* maxIndexNum */
    uint32_t message_index_enable;
    uint32_t sync_flush;               /* 1 = SYNC_FLUSH */
    uint32_t message_bytes_max;        /* maxMessageSize */
    uint32_t frame_bytes_max;          /* 16777216 */
    uint32_t sync_flush_timeout_ms;
    uint32_t flush_interval_ms;        /* flushIntervalCommitLog */
    uint32_t flush_least_pages;
    uint32_t flush_thorough_interval_ms;
    uint32_t populate_window_bytes;    /* mapped and faulted in ahead of the append position */
    uint32_t idle_connection_ms;       /* 120000: serverChannelMaxIdleTimeSeconds */
    uint32_t long_polling_enable;
    uint32_t short_polling_ms;
    uint32_t pull_memory_bytes_max;    /* 262144: maxTransferBytesOnMessageInMemory */
    uint32_t pull_memory_count_max;    /* 32 */
    uint32_t pull_disk_bytes_max;      /* 65536 */
    uint32_t pull_disk_count_max;      /* 8 */
    uint64_t memory_window_bytes;      /* 40 % of RAM: what counts as in memory */
    uint32_t readers;
    uint32_t spin_pauses;              /* before parking; 0 where CPUs are shared */
    uint32_t store_host_bytes;         /* 4 or 16 */
    uint32_t store_port;
    uint8_t store_host[16];            /* brokerIP1, network order */
    uint64_t reserved0;
    uint32_t additions_length;         /* properties that the broker adds to each message */
    uint32_t lite_pull_enable;
    char additions[512];               /* e.g. MSG_REGION 01 DefaultRegion 02 TRACE_ON 01 true 02 CLUSTER 01 c 02 */
    char region_id[128];
    char store_path[RMQ_PATH_MAX];     /* storePathRootDir */
    char commit_log_path[RMQ_PATH_MAX];
    uint32_t trace_on;
    uint32_t reserved1;
    uint32_t slave_read_enable;
    uint32_t reassembly_bytes_max;     /* frame blocks per reader arena */
    uint32_t receive_buffer_bytes;     /* one provided buffer */
    uint32_t receive_buffer_count;     /* power of two */
    uint32_t connections_max;          /* per reader */
    uint32_t partial_frame_timeout_ms; /* a frame that stays incomplete longer closes its connection */
    uint32_t send_queue_bytes_max;     /* per connection: a client that never reads is closed beyond it */
    uint32_t send_stall_timeout_ms;
    uint64_t batch_queue_file_bytes;   /* mapperFileSizeBatchConsumeQueue, multiple of 46 */
    uint32_t broker_role;              /* RMQ_BROKER_* */
    uint32_t sync_replication;         /* 1: a send without WAIT=false waits for replicated_offset */
    uint32_t slave_timeout_ms;         /* slaveTimeout */
    uint32_t ha_transfer_bytes;        /* haTransferBatchSize, at most 32768 */
    uint64_t broker_id;                /* 0 = master */
    uint64_t ha_window_bytes;          /* sent and not reported, per slave */
    uint64_t ha_bytes_per_second;      /* maxHaTransferByteInSecond with haFlowControlEnable, else 0 */
    uint32_t ha_heartbeat_ms;          /* haSendHeartbeatInterval */
    uint32_t ha_housekeeping_ms;       /* haHousekeepingInterval */
    uint32_t offset_check_in_slave;    /* a slave corrects offsets that are outside its queues */
    uint32_t slow_request_ms;          /* sends that took longer are told to control; 0 = none are */
    uint32_t answer_bytes_max;         /* memory of answers that wait, of all connections of a reader */
    uint32_t host_connections_max;     /* of one host, per reader */
    uint8_t reserved[184];
};
#define RMQ_BROKER_MASTER 0
#define RMQ_BROKER_SLAVE 1 /* no write worker: ha appends what its master sends, readers refuse sends */

/* One topic; index = topic id (0 is never used). Written by control; name, hash once. `config` is one word,
 * so a change is one store: bits 0-7 perm, 8-23 read queues, 24-39 write queues, 40-63 RMQ_TOPIC_* flags. */
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
#define RMQ_TOPIC_BATCH_QUEUE 0x20 /* units go to BatchConsumeQueues (0x10 is control's own: RECOVERED) */

#define RMQ_SIZE_CLASSES 6
/* One queue; index = queue slot. 128 bytes. First line: control, once. Second line: dispatch. */
struct rmq_queue {
    uint32_t topic_id;            /*   0 */
    uint32_t queue_id;            /*   4 */
    uint64_t replay_from;         /*   8 records below have their units, or are of an earlier topic of this name */
    uint64_t huge_records;        /*  16 dispatch: above 4 MiB; so rare that they may share this line */
    uint8_t pad0[40];             /*  24 */
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
#define RMQ_GROUP_PULL_COLD 0x20    /* control looks at every pull of this group (forbidden, reset pending) */
#define RMQ_GROUP_SLOW_BROKER_SHIFT 32 /* 16 bits: whichBrokerWhenConsumeSlowly */
#define RMQ_GROUP_BROKER_SHIFT 48      /* 16 bits: brokerId, where the group reads otherwise */

/* What a (group, topic) subscription says. Two copies; control fills copy[(version + 1) & 1], then stores
 * version + 1; a reader takes copy[version & 1] and looks at version again. */
struct rmq_subscription_copy {
    int64_t sub_version;
    uint32_t kind; /* RMQ_SUBSCRIPTION_* */
    uint32_t tag_count;
    int32_t tags[RMQ_TAGS_MAX]; /* Java hashes */
};
#define RMQ_SUBSCRIPTION_NONE 0
#define RMQ_SUBSCRIPTION_ALL 1
#define RMQ_SUBSCRIPTION_TAGS 2
#define RMQ_SUBSCRIPTION_COLD 3 /* expression, too many tags: control decides */
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

/* A request to append, 128 bytes. Positions are bytes from the start of the producer's arena. The bytes they
 * point at stay untouched until the completion of `pending` has been taken. */
struct rmq_request {
    uint64_t body_at;
    uint64_t properties_at;      /* as to be stored, ends in 02 unless empty; batch: the header's properties */
    uint64_t extra_at;           /* a UNIQ_KEY pair made by the reader when the client sent none */
    uint32_t body_length;
    uint16_t properties_length;
    uint16_t extra_length;
    uint32_t pending;            /* producer's own index, echoed in the completion */
    uint32_t producer_generation;
    uint32_t topic_id;
    uint32_t queue_slot;
    uint32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t reconsume_times;
    int64_t born_time_ms;
    int64_t prepared_transaction_offset; /* control may mark what it publishes (published_marks.h); others 0 */
    uint8_t born_host[16];
    uint32_t born_port;
    uint16_t kind;               /* RMQ_APPEND_* */
    uint16_t flags;              /* RMQ_APPEND_FLAG_* */
    int64_t received_mono_ns;    /* 0: nobody counts its time */
    uint8_t reserved[16];
};
#define RMQ_APPEND_SINGLE 1
#define RMQ_APPEND_BATCH 2       /* body = batch elements; write stores each element's physical offset in its bytes 4..11 */
#define RMQ_APPEND_FLAG_NO_WAIT 1   /* WAIT=false: answered at append under every policy */
#define RMQ_APPEND_FLAG_BORN_V6 2

/* The answer to one request, 48 bytes. */
struct rmq_completion {
    uint64_t commit_log_offset;  /* first record */
    uint64_t commit_log_end;
    uint64_t queue_offset;       /* first record */
    uint32_t pending;
    uint32_t producer_generation;
    int16_t code;                /* RocketMQ response code: 0, 10, 14, 1, 13, 2 */
    uint16_t cause;              /* RMQ_FAULT_* or RMQ_CAUSE_*: for the remark */
    int32_t cause_errno;
    uint32_t appended_us;        /* since received; 0 where nobody counts */
    uint32_t kept_us;            /* flushed and replicated, as far as the request waits for it */
};
#define RMQ_CAUSE_MESSAGE_SIZE 64
#define RMQ_CAUSE_BATCH_ELEMENT 65 /* malformed batch body */
#define RMQ_CAUSE_FLUSH_TIMEOUT 66
#define RMQ_CAUSE_SEGMENT_LATE 67  /* next segment not ready in time */
#define RMQ_CAUSE_QUEUE_SLOT 68
#define RMQ_CAUSE_BATCH_PAIRS 69   /* properties of a batch element that recovery would take for torn */
#define RMQ_CAUSE_BATCH_LATER 70   /* a batch element asks for delay, timer or transaction */
#define RMQ_CAUSE_IN_SYNC_REPLICAS 71 /* too few replicas: nothing was appended */
#define RMQ_CAUSE_SLAVE_LOST 72    /* appended; the slaves that it waited for are gone */
#define RMQ_CAUSE_SLAVE_TIMEOUT 73 /* appended; no report in slaveTimeout */
#define RMQ_CAUSE_HELD 74          /* write_hold */

/* A parked request: answered by the completer when flushed_offset (sync_flush) and replicated_offset (sync_replication)
 * have reached completion.commit_log_end, or when its time for one of the two is over. 80 bytes.
 * Its answer has a fixed place in the producer's `completed` ring, so that a completer that died between publishing
 * an answer and giving up the entry cannot answer twice. */
struct rmq_parked {
    struct rmq_completion completion;
    int64_t parked_mono_ms;
    int64_t received_mono_ns;
    uint64_t completed_position; /* position in completed[producer] */
    uint32_t producer;
    uint32_t reserved;
};

/* Positions of an SPSC ring. `head` = next to be written (producer), `tail` = next to be read (consumer);
 * both only grow, the slot is position & (capacity - 1). */
struct rmq_ring {
    uint64_t head;
    uint8_t pad0[56];
    uint64_t tail;
    uint8_t pad1[56];
    uint32_t capacity; /* slots or bytes, a power of two; set once */
    uint32_t slot_bytes;
    uint64_t slots_at; /* from the start of the plane */
    uint8_t pad2[48];
};

/* Redo journal of `write`: entry [generation & 1] is complete when journal_generation == generation. */
struct rmq_journal_entry {
    uint64_t generation;
    uint64_t append_offset;
    uint64_t store_time_ms;
    uint64_t request_tail[RMQ_PRODUCERS_MAX];
    uint64_t completion_head[RMQ_PRODUCERS_MAX];
    uint64_t parked_head;
    uint64_t appended_messages;
    uint64_t parked_count[RMQ_PRODUCERS_MAX]; /* entries ever parked per producer: the next completed_position */
    uint64_t reserved[4];
};
struct rmq_journal {
    uint64_t generation;
    uint8_t pad0[56];
    uint64_t intent_high; /* no byte of the log at or above it has been touched since `generation` */
    uint8_t pad1[56];
    struct rmq_journal_entry entry[2];
};

/* A replica's level: how far a byte has come before it counts (replicationPolicy). */
#define RMQ_HA_LEVEL_NONE 0
#define RMQ_HA_LEVEL_HANDED 1   /* to the HA writer */
#define RMQ_HA_LEVEL_SENT 2     /* in the network buffer */
#define RMQ_HA_LEVEL_RECEIVED 3 /* acknowledged by the slave's kernel */
#define RMQ_HA_LEVEL_CACHED 4   /* reported: in the slave's mapped log */
#define RMQ_HA_LEVEL_FLUSHED 5  /* reported by a slave that said that its reports are flushed offsets */

/* States of a connection, numbers of RocketMQ's HAConnectionState. */
#define RMQ_HA_FREE 0
#define RMQ_HA_READY 1     /* connected, no report yet */
#define RMQ_HA_TRANSFER 2
#define RMQ_HA_PEERS_MAX 16

/* One slave of this master; ha alone writes, control reads. 256 bytes. */
struct rmq_ha_peer {
    uint32_t state;              /*   0 RMQ_HA_*; FREE: the rest means nothing */
    uint32_t connection;         /*   4 +1 at each connection in this place */
    uint32_t level;              /*   8 CACHED or FLUSHED: what its reports stand for */
    uint32_t flags;              /*  12 RMQ_HA_PEER_* */
    int64_t broker_id;           /*  16 -1: a stock slave, which does not say */
    uint64_t requested_offset;   /*  24 first report */
    uint64_t start_offset;       /*  32 where the stream began */
    uint64_t sent_offset;        /*  40 */
    uint64_t received_offset;    /*  48 */
    uint64_t reported_offset;    /*  56 */
    uint64_t sent_bytes;         /*  64 headers counted, since connected */
    uint64_t sent_transfers;     /*  72 */
    int64_t connected_mono_ms;   /*  80 */
    int64_t last_read_mono_ms;   /*  88 */
    int64_t last_write_mono_ms;  /*  96 */
    int64_t caught_up_mono_ms;   /* 104 when everything appended was reported last */
    uint64_t bytes_per_second;   /* 112 of the last second */
    uint32_t host_bytes;         /* 120 4 or 16 */
    uint32_t port;               /* 124 */
    uint8_t host[16];            /* 128 network order */
    char room[32];               /* 144 NUL-terminated, empty = not known */
    int64_t silent_since_mono_ms; /* 176 no report has grown since, and sent bytes wait for one; 0 = none do */
    uint8_t reserved[72];        /* 184 */
};
#define RMQ_HA_PEER_IN_SYNC 1
#define RMQ_HA_PEER_COUNTS 2     /* the one connection that stands for its replica */

/* A slave's connection to its master; ha alone writes, control reads. */
struct rmq_ha_link {
    uint32_t state;              /* RMQ_HA_*; FREE: not connected */
    uint32_t attempts;           /* connections tried since start */
    uint64_t received_bytes;
    uint64_t master_offset;      /* end of the last transfer, or what the heartbeat said */
    int64_t last_read_mono_ms;
    int64_t last_write_mono_ms;
    uint64_t bytes_per_second;
    uint64_t reported_offset;
    uint8_t reserved[16];
};

/* First pages of the plane. */
struct rmq_plane_header {
    uint64_t magic;    /* "RMQPLANE" */
    uint32_t version;
    uint32_t header_bytes;
    uint64_t plane_bytes;
    uint64_t start_id;
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
    uint32_t master_known;       /* control of a slave: consumers may be sent to a master */
    uint32_t reserved0;
    uint64_t topics_at, topic_hash_at;         /* hash: u32 ids, 2 x capacity rounded up, 0 = free */
    uint64_t queues_at, queue_hash_at;         /* u32 slot + 1 */
    uint64_t groups_at, group_hash_at;
    uint64_t subscriptions_at, subscription_hash_at;
    uint64_t offsets_at, offset_hash_at;
    uint32_t topic_hash_size, queue_hash_size, group_hash_size, subscription_hash_size, offset_hash_size;
    uint32_t reserved1;
    uint64_t parked_flags_at;    /* u8 [readers_max][queue_capacity]: reader has pulls parked on the slot (reader) */
    uint64_t readable_from;      /* supervisor, once: the end of what was recovered and may be read; dispatch reaches it */
    uint32_t memory_level;       /* supervisor: RMQ_MEMORY_* */
    uint32_t reserved2;
    uint64_t memory_private_bytes, memory_shared_bytes; /* supervisor: of all processes; of segments, each page once */
    uint64_t memory_max_bytes;   /* supervisor, once: ringmqMemoryMax */
    uint8_t reserved3[48];
    struct rmq_settings settings;
    struct rmq_role roles[RMQ_ROLES_MAX];
    struct rmq_journal journal;
    struct rmq_ring request[RMQ_PRODUCERS_MAX];      /* rmq_request: producer -> write */
    struct rmq_ring appended[RMQ_PRODUCERS_MAX];     /* rmq_completion: write -> producer */
    struct rmq_ring completed[RMQ_PRODUCERS_MAX];    /* rmq_completion: flush (completer) -> producer */
    struct rmq_ring parked;                          /* rmq_parked: write -> flush */
    struct rmq_ring arrived[RMQ_READERS_MAX];        /* u32 queue slots: dispatch -> reader */
    struct rmq_ring verdict[RMQ_READERS_MAX];        /* byte ring of rmq_verdict: control -> reader */
    struct rmq_ring commit[RMQ_READERS_MAX];         /* rmq_offset_commit: reader -> control */
    struct rmq_ring inbox;                           /* MPSC byte ring of rmq_inbox_record: anyone -> control */
    struct rmq_ring ha_orders;                       /* rmq_ha_order: control -> ha */
    struct rmq_ring slow[RMQ_READERS_MAX];           /* rmq_slow_request: reader -> control; full: not told */
    struct rmq_ha_peer ha_peers[RMQ_HA_PEERS_MAX];
    struct rmq_ha_link ha_link;
    uint64_t pulled_at;          /* struct rmq_pulled [readers_max][RMQ_PULLED_CAPACITY] */
    uint64_t pulled_cells_at;    /* u32 entry + 1, 0 = free [readers_max][RMQ_PULLED_CELLS] */
    struct rmq_pulled_table pulled[RMQ_READERS_MAX]; /* reader */
    uint64_t slow_untold[RMQ_READERS_MAX];           /* reader: slow requests that found their ring full */
    uint64_t junk_untold[RMQ_READERS_MAX];           /* reader: connections closed for junk that control did not hear of */
    struct rmq_latency latency[RMQ_ROLES_MAX][RMQ_LATENCY_PLACES]; /* the role itself */
};

/* control -> ha: one JSON object (ha/orders.py). */
struct rmq_ha_order {
    uint32_t length;
    char json[1020];
};

/* reader -> control: an offset committed by a pull. */
struct rmq_offset_commit {
    uint32_t group_id;
    uint32_t queue_slot;
    int64_t offset;
};

/* Record in control's inbox (MPSC). Payload follows, the record is padded to 8 bytes.
 * `length` is claimed negative and stored positive last; a dead writer's claim is unblocked. */
struct rmq_inbox_record {
    int32_t length;              /* header + payload, unpadded; < 0: being written; then abs() is the claim */
    uint16_t type;               /* RMQ_INBOX_*; RMQ_INBOX_PAD fills the end of the ring */
    uint16_t role;               /* writer */
    uint32_t role_generation;
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* COLD_FRAME: the reader keeps the frame until the verdict names it */
    uint32_t frame_length;       /* COLD_FRAME: whole frame; the payload may hold less of it (send bodies) */
    uint16_t peer_port;
    uint8_t peer_v6;
    uint8_t listener;            /* 0 main, 1 VIP port */
    uint8_t peer_host[16];
    uint64_t received_mono_ns;
};
#define RMQ_INBOX_PAD 0
#define RMQ_INBOX_COLD_FRAME 1   /* payload: frame from its 4-byte length on */
#define RMQ_INBOX_CLOSED 2       /* the connection had sent cold frames and is gone */
#define RMQ_INBOX_DROPPED 3      /* unblocked: its writer died */
#define RMQ_INBOX_HA 4           /* ha -> control: one JSON object (ha/orders.py) */
#define RMQ_INBOX_QUEUE 5        /* a slave's dispatch -> control: pending = id, payload = topic of a queue that is in no table;
                                  * frame_length 1: its records hold inner batches */
#define RMQ_INBOX_JUNK 6         /* payload: at most RMQ_JUNK_BYTES that are no frame; the connection is closed */
#define RMQ_JUNK_BYTES 16

/* Record in a verdict ring (control -> reader), payload follows, padded to 8 bytes. */
struct rmq_verdict {
    uint32_t length;             /* header + payload, unpadded */
    uint16_t type;               /* RMQ_VERDICT_* */
    uint16_t last;               /* SEND: 1 = the frame ends with this chunk */
    uint32_t connection;
    uint32_t connection_generation;
    uint32_t pending;            /* RMQ_NONE for frames that control sends on its own */
    uint32_t reader_generation;
    uint64_t reserved;
};
#define RMQ_VERDICT_PAD 0
#define RMQ_VERDICT_SEND 1       /* payload: bytes for the connection; with last, `pending` is released */
#define RMQ_VERDICT_REDO 2       /* run the kept frame again: the reason it was cold is gone */
#define RMQ_VERDICT_DROP 3       /* oneway: release `pending`, nothing to send */
#define RMQ_VERDICT_CLOSE 4      /* close the connection */
/* cdef-end */

#define RMQ_WATERMARKS_MAGIC 0x5245544157514d52ull /* "RMQWATER" */
#define RMQ_PLANE_MAGIC 0x454e414c50514d52ull      /* "RMQPLANE" */
#ifndef RMQ_PLANE_VERSION
#define RMQ_PLANE_VERSION 0 /* a build by hand; the build of the package reckons it from the sources of the plane */
#endif

_Static_assert(sizeof(struct rmq_watermarks) == 4096, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, append_offset) == 64, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, flushed_offset) == 128, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, dispatched_offset) == 192, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, min_offset) == 256, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, store_fault) == 384, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, stop_requested) == 512, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, confirm_limit) == 576, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, replication_state) == 640, "watermark page");
_Static_assert(offsetof(struct rmq_watermarks, write_hold) == 704, "watermark page");
_Static_assert(sizeof(struct rmq_ha_peer) == 256, "ha peer");
_Static_assert(sizeof(struct rmq_ha_link) == 72, "ha link");
_Static_assert(sizeof(struct rmq_ha_order) == 1024, "ha order");
_Static_assert(sizeof(struct rmq_role) == 512, "role");
_Static_assert(sizeof(struct rmq_topic) == 320, "topic");
_Static_assert(sizeof(struct rmq_group) == 320, "group");
_Static_assert(sizeof(struct rmq_queue) == 128, "queue");
_Static_assert(offsetof(struct rmq_queue, replay_from) == 8, "queue");
_Static_assert(offsetof(struct rmq_queue, max_offset) == 64, "queue");
_Static_assert(sizeof(struct rmq_subscription_copy) == 240, "subscription");
_Static_assert(sizeof(struct rmq_request) == 128, "request");
_Static_assert(sizeof(struct rmq_completion) == 48, "completion");
_Static_assert(sizeof(struct rmq_parked) == 80, "parked");
_Static_assert(sizeof(struct rmq_ring) == 192, "ring");
_Static_assert(sizeof(struct rmq_inbox_record) == 56, "inbox record");
_Static_assert(sizeof(struct rmq_verdict) == 32, "verdict");
#endif
