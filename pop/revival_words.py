"""Words in the role block of the worker `pop`, behind the counters of its desk: copies, and gauges of the windows."""

from __future__ import annotations

from enum import IntEnum


class RevivalWord(IntEnum):
    """Counters of copies since the broker started. They outlive the worker's process."""

    STORED = 24
    """Copies in topics of retries."""
    DEAD = 25
    """Dead letters."""
    FAILED = 26
    """Tries of copies that could not be stored."""
    GONE = 27
    """Messages that ended without a copy: their record, topic or group is deleted."""
    FOUND = 28
    """Copies that starts of the worker have found in the log."""
    REPORTED = 29
    """Consumer offsets that control was told."""


class Gauge(IntEnum):
    """Values at the last turn."""

    WINDOWS = 32
    ENTRIES = 33
    OPEN = 34
    """Messages that are not done."""
    RETURNED = 35
    """Of them: those that no consumer has received."""
    REVIVING = 36
    """Entries whose messages wait for their copies."""
    REVIVED = 37
    """Entries whose copies wait in retry topics."""
    ENTRIES_MAX = 38
