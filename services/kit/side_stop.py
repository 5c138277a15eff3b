"""The end of a worker's start: the stop, or a change of the side."""

from __future__ import annotations

from msgspec import Struct

from ringmq.ipc.tenure import HasTenure, follows_master, is_master
from ringmq.ipc.worker import StopFlag


class SideStop(Struct, frozen=True):
    """Set once the broker stops, or has another side than the one on which the worker has begun.

    A start may wait for other workers, and these wait for its end when the side changes. follows: it began on a slave.
    """

    stop: StopFlag
    marks: HasTenure
    follows: bool

    @property
    def has_side(self) -> bool:
        """True while the broker has the side of the start."""
        return follows_master(self.marks) if self.follows else is_master(self.marks)

    @property
    def is_set(self) -> bool:
        """True if the start is to be given up."""
        return self.stop.is_set or not self.has_side
