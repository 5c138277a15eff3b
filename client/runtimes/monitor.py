"""Waits under a monitor that always end with the monitor held, even after an interrupt."""

from __future__ import annotations

import threading
from typing import Any


class MonitorCondition(threading.Condition):
    """A condition of a monitor (an RLock, which knows its owner). A wait always ends with the monitor held.

    This holds even if Ctrl-C, or the kill of a greenlet, interrupts the reacquisition. The stock condition would then
    return without the monitor, and a later release would release another owner's.
    """

    def __init__(self, monitor: Any) -> None:
        super().__init__(monitor)
        self._monitor = monitor
        self._acquire_restore = lambda _: reacquire(monitor)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        finally:
            reacquire(self._monitor)  # interrupted between giving it up and what takes it again


def reacquire(monitor: Any) -> None:
    """Acquire an RLock despite interrupts. The interrupt is raised afterwards."""
    interrupt: BaseException | None = None
    while not monitor._is_owned():
        try:
            monitor.acquire()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
