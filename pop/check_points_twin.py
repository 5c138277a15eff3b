"""Check points of open messages in Python: the same rule as `native/src/pop/pop_check_points.c`. Tests run both."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ringmq.pop.check_points import HandOverError
from ringmq.pop.revive_records import CheckPoint, Pop
from ringmq.store.record_numbers import LONG_MAX

MESSAGES = 32
"""Messages of one check point."""
ENTRIES_MAX = 64
"""Entries of one pop."""

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""


class OpenEntry(NamedTuple):
    """An entry with open messages. `pop`: of all entries with its receipts."""

    pop: Pop
    invisible_ms: int
    revive_queue: int
    offsets: Sequence[int]


class Point(NamedTuple):
    """A check point, and its revive queue."""

    point: CheckPoint
    revive_queue: int


def check_points(
    entries: Sequence[OpenEntry], known: Collection[Pop], revive_queues: int, ends: Mapping[QueueKey, int] | None = None
) -> Iterator[Point]:
    """The check points of all entries, in the order of their first ones. `known`: pops that have one already. `ends`:
    the offset of each queue from which on messages have none, None: all have one.

    Raises HandOverError at a pop with more than ENTRIES_MAX entries: what is left out would be lost."""
    pops: dict[Pop, list[OpenEntry]] = {}
    for entry in entries:
        end = LONG_MAX if ends is None else ends.get(entry.pop[:3], 0)
        if entry.offsets and entry.offsets[0] < end and entry.pop not in known:
            pops.setdefault(entry.pop, []).append(entry)
    for pop, parts in pops.items():
        if len(parts) > ENTRIES_MAX:
            raise HandOverError(f"one pop has more than {ENTRIES_MAX} entries with open messages")
        offsets = sorted(offset for part in parts for offset in part.offsets)
        for at in range(0, len(offsets), MESSAGES):
            start = offsets[at] if at else pop.start_offset
            distances = tuple(offset - start for offset in offsets[at : at + MESSAGES])
            point = CheckPoint(pop._replace(start_offset=start), parts[0].invisible_ms, distances)
            yield Point(point, parts[0].revive_queue % revive_queues)
