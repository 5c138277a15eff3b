"""The arena of a service's port as a ring. Bytes of a batch are free when all batches before it have their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct


class Allocation(Struct, frozen=True):
    """The bytes of one batch, from `start` to the start of the next. The batch is over when `stored[lane]` reaches
    `end`."""

    lane: int
    end: int
    """One behind the last source offset of the batch."""
    start: int


class ArenaRing:
    """The free bytes of the arena. Batches are freed in the order in which they were allocated."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._head = 0
        self._allocations: deque[Allocation] = deque()

    @property
    def span(self) -> tuple[int, int]:
        """The free bytes in one piece: from, to."""
        if not self._allocations:
            return 0, self._size
        first = self._allocations[0].start
        if self._head == first:
            return first, first
        return self._head, self._size if self._head > first else first

    def wrap(self) -> bool:
        """Skip the rest up to the arena's end, because the next copy does not fit into it. False if nothing else is
        free."""
        start, end = self.span
        if end < self._size or not self._allocations or not self._allocations[0].start or start == end:
            return False
        self._head = 0
        return True

    def take(self, lane: int, end: int, upto: int) -> None:
        """Allocate the span up to this byte."""
        self._allocations.append(Allocation(lane, end, self.span[0]))
        self._head = upto % self._size

    def give_back(self, stored: Sequence[int]) -> None:
        """Free every batch at the front whose records are stored."""
        while self._allocations and stored[self._allocations[0].lane] >= self._allocations[0].end:
            self._allocations.popleft()

    def clear(self) -> None:
        """Free everything. No request may be in flight."""
        self._allocations.clear()
        self._head = 0
