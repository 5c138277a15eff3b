"""Waiting under a monitor, so that an interrupt never leaves its holder without it."""

from __future__ import annotations

import threading
from typing import Any


class Wakes(threading.Condition):
    """A condition of a monitor (an RLock, which knows its owner). A wait ends with the monitor held, even one that is
    interrupted while it takes the monitor again: by Ctrl-C, or as a greenlet that is killed. The stock condition would
    then leave without it, and what follows would release another's."""

    def __init__(self, monitor: Any) -> None:
        super().__init__(monitor)
        self._monitor = monitor
        self._acquire_restore = lambda _: take_again(monitor)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        finally:
            take_again(self._monitor)  # interrupted between giving it up and what takes it again


def take_again(monitor: Any) -> None:
    """Acquire an RLock, whatever interrupts that; the interrupt is raised afterwards."""
    interrupt: BaseException | None = None
    while not monitor._is_owned():
        try:
            monitor.acquire()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
