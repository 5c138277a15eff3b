"""The share of one member in the ordered queues of a topic, as places in that order. No IO.

The rules are those of RocketMQ's `AllocateMessageQueueAveragely` and `AllocateMessageQueueAveragelyByCircle`. Consumers
apply them to themselves, and a broker applies them for consumers that ask it (QUERY_ASSIGNMENT).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

Share = Callable[[int, int, int], range]
"""(place of the member, number of members, number of queues) -> the places of its queues. Members are at least one."""


def averagely(place: int, members: int, queues: int) -> range:
    """A contiguous share. The first members get one queue more if the division has a remainder."""
    size, remainder = divmod(queues, members)
    start = place * size + min(place, remainder)
    return range(start, start + size + (1 if place < remainder else 0))


def by_circle(place: int, members: int, queues: int) -> range:
    """Every queue whose place in the order falls to the member when queues are dealt out one by one."""
    return range(place, queues, members)


STRATEGIES: Mapping[str, Share] = MappingProxyType({"AVG": averagely, "AVG_BY_CIRCLE": by_circle})
"""The names by which consumers choose a rule at a broker."""


def java_order(text: str) -> bytes:
    """A sort key in Java's order: by UTF-16 code unit, not by code point. They differ above U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")
