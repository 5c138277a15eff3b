"""The bytes of a port's arena, or of a part of it, without IO: a ring of batches, or equal slots.

A batch lies in one piece. It is written from the begin of the free piece on, then taken. Its bytes are not given out
again until it is freed. Positions count from the begin of the port's arena.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct


class _Batch(Struct):
    number: int
    start: int
    is_over: bool = False


class ArenaRing:
    """Batches of any size. Their bytes are free again in the order in which they were taken.

    Batch numbers count up from 0. `piece_max`: the size of the largest free piece that there ever is.
    """

    def __init__(self, size_bytes: int, first_byte: int = 0) -> None:
        self.piece_max, self._first_byte = size_bytes, first_byte
        self._head = 0
        self._batches: deque[_Batch] = deque()
        self.following = 0
        """Number of the next batch."""

    @property
    def _span(self) -> tuple[int, int]:
        if not self._batches:
            return 0, self.piece_max
        first = self._batches[0].start
        if self._head == first:
            return first, first
        return self._head, self.piece_max if self._head > first else first

    @property
    def piece(self) -> tuple[int, int]:
        """The free piece that the next batch gets: from, to."""
        start, end = self._span
        return self._first_byte + start, self._first_byte + end

    def wrap(self) -> bool:
        """Skip the rest up to the end of the arena, because the batch does not fit into it. False if nothing else is
        free."""
        start, end = self._span
        if end < self.piece_max or not self._batches or not self._batches[0].start or start == end:
            return False
        self._head = 0
        return True

    def take(self, end: int) -> int:
        """Take the bytes of a batch from the free piece, up to `end`. Returns the number of the batch."""
        self._batches.append(_Batch(self.following, self._span[0]))
        self._head = (end - self._first_byte) % self.piece_max
        self.following += 1
        return self.following - 1

    def free(self, number: int) -> None:
        """The batch is over."""
        self._batches[number - self._batches[0].number].is_over = True
        while self._batches and self._batches[0].is_over:
            self._batches.popleft()

    def clear(self) -> None:
        """Free everything. No request may be in flight."""
        self._batches.clear()
        self._head = 0


class ArenaSlots:
    """Slots of equal size, one for each batch. The last one that was freed is the next one in use."""

    def __init__(self, slot_bytes: int, slots: int, first_byte: int = 0) -> None:
        self.piece_max, self._first_byte = slot_bytes, first_byte
        self._free = list(range(slots))

    @property
    def piece(self) -> tuple[int, int]:
        """See ArenaRing."""
        if not self._free:
            return self._first_byte, self._first_byte
        start = self._first_byte + self._free[-1] * self.piece_max
        return start, start + self.piece_max

    def wrap(self) -> bool:
        """All slots are equal."""
        return False

    def take(self, end: int) -> int:
        """See ArenaRing."""
        return self._free.pop()

    def free(self, number: int) -> None:
        """See ArenaRing."""
        self._free.append(number)


Arena = ArenaRing | ArenaSlots


def fit(arena: Arena, make: Callable[[int, int], int]) -> int:
    """Call `make` with the bounds of the free piece, and with those of the next one if it has made nothing. Returns
    the number of things that it has made."""
    while True:
        made = make(*arena.piece)
        if made or not arena.wrap():
            return made
