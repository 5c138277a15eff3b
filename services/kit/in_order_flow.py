"""The decisions of submissions in order, without IO: when to submit, and when the bytes of a batch are free.

The port is ordered: of all requests, write has stored those up to some one, and none behind it. Two events make the
owner settle: the death of its predecessor, and a refusal. It waits until every request has its completion, so that it
knows which one was the last. Then it goes on behind that one; after a refusal, it pauses first.
"""

from __future__ import annotations

from collections import deque

from ringmq.services.kit.arena import ArenaRing

PAUSE_MS, PAUSE_MAX_MS = 10, 1000
"""Pause after a refusal. Each further refusal doubles it, until a request is stored again."""


class InOrderFlow:
    """The requests of one ordered port. Times are milliseconds of a monotonic clock."""

    def __init__(self, arena: ArenaRing) -> None:
        self.is_settling = True
        """True until every request has its completion, behind a death or a refusal."""
        self.arena = arena
        self._submitted = self._stored = 0
        """Requests since the last settlement."""
        self._batches: deque[tuple[int, int]] = deque()
        """(number, `_submitted` behind it) of each batch in flight."""
        self._is_refused = False
        """True from a refusal on until it is settled."""
        self._pause_ms = 0
        self._resume_ms = 0
        self._refused_since_ms: int | None = None

    def may_submit(self, now_ms: int) -> bool:
        """True if the flow neither settles nor pauses after a refusal."""
        return not self.is_settling and now_ms >= self._resume_ms

    def pause_ms(self, now_ms: int) -> int:
        """Time until the flow may submit. 0 while it settles."""
        return 0 if self.is_settling else max(0, self._resume_ms - now_ms)

    def submitted(self, count: int, arena_end: int) -> None:
        """Count a batch. Its bytes end at `arena_end`."""
        self._submitted += count
        self._batches.append((self.arena.take(arena_end), self._submitted))

    def tallied(self, stored: int, refusal: str, now_ms: int) -> str:
        """Accept completions. `stored`: requests of them that were stored. `refusal`: the reason why write has stored
        nothing of another one, or "". Returns the line to log, or ""."""
        said = ""
        if stored and self._refused_since_ms is not None:
            said = f"publishes again after {(now_ms - self._refused_since_ms) / 1000:.1f} s"
            self._refused_since_ms, self._pause_ms = None, 0
        self._stored += stored
        while self._batches and self._batches[0][1] <= self._stored:
            self.arena.free(self._batches.popleft()[0])
        if not refusal or self._is_refused:
            return said
        self.is_settling = self._is_refused = True
        self._pause_ms = min(PAUSE_MAX_MS, self._pause_ms * 2 or PAUSE_MS)
        self._resume_ms = now_ms + self._pause_ms
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
            said = f"waits: write refuses its records ({refusal})"
        return said

    def settled(self) -> None:
        """Go on behind the stored requests. Every request has its completion, and the refusal is acknowledged."""
        self.is_settling = self._is_refused = False
        self._submitted = self._stored = 0
        self._batches.clear()
        self.arena.clear()
