"""Every metric of the broker: name, kind, help and labels. A test compares docs/monitoring.md with this table.

Names beginning with rocketmq_ are those of the Prometheus exporter of a stock 5.3.3 broker, with its labels. They count
the same events, unless the help says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `labels` are added to the labels of every series."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def markdown_rows() -> list[str]:
    """The table of docs/monitoring.md, without its head."""
    return [
        f"| {metric.name} | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |" for metric in METRICS.values()
    ]


_TOPIC = ("is_system", "message_type", "topic")
_LAG = ("consumer_group", "is_retry", "is_system", "topic")
_OUT = ("consumer_group", "is_system", "topic")
_STORAGE = ("storage_medium", "storage_type")

METRICS = {
    metric.name: metric
    for metric in (
        # RocketMQ's
        Metric("rocketmq_broker_permission", GAUGE, "Permission of the broker: 4 read, 2 write"),
        Metric("rocketmq_topic_number", GAUGE, "Topics"),
        Metric("rocketmq_consumer_group_number", GAUGE, "Consumer groups"),
        Metric("rocketmq_processor_watermark", GAUGE, "Requests that wait for the write worker", ("processor",)),
        Metric("rocketmq_messages_in_total", COUNTER, "Messages of the topic since it was made", _TOPIC),
        Metric("rocketmq_throughput_in_total", COUNTER, "Bytes stored since the broker's start", _TOPIC),
        Metric("rocketmq_message_size", HISTOGRAM, "Bytes a message takes in the log, since the start", _TOPIC),
        Metric("rocketmq_messages_out_total", COUNTER, "Messages that the group has pulled since the start", _OUT),
        Metric("rocketmq_throughput_out_total", COUNTER, "Bytes that the group has pulled since the start", _OUT),
        Metric("rocketmq_producer_connections", GAUGE, "Connected producers", ("language", "protocol_type", "version")),
        Metric(
            "rocketmq_consumer_connections",
            GAUGE,
            "Connected consumers",
            ("consume_mode", "consumer_group", "is_system", "language", "protocol_type", "version"),
        ),
        Metric("rocketmq_consumer_lag_messages", GAUGE, "Messages that the group has not consumed", _LAG),
        Metric("rocketmq_consumer_lag_latency_milliseconds", GAUGE, "Age of the oldest of them", _LAG),
        Metric("rocketmq_consumer_inflight_messages", GAUGE, "Messages pulled and not consumed", _LAG),
        Metric("rocketmq_consumer_ready_messages", GAUGE, "Messages not pulled", _LAG),
        Metric("rocketmq_consumer_queueing_latency_milliseconds", GAUGE, "Age of the oldest not pulled", _LAG),
        Metric("rocketmq_storage_size_bytes", GAUGE, "Used bytes of the fuller file system of log and store", _STORAGE),
        Metric("rocketmq_storage_flush_behind_bytes", GAUGE, "Appended and not flushed", _STORAGE),
        Metric("rocketmq_storage_dispatch_behind_bytes", GAUGE, "Readable and not dispatched", _STORAGE),
        Metric("rocketmq_storage_message_reserve_time_milliseconds", GAUGE, "Age of the oldest message", _STORAGE),
        # RingMQ's own: requests
        Metric(
            "ringmq_request_seconds",
            HISTOGRAM,
            "Time of sends since they were received until the stage was reached; stages control and services: requests "
            "that these workers answer",
            ("stage",),
        ),
        Metric("ringmq_slow_requests_untold_total", COUNTER, "Slow requests that got no line in the log"),
        Metric("ringmq_junk_untold_total", COUNTER, "Connections closed for junk that got no line in the log"),
        Metric("ringmq_connections", GAUGE, "Open connections", ("worker",)),
        Metric("ringmq_connections_accepted_total", COUNTER, "Connections accepted", ("worker",)),
        Metric("ringmq_connections_closed_total", COUNTER, "Connections closed, by reason", ("reason", "worker")),
        Metric("ringmq_frames_total", COUNTER, "Requests and responses received", ("worker",)),
        Metric("ringmq_received_bytes_total", COUNTER, "Bytes received from clients", ("worker",)),
        Metric("ringmq_sent_bytes_total", COUNTER, "Bytes sent to clients", ("worker",)),
        Metric("ringmq_pulls_total", COUNTER, "Pulls answered or held", ("worker",)),
        Metric(
            "ringmq_pulls_uncounted_total", COUNTER, "Pulls of groups and queues beyond those whose pulls are counted"
        ),
        Metric("ringmq_pulls_held", GAUGE, "Pulls that wait for messages", ("worker",)),
        Metric("ringmq_control_requests_total", COUNTER, "Requests handed to control", ("worker",)),
        Metric("ringmq_busy_answers_total", COUNTER, "Requests refused because of too many under way", ("worker",)),
        Metric("ringmq_requests_refused_total", COUNTER, "Requests refused for their sender (access.md)", ("class",)),
        Metric("ringmq_receive_stalls_total", COUNTER, "Times a connection had to wait for room", ("worker",)),
        Metric("ringmq_receive_buffers_free", GAUGE, "Receive buffers that are free", ("worker",)),
        Metric("ringmq_frame_memory_free_bytes", GAUGE, "Free memory for frames under way", ("worker",)),
        Metric("ringmq_answers_waiting_bytes", GAUGE, "Memory of answers that wait to be sent", ("worker",)),
        Metric("ringmq_client_memory_bytes", GAUGE, "Memory for clients beside the arena", ("worker",)),
        # the log
        Metric("ringmq_log_offset_bytes", GAUGE, "Positions in the commit log", ("mark",)),
        Metric("ringmq_write_batches_total", COUNTER, "Batches committed to the log"),
        Metric("ringmq_write_requests_total", COUNTER, "Sends taken by the write worker"),
        Metric("ringmq_write_refused_total", COUNTER, "Sends refused by the write worker"),
        Metric("ringmq_write_segment_waits_total", COUNTER, "Times the next log file was not there yet"),
        Metric("ringmq_write_dispatch_waits_total", COUNTER, "Batches that waited because dispatch was 64 MiB behind"),
        Metric("ringmq_flush_syncs_total", COUNTER, "Syncs of the commit log"),
        Metric("ringmq_flush_sync_seconds_total", COUNTER, "Time spent in them"),
        Metric("ringmq_flush_timeouts_total", COUNTER, "Sends answered FLUSH_DISK_TIMEOUT"),
        Metric("ringmq_dispatch_records_total", COUNTER, "Records dispatched to queues and index"),
        Metric("ringmq_dispatch_bad_records_total", COUNTER, "Records left out because they are damaged"),
        Metric("ringmq_records_not_indexed_total", COUNTER, "Whole records left out because a value is impossible"),
        Metric("ringmq_store_fault", GAUGE, "1: writes are refused for this cause", ("cause",)),
        Metric(
            "ringmq_disk_bytes",
            GAUGE,
            "The same file system; total is what is used or available, as retention counts",
            ("state",),
        ),
        Metric("ringmq_requests_waiting", GAUGE, "Requests between workers: for write, parked for answers", ("ring",)),
        Metric("ringmq_table_entries", GAUGE, "Places taken in the shared table, since the broker's start", ("table",)),
        Metric("ringmq_table_capacity", GAUGE, "Places of the shared table", ("table",)),
        Metric("ringmq_control_entries", GAUGE, "Entries that clients make control keep, by kind", ("kind",)),
        Metric("ringmq_control_capacity", GAUGE, "The limit of it, by kind", ("kind",)),
        # replication
        Metric("ringmq_replication_policy_info", GAUGE, "1, with the policy as labels", ("level", "replicas", "role")),
        Metric("ringmq_replication_wanted_replicas", GAUGE, "Replicas that the policy wants, this broker counted"),
        Metric("ringmq_replication_in_sync_replicas", GAUGE, "Replicas in sync, this broker counted"),
        Metric("ringmq_replication_state", GAUGE, "0 ok, 11 too few slaves connected, 12 slaves silent"),
        Metric("ringmq_replication_degraded_total", COUNTER, "Times the policy was lowered"),
        Metric("ringmq_ha_refused_total", COUNTER, "Slaves and replication connections refused", ("reason",)),
        Metric("ringmq_write_held", GAUGE, "1: sends wait for an operator's choice (ringmq ha status)"),
        Metric("ringmq_slave_lag_bytes", GAUGE, "Appended here and not reported by the slave", ("broker_id", "slave")),
        Metric("ringmq_slave_lag_seconds", GAUGE, "Since the slave had everything", ("broker_id", "slave")),
        Metric("ringmq_slave_in_sync", GAUGE, "1: the slave counts as in sync", ("broker_id", "slave")),
        Metric("ringmq_slave_bytes_per_second", GAUGE, "Sent to the slave", ("broker_id", "slave")),
        Metric("ringmq_master_connected", GAUGE, "On a slave: 1 while its master sends"),
        Metric("ringmq_master_lag_bytes", GAUGE, "On a slave: what the master has more"),
        # the process
        Metric("ringmq_ready", GAUGE, "1: /ready says yes"),
        Metric("ringmq_writable", GAUGE, "1: sends are taken"),
        Metric("ringmq_name_server_registered", GAUGE, "1: the name server answers and knows us", ("address",)),
        Metric("ringmq_name_server_requests_refused_total", COUNTER, "With ringmq serve: refused for their sender"),
        Metric("ringmq_name_server_disputes_total", COUNTER, "With ringmq serve: a live broker's name and id again"),
        Metric("ringmq_name_server_left_out_total", COUNTER, "With ringmq serve: entries over a bound (limits.md)"),
        Metric(
            "ringmq_name_server_duplicate_broker", GAUGE, "1: another broker has our name and id there", ("address",)
        ),
        Metric("ringmq_worker_up", GAUGE, "1: the worker runs", ("worker",)),
        Metric("ringmq_worker_starts_total", COUNTER, "Starts of the worker", ("worker",)),
        Metric("ringmq_worker_deaths_total", COUNTER, "Ends of the worker that nothing asked for", ("worker",)),
        Metric(
            "ringmq_worker_impossible_states_total", COUNTER, "Of these ends, at a state that cannot be", ("worker",)
        ),
        Metric("ringmq_worker_silent_seconds", GAUGE, "Since the worker's loop was seen to turn", ("worker",)),
        Metric("ringmq_worker_cpu_seconds_total", COUNTER, "Processor time of the running process", ("worker",)),
        Metric("ringmq_worker_resident_bytes", GAUGE, "Resident memory, shared pages included", ("worker",)),
        Metric("ringmq_memory_bytes", GAUGE, "Memory of all processes: private pages, shared pages once", ("kind",)),
        Metric("ringmq_memory_max_bytes", GAUGE, "ringmqMemoryMax"),
        Metric("ringmq_memory_level", GAUGE, "0 below, 1 near ringmqMemoryMax (new clients are refused), 2 at it"),
        Metric(
            "ringmq_open_doors",
            GAUGE,
            "1: every network may use the listener, the property is empty",
            ("listener", "property"),
        ),
        Metric("ringmq_http_connections", GAUGE, "Open connections to the port of /metrics"),
        Metric(
            "ringmq_http_connections_accepted_total", COUNTER, "Connections to the port of /metrics that were accepted"
        ),
        Metric("ringmq_http_connections_closed_total", COUNTER, "Connections to it that ended, by reason", ("reason",)),
        Metric("ringmq_scrape_seconds", GAUGE, "Time that the last scrape took, but for writing its text"),
        Metric("ringmq_series", GAUGE, "Series of this scrape"),
        Metric(
            "ringmq_series_left_out",
            GAUGE,
            "Series beyond metricsOtelCardinalityLimit, or what is counted",
            ("metric",),
        ),
    )
}
