"""The time that control may work before it polls its other inputs.

The measure is CPU time of control's thread: a busy machine or a slow disk makes no request more expensive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

TURN_MS = 50
"""The limit of one turn (20 ms for one request at a time). The limits below add up to less."""
INTAKE_MS = 8
"""Time after which a turn takes no further record out of the inbox."""
FIRST_GO_MS = 5
"""Time after which a request goes on in slices."""
SLICES_END_MS = 10
"""Time after which a turn begins no further slice. The rest is for a turn's other work."""
SLICE_MS = 2
Value = TypeVar("Value")
Steps = Generator[None, None, Value]
"""Work in steps of well below SLICE_MS; its return value is the result."""


class TurnClock:
    """Elapsed CPU time of the running turn. `clock_ns` is the thread's CPU clock."""

    def __init__(self, clock_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.clock_ns = clock_ns
        self._began_ns = clock_ns()

    def begin(self) -> None:
        """Begin a turn."""
        self._began_ns = self.clock_ns()

    def is_within(self, limit_ms: int) -> bool:
        """True if the turn has taken less than `limit_ms` so far."""
        return self.clock_ns() - self._began_ns < limit_ms * 1_000_000

    def advance(self, steps: Steps[Value], limit_ms: int) -> Value | None:
        """Run at least one step, and more for `limit_ms`. Returns the result, or None while there is more to do."""
        end_ns = self.clock_ns() + limit_ms * 1_000_000
        try:
            while True:
                next(steps)
                if self.clock_ns() >= end_ns:
                    return None
        except StopIteration as end:
            result: Value = end.value
            return result


def finish(steps: Steps[Value]) -> Value:
    """Run all steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Value = end.value
        return result
