"""TimerWheel: `<root>/timerwheel`, an array of slots that is used round and round.

The number of slots is that of 14 days of seconds, whatever the precision. A slot with another time than the asked one
is left from an earlier round, so it counts as empty.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ringmq.store.layout import TIMER_WHEEL_FILE
from ringmq.store.mapped_file import StoreLoadError, data_chunks
from ringmq.timer.timer_log import NO_UNIT

SLOTS = 2 * 7 * 86_400
SLOT = struct.Struct(">qqqii")
"""Time in units of the precision, first position, last position, number of messages, 0."""
SLOT_BYTES = SLOT.size
FILE_BYTES = SLOTS * SLOT_BYTES
PRECISIONS_MS = (100, 200, 500, 1000)


class Slot(Struct, frozen=True):
    """The messages of one step of time. Without messages both positions are NO_UNIT."""

    time_ms: int
    first: int = NO_UNIT
    last: int = NO_UNIT
    count: int = 0
    """Messages less deletes, as stock counts: it may be negative, and it is 0 after a recovery of stock."""

    @property
    def is_empty(self) -> bool:
        """True if no unit belongs to the slot."""
        return self.last == NO_UNIT


class TimerWheel:
    """The slots on disk. Raises StoreLoadError for a file of another length, FileNotFoundError without one."""

    def __init__(self, root: Path, precision_ms: int = 1000) -> None:
        self.precision_ms = precision_ms
        self._path = root / TIMER_WHEEL_FILE
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size != FILE_BYTES:
                raise StoreLoadError(f"{self._path} has {size} bytes, not {FILE_BYTES}")
            self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)

    def slot(self, time_ms: int) -> Slot:
        """Return the slot that holds this time."""
        time = time_ms // self.precision_ms
        found, first, last, count, _ = SLOT.unpack_from(self._map, time % SLOTS * SLOT_BYTES)
        empty = Slot(time * self.precision_ms)
        return empty if found != time else Slot(empty.time_ms, first, last, count)

    def slots(self, from_ms: int) -> list[Slot]:
        """Return the slots with units of this time and later ones, in the order of their times.

        Parts of the file that were never written are not read.
        """
        first_time = from_ms // self.precision_ms
        found = [
            Slot(time * self.precision_ms, first, last, count)
            for time, first, last, count in self.written()
            if time >= first_time and last != NO_UNIT
        ]
        return sorted(found, key=lambda slot: slot.time_ms)

    def written(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield time (in units of the precision), first and last position and count of each used place, in their
        order."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for _, chunk in data_chunks(descriptor, 0, FILE_BYTES):
                for time, first, last, count, _ in SLOT.iter_unpack(chunk):
                    if time:
                        yield time, first, last, count
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
