"""The policy of delay levels without IO: which messages are due, and how long the worker may sleep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

LOOK_MS = 100
"""Longest sleep while messages wait. A clock that is set forward is noticed within it."""
IDLE_MS = 1000
"""Longest sleep while no message waits. An arrival ends it."""
RETRY_MS = 10
"""Pause of a level that could not go on."""


class WaitingUnit(NamedTuple):
    """A unit of a schedule queue, with the store time of its record."""

    deliver_ms: int
    store_ms: int


def due_units(units: Sequence[WaitingUnit], now_ms: int, delay_ms: int) -> tuple[int, int]:
    """(number of due units at the front, due time of the next one or -1). Twin: native/src/services/due_units.c.

    A time of delivery further ahead than the level's present delay comes from a longer delay, or from a clock that was
    set back since. The store time tells these two apart.
    """
    for number, unit in enumerate(units):
        due_ms = unit.deliver_ms
        if due_ms - now_ms > delay_ms:
            due_ms = min(due_ms, unit.store_ms + delay_ms)
        if due_ms > now_ms:
            return number, due_ms
    return len(units), -1


class Level(Struct):
    """One delay level and its queue. `look_ms` is the wall clock's time of its next look, None = at an arrival."""

    delay_ms: int
    queue_slot: int
    look_ms: int | None = 0


class Schedule:
    """The levels in turn. Times are milliseconds of the wall clock."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = levels
        self._first = 0

    def due(self, now_ms: int) -> list[int]:
        """Levels to look at now. Each call begins with another one, so that no level starves the others."""
        count = len(self.levels)
        self._first = (self._first + 1) % count
        numbers = [(self._first + number) % count for number in range(count)]
        return [number for number in numbers if self._is_due(self.levels[number], now_ms)]

    @staticmethod
    def _is_due(level: Level, now_ms: int) -> bool:
        return level.look_ms is not None and level.look_ms <= now_ms

    def clock_moved_back(self) -> None:
        """Look at every level again, because the times of the next looks may lie too far ahead."""
        for level in self.levels:
            if level.look_ms is not None:
                level.look_ms = 0

    def arrived(self, queue_slots: set[int]) -> None:
        """These queues have grown."""
        for level in self.levels:
            if level.look_ms is None and level.queue_slot in queue_slots:
                level.look_ms = 0

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next look at a level."""
        looks = [level.look_ms for level in self.levels if level.look_ms is not None]
        return min(LOOK_MS, max(0, min(looks) - now_ms)) if looks else IDLE_MS
