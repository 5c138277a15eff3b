"""The part of a master's progress with timer messages that a stock slave may copy. No IO.

A stock slave adopts the answer to request 60 at once: as master it delivers no slot before that time. If its log lacks
copies of these slots, their messages are lost. So the master keeps its last checkpoints, and a slave gets the newest
one for which its log is long enough. A RingMQ slave waits for its log itself (timer/timer_sync.py).
"""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.timer.timer_checkpoint import TimerCheckpoint

KEPT_MAX = 64
"""A stock slave asks every 3 s. One whose log is behind for longer asks in vain."""


class SlaveCheckpoint(Struct, frozen=True):
    """A checkpoint, and the log offset before which the copies of all its delivered slots lie."""

    checkpoint: TimerCheckpoint
    log_offset: int


class SlaveCheckpoints(Struct):
    """The last checkpoints, the oldest first."""

    _kept: list[SlaveCheckpoint] = field(default_factory=list)

    def add(self, found: SlaveCheckpoint) -> None:
        """Add the current checkpoint."""
        if found not in self._kept[-1:]:
            self._kept.append(found)
            del self._kept[:-KEPT_MAX]

    def newest(self, slave_ends: list[int]) -> TimerCheckpoint | None:
        """Return the newest checkpoint for logs that end at these offsets. None if all need longer logs."""
        end = min(slave_ends, default=-1)
        return next((kept.checkpoint for kept in reversed(self._kept) if kept.log_offset <= end), None)
