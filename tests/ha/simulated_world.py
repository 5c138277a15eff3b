"""Time, chance and links of a simulation: nothing in here knows what is sent.

Times are microseconds of one virtual clock. What is due at the same time happens in any order (readiness is reordered);
what travels through one pipe keeps its order, as on TCP.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

MS = 1000


class World:
    """The clock and its queue."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_us = 0
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    @property
    def now_ms(self) -> int:
        """The clock as cores see it."""
        return self.now_us // MS

    def at(self, time_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something then."""
        self._number += 1
        heapq.heappush(self._queue, (time_us, self.random.random(), self._number, action, arguments))

    def after_ms(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something later."""
        self.at(self.now_us + int(delay_ms * MS), action, *arguments)

    def run(self, until_ms: int) -> None:
        """Let everything happen that is due before."""
        while self._queue and self._queue[0][0] < until_ms * MS:
            self.now_us, _, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)
        self.now_us = until_ms * MS


@dataclass(slots=True)
class Path:
    """The network between two hosts, in each of two directions: delay, and until when nothing gets through."""

    world: World
    delay_ms: float
    stalled_until_us: list[int] = field(default_factory=lambda: [0, 0])

    def stall(self, direction: int, duration_ms: float) -> None:
        """Hold back what is sent into a direction."""
        until = self.world.now_us + int(duration_ms * MS)
        self.stalled_until_us[direction] = max(self.stalled_until_us[direction], until)

    def arrival_us(self, direction: int) -> int:
        """When something that is sent now arrives."""
        start = max(self.world.now_us, self.stalled_until_us[direction])
        return start + int(self.delay_ms * MS * self.world.random.uniform(0.8, 1.5)) + 1


class Pipe:
    """One direction of one connection."""

    def __init__(self, path: Path, direction: int, deliver: Callable[[Any], None]) -> None:
        self._path, self._direction, self._deliver = path, direction, deliver
        self._last_us = 0
        self.is_cut = False

    def send(self, what: Any) -> None:
        """Deliver it later, in order, unless the connection is cut before."""
        self._last_us = max(self._path.arrival_us(self._direction), self._last_us + 1)
        self._path.world.at(self._last_us, self._arrive, what)

    def _arrive(self, what: Any) -> None:
        if self.is_cut:
            return
        held_us = self._path.stalled_until_us[self._direction]
        if held_us > self._path.world.now_us:
            self._last_us = max(self._last_us, held_us) + 1
            self._path.world.at(self._last_us, self._arrive, what)
        else:
            self._deliver(what)
