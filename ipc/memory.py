"""Memory of all processes of a broker, and the level on which readers and control act.

The sum counts the private pages of every process (RssAnon and swapped-out pages) and, once, the allocated pages of each
shared segment. Pages of mapped files do not count: they are page cache, and the kernel can reclaim them.
"""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ringmq.ipc import segment

FREE, NEAR, FULL = 0, 1, 2
"""RMQ_MEMORY_* (settings_layout.h)."""
ENTER = {NEAR: 0.90, FULL: 0.97}
"""Level -> share of the limit from which the level holds."""
LEAVE = {NEAR: 0.85, FULL: 0.93}
"""Level -> share of the limit below which the level ends. It is lower, so that a level does not change with every
sample.
"""
RETURN_EVERY_MS = 5_000
_COUNTED = (b"\nRssAnon:", b"\nVmSwap:")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One sample, in bytes."""

    private: int
    shared: int

    @property
    def total(self) -> int:
        """Private and shared bytes. ringmqMemoryMax limits this sum."""
        return self.private + self.shared


def next_level(level: int, used_bytes: int, max_bytes: int) -> int:
    """The level after a sample, given the one before. `max_bytes` is over 0."""
    part = used_bytes / max_bytes
    if part >= ENTER[FULL] or (level == FULL and part >= LEAVE[FULL]):
        return FULL
    if part >= ENTER[NEAR] or (level >= NEAR and part >= LEAVE[NEAR]):
        return NEAR
    return FREE


class MemoryReturn:
    """Returns freed memory to the system while the broker is near its limit.

    The C library retains freed memory for later. After a flood of requests a process would stay as large as it was, and
    the level would never fall. A call takes about 0.1 ms a MiB.
    """

    def __init__(self, give_back: Callable[[], object] | None = None) -> None:
        self._give_back = give_back or (lambda: ctypes.CDLL(None).malloc_trim(0))
        self._next_ms = 0

    def tick(self, level: int, now_ms: int) -> None:
        """Return memory if it is due. The process calls it several times a second for its own memory."""
        if level != FREE and now_ms >= self._next_ms:
            self._next_ms = now_ms + RETURN_EVERY_MS
            self._give_back()


def memory_use(pids: Iterable[int], plane_name: str, proc: Path = Path("/proc")) -> MemoryUse:
    """Measure the processes and the segments of the plane. A process that has ended counts 0.

    A sample is half of what a supervisor without work does, so it makes no objects of paths and lines.
    """
    private = sum(_private_bytes(f"{proc}/{pid}/status") for pid in pids)
    with os.scandir(segment.SHM_DIR) as entries:
        shared = sum(_allocated_bytes(entry) for entry in entries if entry.name.startswith(f"{plane_name}-"))
    return MemoryUse(private, shared)


def _private_bytes(status: str) -> int:
    try:
        with io.FileIO(status) as file:
            text = file.read()
    except OSError:
        return 0
    found = [at + len(name) for name in _COUNTED if (at := text.find(name)) >= 0]
    return sum(int(text[at : text.index(b"kB", at)]) * 1024 for at in found)


def _allocated_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_blocks * 512
    except OSError:
        return 0
