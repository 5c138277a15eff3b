"""One queue of one topic on one broker."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """A queue's identity, ordered like the Java class: topic, broker, queue.

    All allocation strategies need that order.
    """

    topic: str
    broker_name: str
    queue_id: int
