"""The broker's configuration: one table of properties under RocketMQ's names.

Names without a counterpart in RocketMQ begin with `ringmq`. A property of RocketMQ that is not in this table is known
(`stock_names`) but has no effect here. `sources` has the sources of values.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

from ringmq.broker.config.property_types import (
    Property,
    Value,
    choice,
    network_list,
    number,
    step_number,
    switch,
    words,
)
from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES

__all__ = ["RETENTION", "BrokerConfig", "ConfigError", "nearest_name", "property_table"]

_NAME = r"[%|a-zA-Z0-9_.-]{1,127}"
_NAME_RULE = "1..127 characters of letters, digits, %, |, _, - and ."
_ADDRESSES = r"(\S+:\d{1,5}(;\S+:\d{1,5})*)?"
_HOURS = r"([01]?\d|2[0-3])(;([01]?\d|2[0-3])){0,47}"
_HOST = r"[^\s;/]{0,255}"
_DAY_MS = 86_400_000
_INT32 = 2_147_483_647
NAME_CHARS_MAX = 128
"""The longest name that is compared with the known names."""
_LATER = "not built yet"
_REPLICAS_MAX = 17
"""The master and the slaves that fit into the plane (RMQ_HA_PEERS_MAX)."""
_ROOM = r"[^\s;=/]{1,31}"
_REPLICA = r"[^\s;=/]{1,255}"
_REPLICAS = rf"({_REPLICA}(;{_REPLICA})*)?"
_REPLICA_ROOMS = rf"({_REPLICA}={_ROOM}(;{_REPLICA}={_ROOM})*)?"
RETENTION = frozenset(
    {
        "cleanFileForciblyEnable", "deleteFileBatchMax", "deleteWhen", "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio", "fileReservedTime",
    }
)  # fmt: skip
"""Properties that decide which log files are deleted. A peer that could change them could empty the store."""
_WHICH = "a slave is named by its brokerId or its address"
_BY_ROLE = "empty = by brokerRole"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Every property in use, typed. Times in the unit of the property's name, sizes in bytes."""

    # identity
    broker_cluster_name: str = words("brokerClusterName", "DefaultCluster", _NAME, _NAME_RULE)
    broker_name: str = words("brokerName", "broker-a", _NAME, _NAME_RULE)
    broker_id: int = number("brokerId", 0, 0, (1 << 63) - 1)
    """0 = the master of its group."""
    broker_role: str = choice("brokerRole", "ASYNC_MASTER", ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))
    broker_ip1: str = words("brokerIP1", "", _HOST, "an address or host name, empty = detected")
    broker_ip2: str = words("brokerIP2", "", _HOST, "an address or host name, empty = brokerIP1")
    bind_address: str = words("bindAddress", "127.0.0.1", _HOST, "an address")
    listen_port: int = number("listenPort", 10911, 0, 65535)
    ha_listen_port: int = number("haListenPort", 0, 0, 65535, note="0 = listenPort + 1")
    namesrv_addr: str = words("namesrvAddr", "", _ADDRESSES, "host:port, several joined by ;")
    region_id: str = words("regionId", "DefaultRegion", r"[^\x00-\x20]{1,64}", "1..64 characters without blanks")
    trace_on: bool = switch("traceOn", True)
    broker_permission: int = number("brokerPermission", 6, 0, 7, live=True)

    # access lists
    admin_addresses: str = network_list("adminAddresses", "empty = every client may change topics, groups and settings")
    ha_allowed_networks: str = network_list("haAllowedNetworks", "empty = every peer may connect")
    http_allowed_networks: str = network_list("httpAllowedNetworks", "empty = every client may connect")

    # topics and groups
    auto_create_topic_enable: bool = switch("autoCreateTopicEnable", True, live=True)
    default_topic_queue_nums: int = number("defaultTopicQueueNums", 8, 1, 65535)
    cluster_topic_enable: bool = switch("clusterTopicEnable", True)
    broker_topic_enable: bool = switch("brokerTopicEnable", True)
    trace_topic_enable: bool = switch("traceTopicEnable", False)
    msg_trace_topic_name: str = words("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", _NAME, _NAME_RULE)
    enable_mixed_message_type: bool = switch("enableMixedMessageType", False, live=True)
    validate_system_topic_when_update_topic: bool = switch("validateSystemTopicWhenUpdateTopic", True, live=True)
    clear_retry_topic_when_delete_topic: bool = switch("clearRetryTopicWhenDeleteTopic", True, live=True)
    auto_create_subscription_group: bool = switch("autoCreateSubscriptionGroup", True, live=True)
    notify_consumer_ids_changed_enable: bool = switch("notifyConsumerIdsChangedEnable", True, live=True)

    # assignment of queues
    default_message_request_mode: str = choice("defaultMessageRequestMode", "PULL", ("PULL", "POP"))
    """The mode of consumers for which no operator has set one."""
    default_pop_share_queue_num: int = number("defaultPopShareQueueNum", -1, -_INT32 - 1, _INT32, live=True)
    """Members whose queues a member of POP shares by default. 0 or less = all queues."""
    server_load_balancer_enable: bool = switch("serverLoadBalancerEnable", True, live=True)
    """False: each consumer that asks for its queues gets all of them."""
    load_balance_poll_name_server_interval: int = number(
        "loadBalancePollNameServerInterval", 30_000, 1000, _DAY_MS, live=True
    )

    # sends and pulls
    start_accept_send_request_time_stamp: int = number("startAcceptSendRequestTimeStamp", 0, 0, 1 << 62, live=True)
    long_polling_enable: bool = switch("longPollingEnable", True, live=True)
    short_polling_time_mills: int = number("shortPollingTimeMills", 1000, 1, _DAY_MS, live=True)
    lite_pull_message_enable: bool = switch("litePullMessageEnable", True, live=True)
    slave_read_enable: bool = switch("slaveReadEnable", False, live=True)
    offset_check_in_slave: bool = switch("offsetCheckInSlave", False, live=True)
    enable_property_filter: bool = switch("enablePropertyFilter", False, live=True)
    filter_support_retry: bool = switch("filterSupportRetry", False, live=True)
    transaction_time_out: int = number("transactionTimeOut", 6000, 0, 86_400_000, live=True)
    transaction_check_interval: int = number("transactionCheckInterval", 30_000, 100, 86_400_000, live=True)
    transaction_check_max: int = number("transactionCheckMax", 15, 1, 65_535, live=True)
    transaction_op_msg_max_size: int = number("transactionOpMsgMaxSize", 4096, 20, 4096, live=True)
    transaction_op_batch_interval: int = number("transactionOpBatchInterval", 3000, 0, 86_400_000, live=True)
    reject_transaction_message: bool = switch("rejectTransactionMessage", False, live=True)
    max_transfer_bytes_on_message_in_memory: int = number(
        "maxTransferBytesOnMessageInMemory", 262_144, 1, 16_777_216, live=True
    )
    max_transfer_count_on_message_in_memory: int = number("maxTransferCountOnMessageInMemory", 32, 1, 1024, live=True)
    max_transfer_bytes_on_message_in_disk: int = number(
        "maxTransferBytesOnMessageInDisk", 65_536, 1, 16_777_216, live=True
    )
    max_transfer_count_on_message_in_disk: int = number("maxTransferCountOnMessageInDisk", 8, 1, 1024, live=True)
    access_message_in_memory_max_ratio: int = number("accessMessageInMemoryMaxRatio", 40, 1, 100)
    default_query_max_num: int = number("defaultQueryMaxNum", 32, 1, 1024, live=True)
    max_msgs_num_batch: int = number("maxMsgsNumBatch", 64, 1, 1024, live=True)
    message_delay_level: str = words(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        r"\d{1,9}[smhd]( \d{1,9}[smhd]){0,49}",
        "1..50 times such as 10s 5m 2h 1d",
    )

    store_reply_message_enable: bool = switch("storeReplyMessageEnable", True, live=True)
    enable_schedule_async_deliver: bool = switch("enableScheduleAsyncDeliver", False, live=True)

    # timers
    timer_wheel_enable: bool = switch("timerWheelEnable", True, live=True)
    timer_max_delay_sec: int = number("timerMaxDelaySec", 259_200, 1, (1 << 31) - 1, live=True)
    timer_precision_ms: int = step_number("timerPrecisionMs", 1000, (100, 200, 500, 1000))
    recall_message_enable: bool = switch("recallMessageEnable", False, live=True)
    allow_recall_when_broker_not_writeable: bool = switch("allowRecallWhenBrokerNotWriteable", True, live=True)
    timer_congest_num_each_slot: int = number("timerCongestNumEachSlot", (1 << 31) - 1, 0, (1 << 31) - 1, live=True)
    timer_roll_window_slot: int = number("timerRollWindowSlot", 172_800, 2, 604_740)
    timer_stop_enqueue: bool = switch("timerStopEnqueue", False, live=True)
    timer_stop_dequeue: bool = switch("timerStopDequeue", False, live=True)
    timer_skip_unknown_error: bool = switch("timerSkipUnknownError", False, live=True)
    timer_enable_retry_until_success: bool = switch("timerEnableRetryUntilSuccess", False, live=True)
    timer_flush_interval_ms: int = number("timerFlushIntervalMs", 1000, 10, 60_000, live=True)
    mapped_file_size_timer_log: int = number("mappedFileSizeTimerLog", 104_857_600, 4096, (1 << 31) - 1)

    # POP
    revive_queue_num: int = number("reviveQueueNum", 8, 1, 998)
    """Numbers of revive queues in receipts go round below it. 999 stands for an orderly pop."""
    enable_retry_topic_v2: bool = switch("enableRetryTopicV2", False, live=True)
    retrieve_message_from_pop_retry_topic_v1: bool = switch("retrieveMessageFromPopRetryTopicV1", True, live=True)
    pop_from_retry_probability: int = number("popFromRetryProbability", 20, 0, 100, live=True)
    pop_response_return_actual_retry_topic: bool = switch("popResponseReturnActualRetryTopic", False, live=True)
    init_pop_offset_by_check_msg_in_mem: bool = switch("initPopOffsetByCheckMsgInMem", True, live=True)
    enable_pop_message_threshold: bool = switch("enablePopMessageThreshold", False, live=True)
    pop_inflight_message_threshold: int = number("popInflightMessageThreshold", 10_000, 0, _INT32, live=True)
    """Open messages of a group in one queue beyond which nothing more of it is given."""
    pop_polling_size: int = number("popPollingSize", 1024, 0, _INT32, live=True)
    """Pops of a topic, a group and a queue that wait for a message. One more does, too."""
    pop_polling_map_size: int = number("popPollingMapSize", 100_000, 0, _INT32, live=True)
    """Such triples for which pops wait."""
    max_pop_polling_size: int = number("maxPopPollingSize", 100_000, 0, _INT32, live=True)
    """Pops that wait, all of them. Notifications have the same three limits, and count apart."""
    pop_open_max: int = number("ringmqPopOpenMax", 4_194_304, 4096, 67_108_864)
    """Entries of all groups. An entry holds up to 64 messages of one pop."""
    pop_revive_grace_ms: int = number("ringmqPopReviveGraceMs", 0, 0, 60_000, live=True)
    """Time behind the invisible time until a message is given again. An acknowledgement still counts then."""
    pop_dead_letter: bool = switch("ringmqPopDeadLetter", False, live=True)
    """True: a message that has come again retryMaxTimes times goes to the dead letters of its group."""
    pop_export_at_stop: bool = switch("ringmqPopExportAtStop", True, live=True)
    """True: a clean stop writes open messages into the log, where a RocketMQ broker finds them."""
    pop_consumer_kv_service_enable: bool = switch(
        "popConsumerKVServiceEnable", False, only=False, why="open messages in RocksDB are " + _LATER
    )

    # clients
    channel_expired_timeout: int = number("channelExpiredTimeout", 120_000, 1000, _DAY_MS, live=True)
    server_channel_max_idle_time_seconds: int = number("serverChannelMaxIdleTimeSeconds", 120, 1, 86_400)
    flush_consumer_offset_interval: int = number("flushConsumerOffsetInterval", 5000, 10, _DAY_MS, live=True)
    config_black_list: str = words(
        "configBlackList", "configBlackList;brokerConfigPath", r"[\w;]*", "property names joined by ;"
    )

    heartbeat_groups_max: int = number("ringmqHeartbeatGroupsMax", 1000, 1, 65_536, live=True)
    """Consumer and producer groups of one heartbeat."""
    heartbeat_subscriptions_max: int = number("ringmqHeartbeatSubscriptionsMax", 4096, 1, 1_048_576, live=True)
    """Subscriptions of one heartbeat, over all of its groups."""
    producer_groups_max: int = number("ringmqProducerGroupsMax", 65_536, 1, 16_777_216, live=True)
    memberships_max: int = number("ringmqMembershipsMax", 524_288, 1, 67_108_864, live=True)
    """Pairs of a connection and a group that its heartbeats name, consumers and producers."""
    locks_max: int = number("ringmqLocksMax", 131_072, 1, 16_777_216, live=True)
    client_locks_max: int = number("ringmqClientLocksMax", 16_384, 1, 16_777_216, live=True)
    open_halves_max: int = number("ringmqOpenHalvesMax", 4_000_000, 1, 16_777_216, live=True)
    host_open_halves_max: int = number("ringmqHostOpenHalvesMax", 1_000_000, 1, 16_777_216, live=True)
    group_open_halves_max: int = number("ringmqGroupOpenHalvesMax", 2_000_000, 1, 16_777_216, live=True)
    """More than the share of a host: else one host could fill the share of any group, whose name it may use."""

    # name servers
    register_name_server_period: int = number("registerNameServerPeriod", 30_000, 10_000, 60_000, live=True)
    enable_single_topic_register: bool = switch("enableSingleTopicRegister", True, live=True)
    """True if a changed topic is registered alone (217), else with the whole table (103)."""
    register_broker_timeout_mills: int = number("registerBrokerTimeoutMills", 24_000, 100, 600_000, live=True)

    # store: places and sizes
    store_path_root_dir: str = words(
        "storePathRootDir", "", r"[^\x00]{0,900}", "a folder, empty = the embedded default"
    )
    store_path_commit_log: str = words(
        "storePathCommitLog",
        "",
        r"[^\x00,]{0,900}",
        "one folder (several are not built yet), empty = commitlog in storePathRootDir",
    )
    mapped_file_size_commit_log: int = number(
        "mappedFileSizeCommitLog", 1_073_741_824, 65_536, 2_147_479_552, step=4096
    )
    mapped_file_size_consume_queue: int = number("mappedFileSizeConsumeQueue", 6_000_000, 20, 1_200_000_000, step=20)
    mapper_file_size_batch_consume_queue: int = number(
        "mapperFileSizeBatchConsumeQueue", 13_800_000, 46, 1_380_000_000, step=46
    )
    accept_unserved: bool = switch("ringmqAcceptUnserved", False)
    """Start on a stock broker's store with pending work that RingMQ does not serve yet, and leave that work alone."""
    max_message_size: int = number("maxMessageSize", 4_194_304, 1, 16_000_000)
    message_index_enable: bool = switch("messageIndexEnable", True)
    max_hash_slot_num: int = number("maxHashSlotNum", 5_000_000, 1, 100_000_000)
    max_index_num: int = number("maxIndexNum", 20_000_000, 2, 100_000_000)

    # store: durability
    flush_disk_type: str = choice("flushDiskType", "ASYNC_FLUSH", ("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync_flush_timeout: int = number("syncFlushTimeout", 5000, 1, 3_600_000, live=True)
    flush_interval_commit_log: int = number("flushIntervalCommitLog", 500, 1, _DAY_MS, live=True)
    flush_commit_log_least_pages: int = number("flushCommitLogLeastPages", 4, 0, 262_144, live=True)
    flush_commit_log_thorough_interval: int = number("flushCommitLogThoroughInterval", 10_000, 1, _DAY_MS, live=True)
    message_index_safe: bool = switch("messageIndexSafe", False)
    check_crc_on_recover: bool = switch("checkCRCOnRecover", True)
    enable_dleger_commit_log: bool = switch("enableDLegerCommitLog", False, only=False, why="DLedger is " + _LATER)

    # replication: the link
    ha_master_address: str = words(
        "haMasterAddress", "", r"(\S+:\d{1,5})?", "host:port, empty = as registered at the name servers"
    )
    ha_send_heartbeat_interval: int = number("haSendHeartbeatInterval", 5000, 1, _DAY_MS)
    ha_housekeeping_interval: int = number("haHousekeepingInterval", 20_000, 2, _DAY_MS)
    ha_transfer_batch_size: int = number("haTransferBatchSize", 32_768, 1, 32_768)
    ha_flow_control_enable: bool = switch("haFlowControlEnable", False)
    max_ha_transfer_byte_in_second: int = number("maxHaTransferByteInSecond", 104_857_600, 4096, 1 << 40)
    ha_start_from_newest_file: bool = switch("haStartFromNewestFile", False)
    """True: an empty slave gets the newest file alone, as in stock. False: everything from the master's minimum offset
    on."""
    ha_divergence_rule: str = choice("haDivergenceRule", "refuse", ("refuse", "adopt", "salvage"))
    ha_start_alone: str = choice("haStartAlone", "", ("", "serve", "hold"))
    """The action of a master on records that a slave's log has beyond the master's."""
    slave_sync_period: int = number("ringmqSlaveSyncPeriod", 10_000, 100, _DAY_MS)
    """Period in ms of a slave's synchronisation of topics, groups, offsets and request modes with its master."""
    ha_window_bytes: int = number("ringmqHaWindowBytes", 16_777_216, 65_536, 1 << 32)
    """Bytes sent to a slave and not reported by it yet."""

    # replication: the policy
    replication_policy: str = choice(
        "replicationPolicy", "", ("none", "handed", "sent", "received", "cached", "flushed"), why=_BY_ROLE
    )
    """The level at which a byte counts as replicated."""
    replica_policy: str = choice("replicaPolicy", "", ("none", "one", "majority", "all", "rooms"), why=_BY_ROLE)
    """The number of replicas that must have a byte."""
    in_sync_replicas: int = number("inSyncReplicas", 1, 1, _REPLICAS_MAX)
    min_in_sync_replicas: int = number("minInSyncReplicas", 1, 1, _REPLICAS_MAX)
    total_replicas: int = number("totalReplicas", 1, 1, _REPLICAS_MAX)
    enable_auto_in_sync_replicas: bool = switch("enableAutoInSyncReplicas", False)
    slave_timeout: int = number("slaveTimeout", 3000, 1, 3_600_000)
    ha_max_gap_not_in_sync: int = number("haMaxGapNotInSync", 268_435_456, 1, _INT32)
    ha_room: str = words("haRoom", "", rf"({_ROOM})?", "1..31 characters without blanks, ;, = and /, empty = none")
    ha_replica_rooms: str = words("haReplicaRooms", "", _REPLICA_ROOMS, f"slave=room, several joined by ; ({_WHICH})")
    ha_allowed_replicas: str = words("haAllowedReplicas", "", _REPLICAS, f"slaves joined by ;, empty = all ({_WHICH})")

    # store: retention
    delete_when: str = words("deleteWhen", "04", _HOURS, "1..48 hours 00..23 joined by ;", live=True)
    file_reserved_time: int = number("fileReservedTime", 72, 1, 1_000_000, live=True)
    disk_max_used_space_ratio: int = number("diskMaxUsedSpaceRatio", 75, 10, 95, live=True)
    disk_space_warning_level_ratio: int = number("diskSpaceWarningLevelRatio", 90, 1, 100, cut=(35, 90), live=True)
    disk_space_clean_forcibly_ratio: int = number("diskSpaceCleanForciblyRatio", 85, 1, 100, cut=(30, 85), live=True)
    clean_file_forcibly_enable: bool = switch("cleanFileForciblyEnable", True, live=True)
    clean_resource_interval: int = number("cleanResourceInterval", 10_000, 10, _DAY_MS)
    delete_file_batch_max: int = number("deleteFileBatchMax", 10, 1, 10_000, live=True)

    # metrics
    metrics_exporter_type: str = choice("metricsExporterType", "PROM", ("PROM", "DISABLE"))
    """PROM costs nothing before the first connection. Stock's default is DISABLE."""
    metrics_prom_exporter_port: int = number("metricsPromExporterPort", 5557, 0, 65535, note="0 = any free")
    metrics_prom_exporter_host: str = words("metricsPromExporterHost", "", _HOST, "an address, empty = bindAddress")
    metrics_label: str = words("metricsLabel", "", r"([a-zA-Z_]\w*:[^:,]*(,|$)){0,32}", "name:value joined by commas")
    metrics_otel_cardinality_limit: int = number("metricsOtelCardinalityLimit", 50_000, 1, 1_000_000)
    """Series of one metric. A histogram counts as one."""
    slow_request_ms: int = number("ringmqSlowRequestMs", 1000, 0, 3_600_000, live=True, note="0 = off")
    """Sends and requests to control that take longer get a log line, a few a second."""

    # log
    log_level: str = choice("logLevel", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"), live=True)
    log_format: str = choice("logFormat", "text", ("text", "json"))

    # features whose absence must not pass silently
    authentication_enabled: bool = switch("authenticationEnabled", False, only=False, why="ACL is " + _LATER)
    authorization_enabled: bool = switch("authorizationEnabled", False, only=False, why="ACL is " + _LATER)
    acl_enable: bool = switch("aclEnable", False, only=False, why="ACL is " + _LATER)
    enable_controller_mode: bool = switch("enableControllerMode", False, only=False, why="the controller is " + _LATER)

    # RingMQ's own
    engine: str = choice("ringmqEngine", "auto", ("auto", "io_uring", "epoll"))
    """Engine of read workers and flush. auto = io_uring, or epoll where io_uring is refused."""
    readers: int = number("ringmqReaders", 0, 0, 16)
    """Number of read workers. 0 = by the number of CPUs."""
    connections_max: int = number("ringmqConnectionsMax", 65_536, 16, 1_048_576)
    """Connections per read worker."""
    host_connections_max: int = number("ringmqHostConnectionsMax", 0, 0, 1_048_576)
    """Connections of one host per read worker. 0 = fifteen sixteenths of ringmqConnectionsMax."""
    receive_buffer_bytes: int = number("ringmqReceiveBufferBytes", 65_536, 4096, 1_048_576, step=4096)
    receive_buffer_count: int = number("ringmqReceiveBufferCount", 256, 16, 32_768)
    reassembly_bytes_max: int = number("ringmqReassemblyBytesMax", 67_108_864, 33_554_432, _INT32)
    """Memory for frames that do not end in their receive buffer, per read worker."""
    partial_frame_timeout_ms: int = number("ringmqPartialFrameTimeoutMs", 30_000, 100, _DAY_MS)
    send_queue_bytes_max: int = number("ringmqSendQueueBytesMax", 33_554_432, 1_048_576, _INT32)
    answer_bytes_max: int = number("ringmqAnswerBytesMax", 134_217_728, 8_388_608, _INT32)
    """Memory of answers that wait to be sent, over all connections. Each read worker has an equal share."""
    held_polls_max: int = number("ringmqHeldPollsMax", 65_536, 0, 65_536)
    """Polls that wait for a service, per read worker."""
    held_connection_polls_max: int = number("ringmqHeldConnectionPollsMax", 16_384, 0, 65_536)
    held_poll_bytes_max: int = number("ringmqHeldPollBytesMax", 67_108_864, 0, _INT32)
    """Memory of their requests and answers, per read worker."""
    send_stall_timeout_ms: int = number("ringmqSendStallTimeoutMs", 30_000, 100, _DAY_MS)
    populate_window_bytes: int = number("ringmqPopulateWindowBytes", 8_388_608, 65_536, 1_073_741_824, step=4096)
    spin_pauses: int = number("ringmqSpinPauses", -1, -1, 1_000_000)
    """Pauses that a worker spins before it parks. -1 = 0 on shared CPUs, else the choice of the placement."""
    memory_max: int = number("ringmqMemoryMax", 0, 0, 1 << 50, note="0 = tables, arenas and 688 MiB")
    """Bytes of all processes: private pages, and each shared page once. Page cache does not count."""
    topics_max: int = number("ringmqTopicsMax", 65_536, 1024, 16_777_216)
    queues_max: int = number("ringmqQueuesMax", 262_144, 4096, 16_777_216)
    groups_max: int = number("ringmqGroupsMax", 65_536, 1024, 16_777_216)
    subscriptions_max: int = number("ringmqSubscriptionsMax", 131_072, 1024, 16_777_216)
    offsets_max: int = number("ringmqOffsetsMax", 524_288, 4096, 67_108_864)

    def as_properties(self) -> dict[str, str]:
        """Every property under its wire name, sorted, as text (GET_BROKER_CONFIG)."""
        table = property_table()
        pairs = ((name, entry.text(getattr(self, attribute))) for name, (attribute, entry) in table.items())
        return dict(sorted(pairs))


class ConfigError(ValueError):
    """A name or value is invalid. `name` is the property's."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@cache
def property_table() -> dict[str, tuple[str, Property]]:
    """Wire name -> (attribute of BrokerConfig, its rules)."""
    table: dict[str, tuple[str, Property]] = {}
    for field in dataclasses.fields(BrokerConfig):
        entry: Property = field.metadata["property"]
        table[entry.name] = (field.name, entry)
    return table


def parse_value(name: str, text: str) -> Value:
    """The value of property `name` from its text. Raises ConfigError, which names the accepted range."""
    _, entry = property_table()[name]
    try:
        return entry.parse(text)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{name} = {text[:200]!r} is impossible; accepted: {entry.accepted}", name) from error


def nearest_name(name: str) -> str | None:
    """The known property name most similar to `name`. None if none is similar."""
    if len(name) > NAME_CHARS_MAX:
        return None
    import difflib  # for errors only

    known = {entry.lower(): entry for entry in (*STOCK_PROPERTY_NAMES, *property_table())}
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[near[0]] if near else None
