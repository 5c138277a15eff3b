"""Metrics of replies."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, Metric

METRICS = (
    Metric("ringmq_replies_delivered_total", COUNTER, "Replies that their requesters have taken"),
    Metric("ringmq_replies_failed_total", COUNTER, "Replies that did not reach their requesters"),
    Metric("ringmq_replies_unstored_total", COUNTER, "Replies that write has refused to store"),
)
