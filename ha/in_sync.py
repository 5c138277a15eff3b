"""The rule by which one slave counts as in sync, by its reports alone.

    in sync --gap of haMaxGapNotInSync, or no progress for slaveTimeout with data sent--> out of sync
    out of sync --progress, or nothing outstanding, and the gap is smaller--> in sync

An idle slave is in sync for as long as it is connected. Heartbeats find out if an idle link is dead.
"""

from __future__ import annotations

from msgspec import Struct


class SyncWatch(Struct):
    """The progress of one slave. Offsets are of the CommitLog. `silent_since_ms` is 0 while no sent byte waits for a
    report."""

    max_gap_bytes: int
    timeout_ms: int
    reported_offset: int
    append_offset: int
    silent_since_ms: int = 0

    def observe(self, reported_offset: int, append_offset: int, silent_since_ms: int) -> None:
        """Record the slave's position at one moment."""
        self.reported_offset, self.append_offset = reported_offset, append_offset
        self.silent_since_ms = silent_since_ms

    def stalled(self, now_ms: int) -> bool:
        """True if there was no progress for slaveTimeout although data was sent."""
        return self.silent_since_ms > 0 and now_ms - self.silent_since_ms >= self.timeout_ms

    def in_sync(self, now_ms: int) -> bool:
        """True if the slave counts as a live replica."""
        return self.append_offset - self.reported_offset < self.max_gap_bytes and not self.stalled(now_ms)

    def due_ms(self) -> int | None:
        """Time at which the slave stalls if it stays silent. None if it is not silent."""
        return self.silent_since_ms + self.timeout_ms if self.silent_since_ms else None
