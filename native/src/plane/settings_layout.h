/* settings_layout.h: the part of the configuration that all workers use, and the state of the broker's memory. */
#ifndef RMQ_SETTINGS_LAYOUT_H
#define RMQ_SETTINGS_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_PATH_MAX 1024

/* memory_level: how near the memory of all processes is to memory_max_bytes (ipc/memory.py). */
#define RMQ_MEMORY_FREE 0
#define RMQ_MEMORY_NEAR 1 /* new connections, and new names and registrations of clients, are refused */
#define RMQ_MEMORY_FULL 2 /* readers close the largest backlogs of answers, too */

/* Memory of all processes; the supervisor measures it (ipc/memory.py). */
struct rmq_memory {
    uint32_t level;              /* RMQ_MEMORY_* */
    uint32_t reserved;
    uint64_t private_bytes;      /* of all processes */
    uint64_t shared_bytes;       /* of segments, each page once */
    uint64_t max_bytes;          /* ringmqMemoryMax; set once */
};

/* engine: how read workers wait for sockets, and flush for the disk (engine/engine.h). */
#define RMQ_ENGINE_IO_URING 0
#define RMQ_ENGINE_EPOLL 1
#define RMQ_ENGINE_WHY_MAX 512 /* one sentence */

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
    uint64_t memory_window_bytes;      /* 40 % of RAM: bytes that count as in memory */
    uint32_t engine;                   /* RMQ_ENGINE_*: of read workers and flush */
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
    uint32_t engine_is_fallback;       /* 1: ringmqEngine = auto, and io_uring is refused */
    uint32_t slave_read_enable;
    uint32_t reassembly_bytes_max;     /* frame blocks per reader arena */
    uint32_t receive_buffer_bytes;     /* one provided buffer */
    uint32_t receive_buffer_count;     /* power of two */
    uint32_t connections_max;          /* per reader */
    uint32_t partial_frame_timeout_ms; /* a frame that stays incomplete longer closes its connection */
    uint32_t send_queue_bytes_max;     /* per connection: a client that never reads is closed beyond it */
    uint32_t send_stall_timeout_ms;
    uint64_t batch_queue_file_bytes;   /* mapperFileSizeBatchConsumeQueue, multiple of 46 */
    uint32_t reserved1;
    uint32_t sync_replication;         /* 1: a send without WAIT=false waits for replicated_offset */
    uint32_t slave_timeout_ms;         /* slaveTimeout */
    uint32_t ha_transfer_bytes;        /* haTransferBatchSize, at most 32768 */
    uint64_t ha_window_bytes;          /* sent and not reported, per slave */
    uint64_t ha_bytes_per_second;      /* maxHaTransferByteInSecond with haFlowControlEnable, else 0 */
    uint32_t ha_heartbeat_ms;          /* haSendHeartbeatInterval */
    uint32_t ha_housekeeping_ms;       /* haHousekeepingInterval */
    uint32_t offset_check_in_slave;    /* a slave corrects offsets that are outside its queues */
    uint32_t slow_request_ms;          /* slower sends are reported to control; 0 = none */
    uint32_t answer_bytes_max;         /* memory of answers that wait, of all connections of a reader */
    uint32_t host_connections_max;     /* of one host, per reader */
    uint32_t property_filter_enable;   /* enablePropertyFilter: pulls may filter by SQL92 */
    uint32_t filter_support_retry;     /* records of retry topics are filtered as those of their original topics */
    char engine_why[RMQ_ENGINE_WHY_MAX];
    char broker_name[128];             /* brokerName, in recall handles */
    uint32_t log_level;                /* logLevel: lowest level of log lines, a number of Python's logging; live */
    uint32_t log_json;                 /* logFormat: 1 = json */
    uint32_t held_polls_max;           /* per reader, at most RMQ_HELD_SLOTS */
    uint32_t held_connection_polls_max; /* of one connection */
    uint32_t held_bytes_max;           /* of their asks and answers, per reader */
    uint32_t config_version;           /* +1 when the whole configuration was replaced (broker/live_settings.py) */
    uint8_t reserved[32];
};
/* cdef-end */

#endif
