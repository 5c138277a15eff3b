"""The recovered store of a worker `timer`: what delivery on a master and the follower of a slave both work on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.log_view import LogView
from ringmq.services.republisher import QueueTarget
from ringmq.timer.core import TimerSettings
from ringmq.timer.recovery import Recovered
from ringmq.timer.slots import Slots
from ringmq.timer.target_index import TargetIndex
from ringmq.timer.timer_wheel import SLOTS


class WorkingStore(Struct, frozen=True):
    """Fields that do not change between start and stop. `role` is the number of the worker's role."""

    plane: Plane
    role: int
    root: Path
    queue: QueueTarget
    """The queue of the timer topic."""
    log_view: LogView
    saver_view: LogView
    """Belongs to the saver's thread."""
    slots: Slots
    targets: TargetIndex
    recovered: Recovered
    settings: Callable[[], TimerSettings]
    """Returns the current properties."""
    log_line: Callable[[str], None]
    """Writes a line that may recur at each turn."""
    wall_ms: Callable[[], int] = wall_ms

    def waits(self, open_ms: int) -> bool:
        """True if a slot at `open_ms` or later has units. None lies further ahead than half a round of the wheel: the
        window may have been larger."""
        ahead_ms = max(open_ms, self.wall_ms()) + (SLOTS // 2 + 2) * self.settings().precision_ms
        return self.slots.next_used(open_ms, ahead_ms) is not None
