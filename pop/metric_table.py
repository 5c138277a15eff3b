"""Metrics of POP."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, GAUGE, Metric

METRICS = (
    Metric("ringmq_pop_requests_total", COUNTER, "Answered pops, by what they found", ("result",)),
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
    Metric("ringmq_pop_reviving", GAUGE, "Entries whose messages wait for a copy, or for its flush"),
)
"""Without the worker `pop` since the start of the broker, all are 0."""
