"""Every metric of the broker: name, kind, help and labels. A test compares docs/monitoring.md with this table.

Guests have tables of their own (the column `metric_table` of their rows).

Names beginning with rocketmq_ are those of the Prometheus exporter of a stock 5.3.3 broker, with its labels. They count
the same events, unless the help says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringmq.broker.exporter.metric import COUNTER, GAUGE, HISTOGRAM, STORAGE, Metric
from ringmq.ipc.guests import parts


def markdown_rows() -> list[str]:
    """The table of docs/monitoring.md, without its head. The page explains the names of sets of labels."""
    names = {labels: name for name, labels in LABEL_SETS.items()}
    return [
        f"| {metric.name}{f'{{{labels}}}' if (labels := names.get(metric.labels, ','.join(metric.labels))) else ''} "
        f"| {metric.help} |"
        for metric in METRICS.values()
    ]


_TOPIC = ("is_system", "message_type", "topic")
_LAG = ("consumer_group", "is_retry", "is_system", "topic")
_OUT = ("consumer_group", "is_system", "topic")
_PRODUCER = ("language", "protocol_type", "version")
_CONSUMER = ("consume_mode", "consumer_group", "is_system", *_PRODUCER)
LABEL_SETS = {
    "TOPIC": _TOPIC,
    "LAG": _LAG,
    "OUT": _OUT,
    "STORAGE": STORAGE,
    "PRODUCER": _PRODUCER,
    "CONSUMER": _CONSUMER,
}
"""Name in the table of docs/monitoring.md -> labels."""


def _of_guests(prefix: str) -> Iterable[Metric]:
    return (metric for table in parts("metric_table") for metric in table if metric.name.startswith(prefix))


METRICS = {
    metric.name: metric
    for metric in (
        # RocketMQ's
        Metric("rocketmq_broker_permission", GAUGE, "Permission of the broker: 4 read, 2 write"),
        Metric("rocketmq_topic_number", GAUGE, "Topics"),
        Metric("rocketmq_consumer_group_number", GAUGE, "Consumer groups"),
        Metric("rocketmq_processor_watermark", GAUGE, "Requests that wait for the write worker", ("processor",)),
        Metric("rocketmq_messages_in_total", COUNTER, "Messages since the topic was made", _TOPIC),
        Metric("rocketmq_throughput_in_total", COUNTER, "Bytes stored since the broker's start", _TOPIC),
        Metric("rocketmq_message_size", HISTOGRAM, "Bytes of a message in the log, since the start", _TOPIC),
        Metric("rocketmq_messages_out_total", COUNTER, "Messages that the group has got since the start", _OUT),
        Metric("rocketmq_throughput_out_total", COUNTER, "Bytes that the group has got since the start", _OUT),
        Metric("rocketmq_producer_connections", GAUGE, "Connected producers", _PRODUCER),
        Metric("rocketmq_consumer_connections", GAUGE, "Connected consumers", _CONSUMER),
        Metric("rocketmq_consumer_lag_messages", GAUGE, "Messages not consumed by the group", _LAG),
        Metric("rocketmq_consumer_lag_latency_milliseconds", GAUGE, "Age of the oldest message not consumed", _LAG),
        Metric("rocketmq_consumer_inflight_messages", GAUGE, "Messages that the group has got and not consumed", _LAG),
        Metric("rocketmq_consumer_ready_messages", GAUGE, "Messages that the group has not got yet", _LAG),
        Metric("rocketmq_consumer_queueing_latency_milliseconds", GAUGE, "Age of the oldest of these", _LAG),
        Metric("rocketmq_send_to_dlq_messages_total", COUNTER, "Messages in the group's dead letter topic, ever", _OUT),
        *_of_guests("rocketmq_"),
        Metric("rocketmq_storage_size_bytes", GAUGE, "Used bytes of the fuller file system of log and store", STORAGE),
        Metric("rocketmq_storage_flush_behind_bytes", GAUGE, "Bytes appended and not flushed", STORAGE),
        Metric("rocketmq_storage_dispatch_behind_bytes", GAUGE, "Bytes readable and not dispatched", STORAGE),
        Metric("rocketmq_storage_message_reserve_time_milliseconds", GAUGE, "Age of the oldest message", STORAGE),
        # RingMQ's own: requests
        Metric(
            "ringmq_request_seconds",
            HISTOGRAM,
            "Time from receipt to the stage of a send; control, services: all requests",
            ("stage",),
        ),
        Metric("ringmq_slow_requests_unlogged_total", COUNTER, "Slow requests without a log line"),
        Metric("ringmq_slow_requests_untold_total", COUNTER, "Deprecated, use ringmq_slow_requests_unlogged_total"),
        Metric("ringmq_junk_unlogged_total", COUNTER, "Junk connections without a log line"),
        Metric("ringmq_junk_untold_total", COUNTER, "Deprecated, use ringmq_junk_unlogged_total"),
        Metric("ringmq_connections", GAUGE, "Open connections", ("worker",)),
        Metric("ringmq_connections_accepted_total", COUNTER, "Connections accepted", ("worker",)),
        Metric("ringmq_connections_closed_total", COUNTER, "Connections closed", ("reason", "worker")),
        Metric("ringmq_frames_total", COUNTER, "Requests and responses received", ("worker",)),
        Metric("ringmq_received_bytes_total", COUNTER, "Bytes received from clients", ("worker",)),
        Metric("ringmq_sent_bytes_total", COUNTER, "Bytes sent to clients", ("worker",)),
        Metric("ringmq_pulls_total", COUNTER, "Pulls answered or held", ("worker",)),
        Metric("ringmq_pulls_uncounted_total", COUNTER, "Pulls beyond the counted pairs of group and queue"),
        Metric("ringmq_pulls_held", GAUGE, "Pulls that wait for messages", ("worker",)),
        Metric("ringmq_filtered_messages_total", COUNTER, "Messages that SQL92 conditions left out", ("worker",)),
        Metric("ringmq_filter_limited_pulls_total", COUNTER, "Pulls that an SQL92 bound cut short", ("worker",)),
        Metric("ringmq_polls_held", GAUGE, "Polls that wait for an answer of a service", ("worker",)),
        Metric("ringmq_named_messages_total", COUNTER, "Messages of the log in answers of services", ("worker",)),
        Metric("ringmq_answers_unsent_total", COUNTER, "Answers of services that no client received", ("worker",)),
        Metric("ringmq_control_requests_total", COUNTER, "Requests handed to control", ("worker",)),
        Metric("ringmq_busy_answers_total", COUNTER, "Requests refused because of overload", ("worker",)),
        Metric("ringmq_requests_refused_total", COUNTER, "Requests refused by access rules (access.md)", ("class",)),
        Metric("ringmq_receive_stalls_total", COUNTER, "Waits of connections for memory", ("worker",)),
        Metric("ringmq_receive_buffers_free", GAUGE, "Free receive buffers", ("worker",)),
        Metric("ringmq_frame_memory_free_bytes", GAUGE, "Free memory for incomplete frames", ("worker",)),
        Metric("ringmq_answers_waiting_bytes", GAUGE, "Memory of unsent answers", ("worker",)),
        Metric("ringmq_client_memory_bytes", GAUGE, "Memory for clients beside the arena", ("worker",)),
        *_of_guests("ringmq_"),
        # the log
        Metric("ringmq_log_offset_bytes", GAUGE, "Positions in the commit log", ("mark",)),
        Metric("ringmq_write_batches_total", COUNTER, "Batches committed to the log"),
        Metric("ringmq_write_requests_total", COUNTER, "Sends accepted by the write worker"),
        Metric("ringmq_write_refused_total", COUNTER, "Sends refused by the write worker"),
        Metric("ringmq_write_segment_waits_total", COUNTER, "Waits for the next log file"),
        Metric("ringmq_write_dispatch_waits_total", COUNTER, "Waits for dispatch, 64 MiB behind"),
        Metric("ringmq_flush_syncs_total", COUNTER, "Syncs of the commit log"),
        Metric("ringmq_flush_sync_seconds_total", COUNTER, "Time of syncs of the commit log"),
        Metric("ringmq_flush_timeouts_total", COUNTER, "Sends answered FLUSH_DISK_TIMEOUT"),
        Metric("ringmq_dispatch_records_total", COUNTER, "Records dispatched to queues and index"),
        Metric("ringmq_dispatch_bad_records_total", COUNTER, "Damaged records that dispatch skipped"),
        Metric("ringmq_records_not_indexed_total", COUNTER, "Records skipped because of an impossible value"),
        Metric("ringmq_bad_bodies_total", COUNTER, "Records whose body has a wrong CRC, by the finder", ("found_by",)),
        Metric("ringmq_store_fault", GAUGE, "1: writes are refused for this cause", ("cause",)),
        Metric(
            "ringmq_disk_bytes",
            GAUGE,
            "Fuller file system of log and store; total: used and available",
            ("state",),
        ),
        Metric("ringmq_requests_waiting", GAUGE, "Requests between workers", ("ring",)),
        Metric("ringmq_table_entries", GAUGE, "Used entries of the shared table, deleted ones included", ("table",)),
        Metric("ringmq_table_capacity", GAUGE, "Entries of the shared table", ("table",)),
        Metric("ringmq_control_entries", GAUGE, "Entries that control keeps for clients", ("kind",)),
        Metric("ringmq_control_capacity", GAUGE, "Limit of entries that control keeps for clients", ("kind",)),
        # replication
        Metric("ringmq_replication_policy_info", GAUGE, "1; labels: the replica policy", ("level", "replicas", "role")),
        Metric("ringmq_replication_wanted_replicas", GAUGE, "Replicas that the policy needs, this broker included"),
        Metric("ringmq_replication_in_sync_replicas", GAUGE, "Replicas in sync, this broker included"),
        Metric("ringmq_replication_state", GAUGE, "0 ok, 11 too few slaves connected, 12 slaves silent"),
        Metric("ringmq_replication_degraded_total", COUNTER, "Times the policy was lowered"),
        Metric("ringmq_ha_refused_total", COUNTER, "Refused slaves and replication connections", ("reason",)),
        Metric("ringmq_write_held", GAUGE, "1: sends are refused until an operator chooses (ringmq ha status)"),
        Metric("ringmq_slave_lag_bytes", GAUGE, "Bytes appended and not reported by the slave", ("broker_id", "slave")),
        Metric("ringmq_slave_lag_seconds", GAUGE, "Time since the slave had the whole log", ("broker_id", "slave")),
        Metric("ringmq_slave_in_sync", GAUGE, "1: the slave counts as in sync", ("broker_id", "slave")),
        Metric("ringmq_slave_bytes_per_second", GAUGE, "Bytes sent to the slave", ("broker_id", "slave")),
        Metric("ringmq_master_connected", GAUGE, "On a slave: 1 while its master sends"),
        Metric("ringmq_master_lag_bytes", GAUGE, "On a slave: bytes of the master's log not received"),
        # the process
        Metric("ringmq_ready", GAUGE, "1: /ready answers 200"),
        Metric("ringmq_writable", GAUGE, "1: sends are accepted"),
        Metric("ringmq_name_server_registered", GAUGE, "1: the name server answers, lists this broker", ("address",)),
        Metric(
            "ringmq_name_server_requests_refused_total", COUNTER, "With ringmq serve: requests refused by access rules"
        ),
        Metric(
            "ringmq_name_server_disputes_total",
            COUNTER,
            "With ringmq serve: registrations of a live broker's name and id",
        ),
        Metric("ringmq_name_server_left_out_total", COUNTER, "With ringmq serve: entries beyond a bound (limits.md)"),
        Metric(
            "ringmq_name_server_duplicate_broker",
            GAUGE,
            "1: another broker is registered there with this name and id",
            ("address",),
        ),
        Metric("ringmq_worker_up", GAUGE, "1: the worker runs", ("worker",)),
        Metric("ringmq_worker_starts_total", COUNTER, "Starts of the worker", ("worker",)),
        Metric("ringmq_worker_deaths_total", COUNTER, "Unexpected ends of the worker", ("worker",)),
        Metric(
            "ringmq_worker_impossible_states_total", COUNTER, "Ends of the worker by a broken invariant", ("worker",)
        ),
        Metric("ringmq_worker_silent_seconds", GAUGE, "Time since the last turn of the worker's loop", ("worker",)),
        Metric("ringmq_worker_cpu_seconds_total", COUNTER, "Processor time of the running process", ("worker",)),
        Metric("ringmq_worker_resident_bytes", GAUGE, "Resident memory, shared pages included", ("worker",)),
        Metric("ringmq_memory_bytes", GAUGE, "Memory of all processes, shared pages once", ("kind",)),
        Metric("ringmq_memory_max_bytes", GAUGE, "ringmqMemoryMax"),
        Metric("ringmq_memory_level", GAUGE, "0 below, 1 near, 2 at ringmqMemoryMax"),
        Metric(
            "ringmq_engine",
            GAUGE,
            "1: the engine of this broker; fallback = true: io_uring is refused",
            ("engine", "fallback"),
        ),
        Metric(
            "ringmq_open_doors",
            GAUGE,
            "1: every network may use the listener",
            ("listener", "property"),
        ),
        Metric("ringmq_http_connections", GAUGE, "Open connections to the port of /metrics"),
        Metric("ringmq_http_connections_accepted_total", COUNTER, "Connections accepted by the port of /metrics"),
        Metric(
            "ringmq_http_connections_closed_total", COUNTER, "Connections closed by the port of /metrics", ("reason",)
        ),
        Metric("ringmq_scrape_seconds", GAUGE, "Time of the last scrape without writing its text"),
        Metric("ringmq_series", GAUGE, "Series of this scrape"),
        Metric(
            "ringmq_series_left_out",
            GAUGE,
            "Series beyond metricsOtelCardinalityLimit",
            ("metric",),
        ),
    )
}
