"""The queues that one member of a group gets (`QueryAssignmentProcessor`, spec pop 21). No IO.

Two kinds of empty results differ: with None a consumer keeps the queues that it has, with an empty list it gives up
all.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ringmq.broker.assignment.topic_queues import TopicQueues
from ringmq.remoting.allocation import STRATEGIES
from ringmq.remoting.assignment_bodies import POP, RequestMode
from ringmq.remoting.message_queue import MessageQueue

EVERY_QUEUE = -1
"""Queue id of an assignment by which a consumer pops from all queues of a broker."""


class Member(Struct, frozen=True):
    """A client among the members of its group, in Java's order of their ids."""

    client_id: str
    place: int | None
    """None: the client is no member."""
    count: int
    """Number of members, at least one."""


def share_of(member: Member, queues: TopicQueues, mode: RequestMode, strategy: str) -> Sequence[MessageQueue] | None:
    """The queues of a member in clustering. None if there is no valid result."""
    if strategy not in STRATEGIES:
        return None
    if mode.mode != POP:
        return _by_strategy(member, queues, strategy, others=0)
    others = mode.pop_share_queue_num
    if others <= 0 or others >= member.count - 1:
        return [MessageQueue(queues.topic, name, EVERY_QUEUE) for name in queues.broker_names]
    if member.count <= len(queues):
        return _by_strategy(member, queues, strategy, others)
    if not member.client_id.strip() or not len(queues):
        return None
    return [] if member.place is None else [queues[member.place % len(queues)]]


def _by_strategy(member: Member, queues: TopicQueues, strategy: str, others: int) -> Sequence[MessageQueue] | None:
    """The shares of the member and of the `others` behind it. None without a client id or without queues."""
    if not member.client_id or not len(queues):
        return None
    if member.place is None:
        return []
    share = STRATEGIES[strategy]
    places: set[int] = set()
    for place in range(member.place, member.place + others + 1):
        places.update(share(place % member.count, member.count, len(queues)))
    return [queues[place] for place in sorted(places)]
