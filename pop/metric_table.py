"""Metrics of POP."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, GAUGE, HISTOGRAM, Metric

METRICS = (
    Metric("rocketmq_pop_checkpoint_buffer_size", GAUGE, "Entries of open and revived messages, one for each pop"),
    Metric(
        "rocketmq_pop_revive_lag_milliseconds", GAUGE, "Messages whose time is over, and that have no copy",
        ("queue_id",),
    ),
    Metric(
        "rocketmq_pop_revive_latency_milliseconds", GAUGE, "Time since the oldest of them should have come again",
        ("queue_id",),
    ),
    Metric(
        "rocketmq_pop_revive_retry_messages_total", COUNTER, "Copies in topics of retries, ever",
        ("consumer_group", "put_status", "topic"),
    ),
    Metric("ringmq_pop_requests_total", COUNTER, "Answered pops, by what they found", ("result",)),
    Metric("ringmq_pop_notifications_total", COUNTER, "Answered notifications, by what they found", ("result",)),
    Metric("ringmq_pop_messages_total", COUNTER, "Messages that pops have given"),
    Metric("ringmq_pop_acks_total", COUNTER, "Acknowledged messages, by their effect", ("result",)),
    Metric("ringmq_pop_changes_total", COUNTER, "Messages whose invisible time was changed"),
    Metric("ringmq_pop_unsent_total", COUNTER, "Pops of single queues that no client has received"),
    Metric("ringmq_pop_unreadable_total", COUNTER, "Looks at queues that could not be read then"),
    Metric("ringmq_pop_revived_total", COUNTER, "Messages whose time was over, by what became of them", ("result",)),
    Metric("ringmq_pop_open_messages", GAUGE, "Messages that consumers hold, or that wait to be given again"),
    Metric("ringmq_pop_entries", GAUGE, "Entries of open and revived messages"),
    Metric("ringmq_pop_entries_max", GAUGE, "Bound of entries (ringmqPopOpenMax)"),
    Metric("ringmq_pop_windows", GAUGE, "Pairs of a group and a queue"),
    Metric("ringmq_pop_windows_max", GAUGE, "Bound of these pairs (ringmqOffsetsMax)"),
    Metric("ringmq_pop_polls", GAUGE, "Pops that wait for a message"),
    Metric("ringmq_pop_polls_max", GAUGE, "Bound of pops that wait (maxPopPollingSize)"),
    Metric("ringmq_pop_oldest_open_seconds", GAUGE, "Time since the pop of the oldest open message"),
    Metric("ringmq_pop_acked_seconds", HISTOGRAM, "Time from the pop of a message to its acknowledgement"),
    Metric("ringmq_pop_unsaved_seconds", GAUGE, "Age of the oldest change that the image of POP lacks"),
    Metric("ringmq_pop_snapshot_fault", GAUGE, "1: no snapshot is written for this cause", ("cause",)),
    Metric("ringmq_pop_reviving", GAUGE, "Entries whose messages wait for a copy, or for its flush"),
)  # fmt: skip
"""Without the worker `pop` since the start of the broker, all are 0."""
