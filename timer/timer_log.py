"""TimerLog: `<root>/timerlog/`, one unit for each message that waits, or that a roll or a delete has added.

The files have one size, and their names are the positions of their first bytes. A unit never crosses the end of a file:
a blank of 16 bytes ends it. Positions count over all files.

The last field of a unit, which stock writes as 0 and does not read, holds its seal (native/src/timer/timer_files.h).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntFlag
from pathlib import Path

from msgspec import Struct

from ringmq.store.layout import MAGIC_BLANK
from ringmq.store.mapped_file import FileQueue, MappedFileCache, StoreLoadError

FOLDER = "timerlog"
FILE_BYTES = 100 << 20
"""`mappedFileSizeTimerLog` unless it is set."""
UNIT = struct.Struct(">iqiqiqiiQ")
"""Size, previous position, magic, enqueue time (ms), delay (ms), log offset, record size, topic hash, seal."""
UNIT_BYTES = UNIT.size
_SEALED = struct.Struct(">5Q")
BLANK = struct.Struct(">iqI")
"""Bytes left in the file, 0, magic."""
NO_UNIT = -1
END = 1 << 62
FILE_BYTES_MIN = UNIT_BYTES + BLANK.size


class Magic(IntFlag):
    """The action of a unit when its slot is due."""

    DEFAULT = 1
    ROLL = 2
    """The message waits for longer than the window. It is put into the timer topic again."""
    DELETE = 4
    """The message names another one of the slot, which is not delivered."""


ALL_MAGICS = Magic.DEFAULT | Magic.ROLL | Magic.DELETE


class TimerUnit(Struct, frozen=True):
    """One unit and its position."""

    position: int
    previous: int
    """Position of the previous unit of the slot, NO_UNIT for its first."""
    magic: Magic
    enqueue_ms: int
    """Time of the wheel when the unit was written, a multiple of its precision."""
    delay_ms: int
    commit_log_offset: int
    size: int
    """Bytes of the record in the CommitLog."""
    topic_hash: int
    """Java's hash of the real topic."""
    seal: int = 0
    """Checksum of the other fields and the position, 0 in a unit of stock."""

    @property
    def slot_ms(self) -> int:
        """Return the time of the unit's slot."""
        return self.enqueue_ms + self.delay_ms

    def encode(self) -> bytes:
        """Return the bytes of the unit."""
        return UNIT.pack(
            UNIT_BYTES, self.previous, self.magic, self.enqueue_ms, self.delay_ms, self.commit_log_offset, self.size,
            self.topic_hash, self.seal,
        )  # fmt: skip


def seal(unit: bytes | memoryview, position: int) -> int:
    """Return the seal of the unit with these bytes. Twin: seal of native/src/timer/timer_files.c."""
    mixed = position + 1
    for word in _SEALED.unpack_from(unit, 4):
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 32
    return mixed or 1


def blank(left_bytes: int) -> bytes:
    """Return the end of a file in which `left_bytes` are left."""
    return BLANK.pack(left_bytes, 0, MAGIC_BLANK)


def units_per_file(file_bytes: int) -> int:
    """Return the number of units in a full file."""
    return (file_bytes - BLANK.size) // UNIT_BYTES


class TimerLog:
    """The units on disk, read-only. Another process may append meanwhile.

    Raises StoreLoadError for a file of another size.
    """

    def __init__(self, root: Path, file_bytes: int = FILE_BYTES) -> None:
        if file_bytes < FILE_BYTES_MIN:
            raise StoreLoadError(f"mappedFileSizeTimerLog is {file_bytes}, at least {FILE_BYTES_MIN} bytes are needed")
        self.files = FileQueue([root / FOLDER], file_bytes, MappedFileCache(4))
        self.files.check_sizes()

    @property
    def min_position(self) -> int:
        """Return the position of the oldest unit that retention has left."""
        return self.files.min_offset

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position. None if none is there, or if its seal is wrong."""
        data = self.files.read(position, UNIT_BYTES)
        if data is None:
            return None
        size, previous, magic, enqueue_ms, delay_ms, offset, record_bytes, topic_hash, sealed = UNIT.unpack(data)
        if size != UNIT_BYTES or not 0 <= magic <= ALL_MAGICS or (sealed and sealed != seal(data, position)):
            return None
        return TimerUnit(
            position, previous, Magic(magic), enqueue_ms, delay_ms, offset, record_bytes, topic_hash, sealed
        )  # fmt: skip

    def unit_before(self, position: int) -> TimerUnit | None:
        """Return the unit before the one at this position. None if retention has taken it, or there was none."""
        if position % self.files.file_bytes:
            return self.unit(position - UNIT_BYTES)
        last = (units_per_file(self.files.file_bytes) - 1) * UNIT_BYTES
        return self.unit(position - self.files.file_bytes + last)

    def units(self, position: int, end: int = END) -> Iterator[TimerUnit]:
        """Yield the units from a position on, over blanks, up to `end` or the first bytes that are neither."""
        while position < end:
            unit = self.unit(position)
            if unit is not None:
                yield unit
                position += UNIT_BYTES
            elif self._is_blank(position):
                position = self._following_file(position)
            else:
                return

    def chain(self, last: int) -> Iterator[TimerUnit]:
        """Yield the units of a slot, the newest first. Ends before units that retention has taken.

        Raises StoreLoadError where the chain leads to no unit, or does not lead backward.
        """
        position, limit = last, last + 1
        while position >= self.min_position:
            unit = self.unit(position) if position < limit else None
            if unit is None:
                raise StoreLoadError(f"{self._place(position)}: a slot of the timer wheel names no unit there")
            yield unit
            position, limit = unit.previous, position

    def _is_blank(self, position: int) -> bool:
        data = self.files.read(position, BLANK.size)
        if data is None:
            return False
        left_bytes, zero, magic = BLANK.unpack(data)
        return (left_bytes, zero, magic) == (self._following_file(position) - position, 0, MAGIC_BLANK)

    def _following_file(self, position: int) -> int:
        return position - position % self.files.file_bytes + self.files.file_bytes

    def _place(self, position: int) -> str:
        return f"{self.files.directories[0]}, position {position}"
