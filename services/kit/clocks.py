"""The two clocks of a service, in milliseconds."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """The clock of all deadlines and pauses of a process. A wall clock that is set back would delay them all."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """The clock by which messages are due."""
    return time.time_ns() // 1_000_000
