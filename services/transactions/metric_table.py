"""Metrics of transactions."""

from __future__ import annotations

from ringmq.broker.exporter.metric import COUNTER, GAUGE, HISTOGRAM, Metric

METRICS = (
    Metric("rocketmq_half_messages", GAUGE, "Half messages whose transactions are open, of all topics"),
    Metric("rocketmq_commit_messages_total", COUNTER, "Transactions committed since the start, of all topics"),
    Metric("rocketmq_rollback_messages_total", COUNTER, "Transactions rolled back since the start, of all topics"),
    Metric("rocketmq_finish_message_latency_milliseconds", HISTOGRAM, "Seconds from a half message to its commit"),
    Metric("ringmq_transaction_checks_total", COUNTER, "Checks of open transactions, by result", ("result",)),
    Metric("ringmq_transactions_expired_total", COUNTER, "Transactions given up after transactionCheckMax checks"),
    Metric("ringmq_transactions_lost_total", COUNTER, "Open transactions whose half message is deleted or damaged"),
)
