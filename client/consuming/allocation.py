"""Allocation of queues to the members of a consumer group. No IO.

A strategy gets this client's id, a topic's queues and the ids of all members, and returns this client's share.
Members share no other knowledge. Each sorts queues (topic, broker name, queue id) and client ids as Java does. So
members of all languages get the same result if they use the same strategy. The rules are those of
RocketMQ's `AllocateMessageQueueAveragely` (its default), `...AveragelyByCircle`, `...ByConfig` and
`...ConsistentHash`.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from ringmq.remoting.allocation import Share, averagely, by_circle, java_order
from ringmq.remoting.message_queue import MessageQueue

AllocationStrategy = Callable[[str, Sequence[MessageQueue], Iterable[str]], list[MessageQueue]]
"""(client id, queues of one topic, ids of all members) -> the client's queues, none if it is no member."""

VIRTUAL_NODES = 10


def allocate_averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
    """Give each member a contiguous share. The first members get one queue more if the division has a remainder."""
    return _allocate(averagely, client_id, queues, client_ids)


def allocate_by_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
    """Deal out queues one by one, so that each member gets some of every broker."""
    return _allocate(by_circle, client_id, queues, client_ids)


def allocate_by_hash(client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
    """Hash consistently: few queues move when a member comes or goes, and shares are less even."""
    members = _in_order(client_ids)
    if client_id not in members:
        return []
    ring = {_md5_head(f"{member}-{node}"): member for member in members for node in range(VIRTUAL_NODES)}
    points = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[points[bisect_left(points, _md5_head(text)) % len(points)]]

    return [queue for queue in sorted(queues, key=_queue_order) if owner(queue) == client_id]


def allocate_by_config(wanted: Iterable[MessageQueue]) -> AllocationStrategy:
    """Return a strategy that always returns the queues `wanted`. The caller divides the queues among members."""
    fixed = frozenset(wanted)

    def allocate(client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
        return [queue for queue in sorted(queues, key=_queue_order) if queue in fixed]

    return allocate


def _allocate(
    share: Share, client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    members = _in_order(client_ids)
    if client_id not in members:
        return []
    ordered = sorted(queues, key=_queue_order)
    return [ordered[place] for place in share(members.index(client_id), len(members), len(ordered))]


def _in_order(client_ids: Iterable[str]) -> list[str]:
    return sorted(set(client_ids), key=java_order)


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


def _md5_head(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
