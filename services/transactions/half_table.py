"""The open half messages in compact arrays: 36 bytes each, so a million of them takes 36 MB."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any, NamedTuple

from ringmq.native import ffi, lib

COMPACT_MIN = 4096
"""Ended entries below which the arrays are not compacted."""
ENDED, OPEN, SENT, HELD = (
    lib.RMQ_HALF_ENDED, lib.RMQ_HALF_OPEN, lib.RMQ_HALF_SENT, lib.RMQ_HALF_HELD,
)  # fmt: skip
CHECKS_MAX = 0xFFFF
IMMUNITY_S_MAX = 0x7FFFFFFF
NO_IMMUNITY = -1


class Half(NamedTuple):
    """An open half message. Checks copy it to the end of the half queue."""

    first: int
    """Half-queue offset of the message that the producer sent. It names the transaction."""
    newest: int
    """Half-queue offset of its newest copy, `first` if there is none."""
    born_ms: int
    immunity_s: int
    """CHECK_IMMUNITY_TIME_IN_SECONDS, NO_IMMUNITY if the message has no such property."""
    checks: int
    """Checks so far."""


class HalfTable:
    """Open halves in the order of `first`. New halves have the largest one, so a look-up is a binary search.

    An open half is OPEN, or HELD by its owner while it works on it, or SENT by C, which takes OPEN ones alone
    (native/src/transaction_ends.h).
    """

    def __init__(self) -> None:
        self._view = ffi.new("struct rmq_open_halves *")
        self._clear()

    def _clear(self) -> None:
        self._first, self._newest, self._born = array("q"), array("q"), array("q")
        self._immunity, self._checks, self._state = array("i"), array("H"), bytearray()
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def load(self, halves: Iterable[Half]) -> None:
        """Replace the content."""
        self._clear()
        for half in sorted(halves):
            self.add(half)

    def add(self, half: Half) -> None:
        """Add a half. Raises ValueError if its `first` is not the largest."""
        if self._first and half.first <= self._first[-1]:
            raise ValueError(f"half {half.first} comes behind {self._first[-1]}")
        self._first.append(half.first)
        self._newest.append(half.newest)
        self._born.append(half.born_ms)
        self._immunity.append(min(half.immunity_s, IMMUNITY_S_MAX))
        self._checks.append(min(half.checks, CHECKS_MAX))
        self._state.append(OPEN)
        self._open += 1

    def add_sent(self, firsts: memoryview, born_ms: memoryview) -> None:
        """Add halves without copies and without immunity: columns of int64, in the order of `firsts`.

        Raises ValueError if the first one is not larger than those in the table.
        """
        count = len(firsts) // self._first.itemsize
        known = len(self._first)
        self._first.frombytes(firsts)
        if known and count and self._first[known] <= self._first[known - 1]:
            wrong = self._first[known]
            del self._first[known:]
            raise ValueError(f"half {wrong} comes behind {self._first[-1]}")
        self._newest.frombytes(firsts)
        self._born.frombytes(born_ms)
        self._immunity.extend([NO_IMMUNITY] * count)
        self._checks.extend([0] * count)
        self._state.extend(bytes([OPEN]) * count)
        self._open += count

    def find(self, first: int) -> Half | None:
        """The open half with this first offset."""
        at = self._place(first)
        return None if at is None else self._half(at)

    def end(self, first: int) -> None:
        """Take the half out. Raises KeyError if it is not open."""
        self._state[self._known_place(first)] = ENDED
        self.ended(1)

    def ended(self, count: int) -> None:
        """Count halves that C has taken out."""
        self._open -= count
        if len(self._state) - self._open > max(COMPACT_MIN, self._open):
            self._compact()

    def hold(self, first: int) -> None:
        """Keep C from the half. Raises KeyError if it is not open."""
        self._state[self._known_place(first)] = HELD

    def release(self, first: int) -> None:
        """End `hold`, if the half is open."""
        at = self._place(first)
        if at is not None:
            self._state[at] = OPEN

    def is_sent(self, first: int) -> bool:
        """True if C has the half in a chain."""
        at = self._place(first)
        return at is not None and self._state[at] == SENT

    @contextmanager
    def columns(self) -> Iterator[Any]:
        """The columns as a struct rmq_open_halves, for C. Nothing may be added meanwhile."""
        view = self._view
        with (
            ffi.from_buffer("int64_t[]", self._first) as first,
            ffi.from_buffer("int64_t[]", self._newest) as newest,
            ffi.from_buffer("int64_t[]", self._born) as born_ms,
            ffi.from_buffer("uint8_t[]", self._state) as state,
        ):
            view.first, view.newest, view.born_ms, view.state = first, newest, born_ms, state
            view.count = len(self._state)
            yield view

    def move(self, first: int, newest: int, *, is_check: bool) -> None:
        """The half has a new copy. Raises KeyError if it is not open."""
        at = self._known_place(first)
        self._newest[at] = newest
        if is_check and self._checks[at] < CHECKS_MAX:
            self._checks[at] += 1

    def following(self, first: int, count: int) -> Iterator[Half]:
        """Of `count` entries from the half `first` on, the open ones that C has not sent. Its caller changes nothing
        meanwhile."""
        begin = bisect_left(self._first, first)
        return (
            self._half(at)
            for at in range(begin, min(begin + count, len(self._first)))
            if self._state[at] in (OPEN, HELD)
        )

    def following_first(self, first: int, count: int) -> int | None:
        """The first offset of the entry that `following` leaves for the next call. None if there is none."""
        at = bisect_left(self._first, first) + count
        return self._first[at] if at < len(self._first) else None

    def lowest_newest(self) -> int | None:
        """The smallest `newest`. None if no half is open. It takes 20 ms for a million halves."""
        return min(compress(self._newest, self._state), default=None)

    def _place(self, first: int) -> int | None:
        at = bisect_left(self._first, first)
        return at if at < len(self._first) and self._first[at] == first and self._state[at] else None

    def _known_place(self, first: int) -> int:
        at = self._place(first)
        if at is None:
            raise KeyError(first)
        return at

    def _half(self, at: int) -> Half:
        return Half(self._first[at], self._newest[at], self._born[at], self._immunity[at], self._checks[at])

    def _compact(self) -> None:
        columns = self._first, self._newest, self._born, self._immunity, self._checks
        kept = [array(column.typecode, compress(column, self._state)) for column in columns]
        self._first, self._newest, self._born, self._immunity, self._checks = kept
        self._state = bytearray(state for state in self._state if state)
