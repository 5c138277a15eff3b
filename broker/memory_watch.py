"""The limit of the broker's whole memory (ringmqMemoryMax): the supervisor samples the memory and publishes the level.

The level is one word of the plane. From NEAR on, readers accept no connection, and control makes no name and registers
no client. At FULL, readers also close the connections with the largest backlogs of answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.guests import parts
from ringmq.ipc.memory import ENTER, FREE, FULL, NEAR, MemorySampler, MemoryUse, next_level
from ringmq.ipc.plane import Plane
from ringmq.remoting.log_throttle import LogThrottle

BESIDE_TABLES_BYTES = 688 << 20
"""Part of the default limit: the processes, the tables of control, answers that wait."""
SAMPLE_MIN_MS, SAMPLE_MAX_MS = 250, 1000
GROWTH_BYTES_PER_S = 1 << 30
"""A sample comes before memory that grows so fast is at NEAR. A broker without work is sampled once a second."""
LINES_PER_MINUTE = 10
_MIB = 1 << 20
_WORDS = {
    FREE: "below ringmqMemoryMax again: connections and clients are accepted",
    NEAR: "near ringmqMemoryMax: new connections, and names and registrations of clients are refused",
    FULL: "at ringmqMemoryMax: the largest backlogs of answers are closed, too",
}


def memory_max_bytes(config: BrokerConfig, plane_bytes: int, arena_bytes: int) -> int:
    """ringmqMemoryMax. Its default is the sum of the configured tables, those of guests too, all arenas and
    BESIDE_TABLES_BYTES."""
    of_guests = sum(bytes_of(config) for bytes_of in parts("memory_bytes"))
    return config.memory_max or plane_bytes + of_guests + arena_bytes + BESIDE_TABLES_BYTES


class MemoryWatch:
    """Samples the memory of the broker's processes and writes the words of the plane."""

    def __init__(self, plane: Plane, config: BrokerConfig, log: Callable[[str], None]) -> None:
        self._plane = plane
        self._log = log
        self._header = plane.header
        self._max_bytes = memory_max_bytes(config, int(self._header.plane_bytes), plane.arena_bytes())
        self._header.memory.max_bytes = self._max_bytes
        self._sampler = MemorySampler(plane.name)
        self._throttle = LogThrottle(LINES_PER_MINUTE)
        self._next_ms = 0

    def tick(self, now_ms: int, others: Iterable[int]) -> None:
        """Take a sample if it is time. Called several times a second with the ids of all other processes of the
        broker."""
        if now_ms < self._next_ms:
            return
        use = self._sampler.sample([os.getpid(), *others], now_ms)
        left_ms = int((ENTER[NEAR] * self._max_bytes - use.total) * 1000 / GROWTH_BYTES_PER_S)
        self._next_ms = now_ms + min(max(SAMPLE_MIN_MS, left_ms), SAMPLE_MAX_MS)
        self.take(use, now_ms)

    def take(self, use: MemoryUse, now_ms: int) -> None:
        """Publish one sample and its level."""
        self._header.memory.private_bytes, self._header.memory.shared_bytes = use.private, use.shared
        before = int(self._header.memory.level)
        level = next_level(before, use.total, self._max_bytes)
        if level == before:
            return
        self._header.memory.level = level
        line = self._throttle.line(_WORDS[level], now_ms)
        if line is not None:
            self._log(f"memory: {use.total // _MIB} of {self._max_bytes // _MIB} MiB, {line}")
