"""Replies of consumers, as the rest of the broker knows them."""

from __future__ import annotations

from ringmq.ipc.guests import Guest

GUEST = Guest(
    "replies",
    metric_table="ringmq.services.replies.metric_table:METRICS",
    metrics="ringmq.services.replies.metrics:families",
    questions="ringmq.services.replies.questions:QUESTIONS",
    control_answers="ringmq.services.replies.on_slave:answers",
)
