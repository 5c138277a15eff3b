"""The clock of a process whose deadlines and time stamps are one number.

An operator or a time service may set the wall clock back. Deadlines by the wall clock then come late by as much. Until
then a broker does not register and no silent client expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BEHIND_PACE = 2
"""Real seconds for one of the clock while it is ahead of the wall clock. A deadline takes so many times its span."""


class SteadyClock:
    """The wall clock in ms, except that it never goes back.

    After the wall clock is set back, it goes on at half its pace until both agree. It follows a wall clock that is set
    forward at once.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._now_ns = wall_ns()
        self._looked_ns = monotonic_ns()

    def __call__(self) -> int:
        """Now, in ms."""
        looked_ns = self._monotonic_ns()
        least_ns = self._now_ns + (looked_ns - self._looked_ns) // BEHIND_PACE
        self._looked_ns, self._now_ns = looked_ns, max(self._wall_ns(), least_ns)
        return self._now_ns // 1_000_000
