"""Which messages of a queue a group may be given: the test worker's policy, without IO.

A message is free, or named by one answer. It is free again when the answer was not sent, or is not acknowledged in
time.
"""

from bisect import insort
from collections.abc import Iterator, Sequence

ANSWER_MESSAGES = 32
LANES = 32
"""Pairs of a group and a queue. Each has a word of the role block, which outlives the worker."""
QUEUES = 8


def lane_number(group: str, queue: int) -> int:
    """Number of the lane. Groups are `polls-0` and so on. Raises ValueError for others."""
    number = int(group.removeprefix("polls-")) * QUEUES + queue
    if not (0 <= queue < QUEUES and 0 <= number < LANES):
        raise ValueError(f"group {group!r} and queue {queue} are no lane of {LANES}")
    return number


class Lane:
    """The messages of one queue for one group, by queue offset."""

    def __init__(self, number: int, slot: int, first: int) -> None:
        self.number, self.slot = number, slot
        self._next = first
        self._free: list[int] = []
        self._named: dict[int, Sequence[int]] = {}

    def candidates(self, most: int = ANSWER_MESSAGES) -> Iterator[tuple[int, int]]:
        """Runs of offsets (first, count) that the next answer may name, the oldest first."""
        free = self._free[:most]
        at = 0
        while at < len(free):
            end = at + 1
            while end < len(free) and free[end] == free[end - 1] + 1:
                end += 1
            yield free[at], end - at
            at = end
        if most > len(free):
            yield self._next, most - len(free)

    def name(self, serial: int, offsets: Sequence[int]) -> None:
        """An answer with this serial names these candidates."""
        self._named[serial] = offsets
        if self._free:
            gone = set(offsets)
            self._free = [offset for offset in self._free if offset not in gone]
        self._next = max(self._next, offsets[-1] + 1)

    def free(self, serial: int) -> Sequence[int]:
        """The answer was not sent, or not acknowledged. Returns its offsets, which are free again."""
        offsets = self._named.pop(serial, ())
        for offset in offsets:
            insort(self._free, offset)
        return offsets

    def received(self, serial: int) -> bool:
        """A client has the messages. False: the answer is not known any more."""
        return self._named.pop(serial, None) is not None

    def skip_to(self, offset: int) -> bool:
        """Retention has deleted everything below. False: nothing changes by it."""
        had = len(self._free), self._next
        self._free = [free for free in self._free if free >= offset]
        self._next = max(self._next, offset)
        return (len(self._free), self._next) != had

    def restart(self, first: int) -> None:
        """Begin anew: every message is free."""
        self._next, self._free, self._named = first, [], {}

    @property
    def low(self) -> int:
        """Every message below it is received, or deleted."""
        return min([self._next, *self._free[:1], *(offsets[0] for offsets in self._named.values())])
