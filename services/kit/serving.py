"""The wait of a worker that serves plain requests in C (native/src/plane/serving.h).

Between two turns of Python the C loop sleeps, serves asks and wakes the askers. It returns where Python has to decide:
at an ask that is not plain, at a record in one of `rings`, at a new configuration, behind `notify`, at the end of its
time, and RMQ_SERVING_BUSY_MS behind the first ask. So many requests share one turn of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib


class Serving:
    """Owns struct rmq_serving. `rings`: struct rmq_ring * whose records are for Python. `run`: the C loop, called with
    the struct and the longest time in ms; it returns a reason. `arrived`: a struct rmq_ring * whose records it takes,
    beside its asks."""

    def __init__(
        self, plane: Plane, role: int, answerer: int, rings: Sequence[Any], run: Callable[[Any, int], int],
        *, arrived: Any = ffi.NULL,
    ) -> None:  # fmt: skip
        if len(rings) > lib.RMQ_SERVING_RINGS_MAX:
            raise ValueError(f"{len(rings)} rings, a wait looks at {lib.RMQ_SERVING_RINGS_MAX} at most")
        self._plane, self._role, self._run = plane, role, run
        self.struct = ffi.new("struct rmq_serving *")
        self.struct.role, self.struct.answerer, self.struct.ring_count = role, answerer, len(rings)
        self.struct.arrived = arrived
        for number, ring in enumerate(rings):
            self.struct.rings[number] = ring
        self._inbox = plane.header.asks.answerer[answerer].inbox
        self._blocked_at: int | None = None
        """Place of a record of the inbox that was incomplete."""
        self.has_left = True
        """True if the last wait has left an ask to Python, or there was none yet."""

    @property
    def is_blocked(self) -> bool:
        """True if the first record of the inbox was incomplete at the last wait, and is still there. The caller waits
        for its writer, or frees it."""
        return self._blocked_at is not None and int(self._inbox.tail) == self._blocked_at

    @property
    def asks(self) -> int:
        """Asks that C has served while the worker waited."""
        return int(self.struct.asks)

    def notify(self) -> None:
        """Give Python a turn. Any thread of the process may call it."""
        self.struct.news = 1
        self._plane.wake(self._role)

    def wait(self, config_version: int, timeout_ms: int) -> int | None:
        """Serve, at most `timeout_ms`. The bell is armed, and is disarmed then. `config_version`: of the configuration
        that the C loop has. Returns the result of the C loop that has left an ask, else None."""
        self.struct.config_version = config_version
        reason = self._run(self.struct, timeout_ms)
        self._blocked_at = int(self._inbox.tail) if reason == lib.RMQ_SERVING_BLOCKED else None
        self.has_left = reason == lib.RMQ_SERVING_LEFT
        return int(self.struct.why) if self.has_left else None
