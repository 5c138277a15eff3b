"""Metrics of messages that consumers send back."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, Metric

METRICS = (Metric("ringmq_send_backs_gone_total", COUNTER, "Messages sent back after retention had deleted them"),)
