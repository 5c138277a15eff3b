"""The readable queues of a topic on all brokers, in Java's order, without an object for each queue."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import overload

from ringmq.remoting import json_body
from ringmq.remoting.allocation import java_order
from ringmq.remoting.flags import Perm
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import QueueData

ROUTE_BYTES_MAX = 1 << 20
"""Limit of a route's body: some 4,600 brokers, and some 10 ms of control's time."""
ROUTE_QUEUES_MAX = 131_072
"""Limit of a topic's queues. A consumer may get them all in one answer, of some 10 MB."""


class TopicQueues(Sequence[MessageQueue]):
    """A topic's queues, ordered by broker name and queue id. They never change."""

    def __init__(self, topic: str, counts: Iterable[tuple[str, int]]) -> None:
        """`counts`: (broker name, number of queues). Of a repeated broker the greatest number counts."""
        most: dict[str, int] = {}
        for name, count in counts:
            most[name] = max(count, most.get(name, 0))
        self.topic = topic
        names = sorted((name for name, count in most.items() if count > 0), key=java_order)
        self.broker_names = tuple(sys.intern(name) for name in names)
        """Brokers with at least one queue."""
        self._ends = tuple(accumulate(most[name] for name in names))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, place: int) -> MessageQueue: ...

    @overload
    def __getitem__(self, place: slice) -> list[MessageQueue]: ...

    def __getitem__(self, place: int | slice) -> MessageQueue | list[MessageQueue]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        broker = bisect_right(self._ends, place)
        first = self._ends[broker - 1] if broker else 0
        return MessageQueue(self.topic, self.broker_names[broker], place - first)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicQueues):
            return NotImplemented
        return (self.topic, self.broker_names, self._ends) == (other.topic, other.broker_names, other._ends)

    def __hash__(self) -> int:
        return hash((self.topic, self.broker_names, self._ends))

    @classmethod
    def decode(cls, topic: str, body: bytes) -> TopicQueues:
        """From a route (`MQClientInstance.topicRouteData2TopicSubscribeInfo`). Raises `BadBody`, also beyond the limits
        of a route."""
        if len(body) > ROUTE_BYTES_MAX:
            raise json_body.bad_body(f"the route has {len(body)} bytes, at most {ROUTE_BYTES_MAX} are read", "body")
        value = json_body.read_large(body, "TopicRouteData")
        datas = [QueueData.from_json(entry) for entry in json_body.objects(value, "queueDatas")]
        found = cls(topic, ((data.broker_name, data.read_queue_nums) for data in datas if data.perm & Perm.READ))
        if len(found) > ROUTE_QUEUES_MAX:
            text = f"the route has {len(found)} queues, at most {ROUTE_QUEUES_MAX} are kept"
            raise json_body.bad_body(text, "readQueueNums")
        return found
