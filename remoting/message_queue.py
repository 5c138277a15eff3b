"""One queue of one topic on one broker."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Ordered as the Java class orders itself: topic, broker, queue. All allocation strategies rely on
    that order.
    """

    topic: str
    broker_name: str
    queue_id: int
