"""Metrics of delay levels."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, GAUGE, Metric

METRICS = (
    Metric("ringmq_delayed_messages", GAUGE, "Messages that wait for their time of delivery", ("level",)),
    Metric("ringmq_delay_overdue_seconds", GAUGE, "Time since the oldest of them was due", ("level",)),
    Metric("ringmq_delay_delivered_total", COUNTER, "Delayed messages published since the start"),
    Metric("ringmq_delay_skipped_total", COUNTER, "Delayed messages skipped: no target, or deleted by retention"),
)
