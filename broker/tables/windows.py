"""The growth of two counters over a minute, an hour and a day, as stock keeps it: points at fixed times.

A minute has points every 10 s, an hour every 10 minutes, a day every hour. A window shows the growth between its first
and its last point, so it is up to one period old, and empty before its first point.
"""

from __future__ import annotations

from array import array

from msgspec import Struct, field

PERIODS_MS = (10_000, 600_000, 3_600_000)
"""Of a minute, an hour and a day."""
POINTS_MAX = (7, 7, 25)
_WORDS = 3


class Figures(Struct, frozen=True):
    """A window: growth, growth per second, and growth of a message."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        """Both together. The average is not known."""
        return Figures(self.sum + other.sum, self.tps + other.tps)


def _empty() -> tuple[array[int], ...]:
    return tuple(array("q") for _ in PERIODS_MS)


class Windows(Struct):
    """Messages and bytes of one thing. A point is three words: the time in ms, messages, bytes."""

    messages: int = 0
    """Since the item was made."""
    bytes: int = 0
    grown_ms: int = 0
    """The time of the latest growth."""
    points: tuple[array[int], ...] = field(default_factory=_empty)

    def add(self, messages: int, size: int, now_ms: int) -> None:
        """Count a growth."""
        self.messages += messages
        self.bytes += size
        self.grown_ms = now_ms

    def sample(self, number: int, now_ms: int, before_ms: int) -> None:
        """Add a point to window `number`. `before_ms`: the time of the point before it, if it is the first one."""
        points = self.points[number]
        if not points:
            points.extend((before_ms, 0, 0))
        points.extend((now_ms, self.messages, self.bytes))
        del points[: max(0, len(points) - POINTS_MAX[number] * _WORDS)]

    def figures(self, number: int, *, of_bytes: bool) -> Figures:
        """The figures of window `number`. Stock's average is the growth of a request, here it is that of a message."""
        points, word = self.points[number], 2 if of_bytes else 1
        if not points:
            return Figures()
        took_ms, grown = points[-_WORDS] - points[0], points[word - _WORDS] - points[word]
        messages = points[1 - _WORDS] - points[1]
        return Figures(grown, grown * 1000 / took_ms if took_ms else 0.0, grown / messages if messages else 0.0)
