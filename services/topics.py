"""Topics as services see them: the entries that control has published in the plane."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ringmq.native import lib
from ringmq.remoting import names
from ringmq.remoting.flags import Perm

_CLIENTS_DO_NOT_SEE = lib.RMQ_TOPIC_RECOVERED
NO_LIMIT = 1 << 31
"""More than any count of a record."""
_CLOSED = lib.RMQ_TOPIC_RESERVED | lib.RMQ_TOPIC_BATCH_QUEUE


class TopicPlane(Protocol):
    """The methods of `ringmq.ipc.plane.Plane` that look up topics."""

    def topic_find(self, name: str) -> int | None: ...
    def topic(self, topic_id: int) -> Any: ...
    def group_find(self, name: str) -> int | None: ...
    def group(self, group_id: int) -> Any: ...
    def queue_find(self, topic_id: int, queue_id: int) -> int | None: ...
    def queue(self, queue_slot: int) -> Any: ...


class GroupRetry(NamedTuple):
    """The retry settings of a group."""

    queues: int
    """retryQueueNums. A number above 255 counts as 255."""
    times_max: int
    """retryMaxTimes. NO_LIMIT stands for 65535 and more."""


class Topic(NamedTuple):
    """A topic that clients may use: its word in the plane (struct rmq_topic), decoded."""

    name: str
    topic_id: int
    perm: int
    read_queues: int
    write_queues: int
    flags: int

    @property
    def is_reserved(self) -> bool:
        """True if services publish no client's messages to it."""
        return bool(self.flags & _CLOSED) or (
            names.is_system_topic(self.name)
            or names.is_send_forbidden(self.name)
            or names.is_retry_topic(self.name)
            or names.is_dlq_topic(self.name)
        )

    def __str__(self) -> str:
        """The text of stock for a topic in remarks, as far as the plane has its fields."""
        perm = "".join(letter if self.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={perm}]"
        )


class Topics:
    """Looks up topics and queues, each time again, because control may change them at any time."""

    def __init__(self, plane: TopicPlane) -> None:
        self._plane = plane

    def find(self, name: str) -> Topic | None:
        """The topic. None if clients may use none of this name."""
        topic_id = self._plane.topic_find(name)
        if topic_id is None:
            return None
        word = int(self._plane.topic(topic_id).config)
        flags = word >> 40
        if not flags & lib.RMQ_TOPIC_LIVE or flags & _CLIENTS_DO_NOT_SEE:
            return None
        return Topic(name, topic_id, word & 0xFF, word >> 8 & 0xFFFF, word >> 24 & 0xFFFF, flags)

    def is_writable(self, topic: Topic, broker_permission: int) -> bool:
        """True if clients may send to it and services may publish clients' messages to it."""
        return bool(topic.perm & broker_permission & Perm.WRITE) and not topic.is_reserved

    def group_retry(self, group: str) -> GroupRetry | None:
        """The retry settings of a group. None if it has no configuration."""
        group_id = self._plane.group_find(group)
        word = 0 if group_id is None else int(self._plane.group(group_id).config)
        if not word & lib.RMQ_GROUP_LIVE:
            return None
        queues = word >> lib.RMQ_GROUP_RETRY_QUEUES_SHIFT & lib.RMQ_GROUP_RETRY_QUEUES_MAX
        times = word >> lib.RMQ_GROUP_RETRY_TIMES_SHIFT & lib.RMQ_GROUP_RETRY_TIMES_MAX
        return GroupRetry(queues, NO_LIMIT if times == lib.RMQ_GROUP_RETRY_TIMES_MAX else times)

    def queue_of(self, topic_id: int, queue_id: int) -> tuple[int, int, int] | None:
        """`queue` by the id of its topic."""
        slot = self._plane.queue_find(topic_id, queue_id)
        return None if slot is None else (topic_id, slot, queue_id)

    def queue(self, name: str, queue_id: int) -> tuple[int, int, int] | None:
        """(topic id, queue slot, queue id) of a queue that write appends to. None if there is none."""
        topic_id = self._plane.topic_find(name)
        return None if topic_id is None else self.queue_of(topic_id, queue_id)

    def queue_bounds(self, name: str, queue_id: int) -> tuple[int, int] | None:
        """(minimum, maximum) queue offset as dispatch has published them. None if there is no such queue."""
        found = self.queue(name, queue_id)
        if found is None:
            return None
        entry = self._plane.queue(found[1])
        return int(entry.min_offset), int(entry.max_offset)
