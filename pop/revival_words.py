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
    WINDOWS_MAX = 39
    POLLS = 40
    """Pops that wait for a message."""
    POLLS_MAX = 41
    DUE = 42
    """Open messages whose time is over. This word and the next two are those of the last look at all entries."""
    OLDEST_POP_MS = 43
    """Time of the wall clock at which the oldest open message was popped. 0: none is open."""
    OLDEST_DUE_MS = 44
    """Time of the wall clock at which the oldest message without a copy should have had one. 0: there is none."""
    UNSAVED_MS = 45
    """Monotonic time from which on the image lacks changes. 0: it has all."""
    SNAPSHOT_FAULT = 46
    """SnapshotFault"""
    DRAINED = 47
    """1: an operator has ended POP until the broker starts again (`ringmq.pop.drain`)."""


class SnapshotFault(IntEnum):
    """The reason why no snapshot is written."""

    NONE = 0
    NO_ROOM = 1
    """The disk is full. Pops are served."""
    FAILED = 2
    """A write or a sync has failed. Pops are refused until a restart."""
