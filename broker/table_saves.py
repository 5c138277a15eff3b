"""Answers that wait for config files: they are sent once topics and groups are on disk, or with an error if they are
not.

Small tables are saved in the turn of the change. Large ones are saved in slices, with a pause after each save, so that
many changes share one file. An answer waits for the first save that began after its change.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.requests.request import Effect, Reply
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.broker.tables.persistence import Persistence
from ringmq.remoting.codes import ResponseCode

SLICE_MS = 8
REST = 4
"""Pause after a save of more than one slice, as a multiple of its duration."""
Guard = Callable[[Callable[[], object]], str | None]
"""Runs a step and logs its failure once. Returns None, or the failure in words."""


class _Held(Struct, frozen=True):
    effects: list[Effect]
    is_change: bool
    release: Callable[[list[Effect]], None]


class TableSaves:
    """Saves the tables after changes."""

    def __init__(
        self,
        persistence: Persistence,
        clock: TurnClock,
        guard: Guard,
        on_recovery: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._persistence = persistence
        self._clock = clock
        self._guard = guard
        self._on_recovery = on_recovery
        self._now_s = now_s
        self._waiting: list[_Held] = []
        self._covered: list[_Held] = []
        """Effects that wait for the running save."""
        self._steps: Steps[bool] | None = None
        self._began_s = 0.0
        self._next_s = 0.0
        self._failed = False

    @property
    def is_saving(self) -> bool:
        """True while a save is running. `turn` has to be called again."""
        return self._steps is not None

    @property
    def has_failed(self) -> bool:
        """True if the last save has not reached the disk."""
        return self._failed

    @property
    def is_behind(self) -> bool:
        """True if a change is not on disk."""
        return self.is_saving or self._persistence.tables_dirty

    def hold(self, effects: list[Effect], release: Callable[[list[Effect]], None], *, is_change: bool) -> None:
        """Keep effects of a request until its change is on disk.

        `is_change`: an operator has requested the change, so the answer has to report a failed save.
        """
        self._waiting.append(_Held(effects, is_change, release))

    def turn(self) -> None:
        """Save for one slice. Releases the effects whose change is on disk."""
        if self._steps is None:
            if not self._persistence.tables_dirty:
                self._release(None)
                return
            if self._now_s() < self._next_s:
                return
            self._begin()
        self._go_on(SLICE_MS)

    def finish(self) -> None:
        """Save everything. It takes as long as it must."""
        while self._steps is not None:
            self._go_on(1000)
        self._begin()
        while self._steps is not None:
            self._go_on(1000)

    def _begin(self) -> None:
        self._covered, self._waiting = self._waiting, []
        self._steps = self._persistence.saving_tables()
        self._began_s = self._now_s()
        self._slices = 0

    def _go_on(self, limit_ms: int) -> None:
        steps, done = self._steps, False
        assert steps is not None

        def advance() -> None:
            nonlocal done
            done = self._clock.advance(steps, limit_ms) is not None

        cause = self._guard(advance)
        self._slices += 1
        if cause is None and not done:
            return
        self._steps = None
        if self._slices > 1:
            self._next_s = self._now_s() + REST * (self._now_s() - self._began_s)
        self._release(cause)

    def _release(self, cause: str | None) -> None:
        if cause is None and self._failed:
            self._on_recovery()
        self._failed = cause is not None
        held, self._covered = self._covered, []
        if cause is None and not self.is_behind:
            held, self._waiting = held + self._waiting, []
        for one in held:
            if cause is not None and one.is_change:
                _deny(one.effects, cause)
            one.release(one.effects)


def _deny(effects: list[Effect], cause: str) -> None:
    for effect in effects:
        if isinstance(effect, Reply) and effect.command.code == ResponseCode.SUCCESS:
            answer = effect.command
            answer.code, answer.body = ResponseCode.SYSTEM_ERROR, b""
            answer.remark = f"the change holds, but a restart may lose it: config files cannot be written: {cause}"
