"""The policy for publishing stored records again, without IO: the time of the next copy, and its source offset.

The port is ordered, so the log holds the copies of a lane up to some source offset and none behind it. Two events reset
the service to the offset behind the last stored copy: its own death, and a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from ringmq.services.arena_ring import ArenaRing

PAUSE_MS, PAUSE_MAX_MS = 10, 1000
"""Pause after a refusal. Each further refusal doubles it, until a copy is stored again."""


class State(Enum):
    """The next step of the port's owner."""

    SETTLING = "waits until every request has its completion, which tells whether it was stored"
    FLOWING = "submits copies"


class Refusal(Struct, frozen=True):
    """The reason why write has stored nothing."""

    code: int
    cause: int

    def __str__(self) -> str:
        return f"code {self.code}, cause {self.cause}"


class RepublishFlow:
    """One ordered port with `lanes` sources. Times are milliseconds of a monotonic clock."""

    def __init__(self, lanes: int, arena_bytes: int) -> None:
        self.state = State.SETTLING
        self.next = [0] * lanes
        """The next source offset of each lane. Valid while FLOWING."""
        self.arena = ArenaRing(arena_bytes)
        self._stored = [0] * lanes
        self._pause_ms = 0
        self._resume_ms = 0
        self._refused_since_ms: int | None = None

    @property
    def is_settling(self) -> bool:
        """True if a death or a refusal is not settled yet."""
        return self.state is State.SETTLING

    def may_submit(self, now_ms: int) -> bool:
        """True if the flow neither settles nor pauses after a refusal."""
        return self.state is State.FLOWING and now_ms >= self._resume_ms

    def tallied(self, stored: Sequence[int], refusal: Refusal | None, now_ms: int) -> str:
        """Accept completions. `stored`: one behind the largest stored source offset of each lane. Returns the line to
        log, or ""."""
        said = ""
        if self._refused_since_ms is not None and list(stored) != self._stored:
            said = f"publishes again after {(now_ms - self._refused_since_ms) / 1000:.1f} s"
            self._refused_since_ms, self._pause_ms = None, 0
        self._stored = list(stored)
        self.arena.give_back(stored)
        if refusal is None:
            return said
        self.state = State.SETTLING
        self._pause_ms = min(PAUSE_MAX_MS, self._pause_ms * 2 or PAUSE_MS)
        self._resume_ms = now_ms + self._pause_ms
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
            said = f"waits: write refuses its records ({refusal})"
        return said

    def settled(self, stored: Sequence[int]) -> None:
        """Go on behind the stored copies. Every request has its completion, and the refusal is acknowledged."""
        self.state = State.FLOWING
        self._stored, self.next = list(stored), list(stored)
        self.arena.clear()

    def submitted(self, lane: int, following: int, end: int | None, arena_end: int) -> None:
        """Move the lane to source offset `following`. `end`: one behind the last copied offset; None if the batch had
        no copy."""
        if end is not None:
            self.arena.take(lane, end, arena_end)
        self.next[lane] = following
