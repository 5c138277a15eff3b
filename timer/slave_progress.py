"""Control of a slave keeps its master's progress with timer messages for the worker `timer` (timer/follower.py)."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.live_config import LiveConfig
from ringmq.timer.master_timers import MasterTimers, write_master_timers
from ringmq.timer.timer_sync import TimerSync


class SlaveProgress:
    """See `ringmq.broker.replication.slave_role.SlaveProgress`. `root`: of the store."""

    what = "timer messages"

    def __init__(self, live: LiveConfig, root: Path) -> None:
        self._live = live
        self._root = root
        self.sync = TimerSync()
        self._written: MasterTimers | None = None

    @property
    def is_wanted(self) -> bool:
        """See SlaveProgress."""
        return self._live.config.timer_wheel_enable

    def close(self) -> None:
        """See SlaveProgress."""

    def save(self, own_end: int, now_ms: int) -> None:
        """See SlaveProgress."""
        timers = self.sync.settled(own_end)
        if timers is not None and timers != self._written:
            write_master_timers(self._root, timers)
            self._written = timers
