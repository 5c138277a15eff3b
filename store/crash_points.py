"""Crash points of Python: places behind a step where a test kills the process (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.native import lib

Step = Callable[[str], None]
"""Called between two steps with a name: a test kills the process there."""


def passed(step: str) -> None:
    """The crash point behind a step, in a build that has crash points."""
    if lib.rmq_crash_points_built():
        lib.rmq_crash_point(step.encode())
