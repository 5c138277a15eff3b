"""Memory of all processes of a broker, and the level on which readers and control act.

The sum counts, each once, the anonymous pages of all processes (swapped-out ones too) and the allocated pages of each
shared segment. Pages of mapped files do not count: they are page cache, and the kernel can reclaim them.

Processes that were forked from one another share anonymous pages until one of them writes. `smaps_rollup` divides such
a page among its sharers (Pss_Anon, SwapPss), so the sum over all of them counts it once. A process outside the broker
that shares the page gets its part, which then misses here. Only a program that forks the main process without exec has
such pages.
"""

from __future__ import annotations

import ctypes
import io
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

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
EXACT_EVERY_MS = 5_000
EXACT_COSTS = 100, 10
"""Costs of an exact sample between two of them: with the same processes, and after one has come or gone."""
_ANONYMOUS = (b"\nRssAnon:", b"\nVmSwap:")
"""In `status`. An upper bound: each process counts all its pages."""
_PROPORTIONAL = (b"\nPss_Anon:", b"\nSwapPss:")
"""In `smaps_rollup`."""


class MemoryUse(Struct, frozen=True):
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


class MemorySampler:
    """Samples the memory of a broker several times a second, with the exact sum now and then.

    `smaps_rollup` walks the page tables of a process: 0.1 ms for a small one, and 5 ms for each GiB of mapped files
    that the process has touched, while `status` takes 0.02 ms. The bytes that `status` counts more than once change
    slowly, so an exact sample measures them, and the samples up to the next one subtract them. Exact samples take at
    most 1 % of a CPU. If a process has come or gone, the next one comes sooner. Between two of them the sum may miss
    inherited pages that were written meanwhile, and counts those of a new process.
    """

    def __init__(self, plane_name: str, proc: Path = Path("/proc"), clock: Callable[[], int] | None = None) -> None:
        self._plane_name = plane_name
        self._proc = proc
        self._clock = clock or time.thread_time_ns
        """Nanoseconds that this thread has run."""
        self._repeated = 0
        self._processes: frozenset[int] = frozenset()
        self._measured_ms = -EXACT_EVERY_MS
        self._cost_ms = 0.0

    def sample(self, pids: Iterable[int], now_ms: int) -> MemoryUse:
        """Measure the processes and the segments of the plane. A process that has ended counts 0."""
        processes = frozenset(pids)
        at_most = sum(_anonymous_bytes(self._proc, pid) for pid in processes)
        if now_ms - self._measured_ms >= self._exact_after_ms(processes):
            began_ns = self._clock()
            self._repeated = max(0, at_most - private_bytes(processes, self._proc))
            self._cost_ms = (self._clock() - began_ns) / 1e6
            self._measured_ms, self._processes = now_ms, processes
        return MemoryUse(max(0, at_most - self._repeated), _shared_bytes(self._plane_name))

    def _exact_after_ms(self, processes: frozenset[int]) -> float:
        same, changed = EXACT_COSTS
        return max(EXACT_EVERY_MS, same * self._cost_ms) if processes == self._processes else changed * self._cost_ms


def memory_use(pids: Iterable[int], plane_name: str, proc: Path = Path("/proc")) -> MemoryUse:
    """Measure the processes and the segments of the plane exactly. A process that has ended counts 0."""
    return MemoryUse(private_bytes(pids, proc), _shared_bytes(plane_name))


def private_bytes(pids: Iterable[int], proc: Path = Path("/proc")) -> int:
    """The anonymous pages of these processes, each once, if all sharers of a page are among the processes.

    A process whose `smaps_rollup` cannot be read (of another user, or a kernel without it) counts all its pages.
    MemorySampler has the cost.
    """
    return sum(_proportional_bytes(proc, pid) for pid in pids)


def _proportional_bytes(proc: Path, pid: int) -> int:
    found = _kib_lines(f"{proc}/{pid}/smaps_rollup", _PROPORTIONAL)
    return sum(found) * 1024 if len(found) == len(_PROPORTIONAL) else _anonymous_bytes(proc, pid)


def _anonymous_bytes(proc: Path, pid: int) -> int:
    return sum(_kib_lines(f"{proc}/{pid}/status", _ANONYMOUS)) * 1024


def _kib_lines(path: str, names: Iterable[bytes]) -> list[int]:
    """The values of these lines of a file of /proc, without the missing ones.

    A sample is half of what a supervisor without work does, so it makes no objects of paths and lines.
    """
    try:
        with io.FileIO(path) as file:
            text = file.read()
    except OSError:
        return []
    found = [at + len(name) for name in names if (at := text.find(name)) >= 0]
    return [int(text[at : text.index(b"kB", at)]) for at in found]


def _shared_bytes(plane_name: str) -> int:
    """Of the segments of the plane, and of those that outlive it."""
    names = f"{plane_name}-", f"{segment.lasting_of_plane(plane_name, 'pop')}-"
    with os.scandir(segment.SHM_DIR) as entries:
        return sum(_allocated_bytes(entry) for entry in entries if entry.name.startswith(names))


def _allocated_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_blocks * 512
    except OSError:
        return 0
