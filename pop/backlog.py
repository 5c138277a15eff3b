"""Ages of open messages for operators: a look at all entries each second, in steps (`native/src/pop/pop_view.h`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.pop.revival_words import Gauge
from ringmq.services.kit.clocks import wall_ms

INTERVAL_MS = 1000
STEP_ENTRIES = 16_384
"""Entries of a turn, some 0.2 ms."""
STEP_MS = 10
"""Time between two steps: the entries of a full memory, 4 Mi, take 3 s."""
_NEVER = (1 << 63) - 1


class Backlog:
    """Writes the words of the role block. `grace_ms`: the time that due messages wait for their copies."""

    def __init__(self, windows: Any, words: Any, grace_ms: Callable[[], int]) -> None:
        self._windows, self._words, self._grace_ms = windows, words, grace_ms
        self._view = ffi.new("struct rmq_pop_view *")
        self._view.windows, self._view.group_id = windows, NONE
        self._next_ms = 0
        self._is_looking = False

    def turn(self, now_ms: int) -> None:
        """Go on with a look, or begin the next one."""
        if now_ms < self._next_ms:
            return
        if not self._is_looking:
            self._view.now_ms = wall_ms() - self._grace_ms()
            lib.rmq_pop_view_begin(self._view)
        self._is_looking = bool(lib.rmq_pop_view_step(self._view, STEP_ENTRIES))
        self._next_ms = now_ms + (STEP_MS if self._is_looking else INTERVAL_MS)
        if not self._is_looking:
            self._tell()

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next step."""
        return max(0, self._next_ms - now_ms)

    def finish(self) -> None:
        """Tell once more, whatever it takes: a process that rests leaves the words as they are."""
        self._next_ms, self._is_looking = 0, False
        self.turn(0)
        while self._is_looking:
            self.turn(self._next_ms)

    def _tell(self) -> None:
        view, words, grace_ms = self._view, self._words, self._grace_ms()
        words[Gauge.DUE] = view.due
        words[Gauge.OLDEST_POP_MS] = 0 if view.oldest_ms == _NEVER else max(0, view.oldest_ms)
        words[Gauge.OLDEST_DUE_MS] = 0 if view.oldest_due_ms == _NEVER else max(0, view.oldest_due_ms + grace_ms)
