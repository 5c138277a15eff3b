"""Units of ConsumeQueues and BatchConsumeQueues, read in batches with pread.

A task may read thousands of queues, and mapping each would cost address space.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ringmq.spark_bridge.slices import QueueKey
from ringmq.store import layout
from ringmq.store.consume_queue import first_index

UNIT_BYTES = layout.CONSUME_QUEUE_UNIT.size
BATCH_UNIT_BYTES = layout.BATCH_UNIT.size


class _UnitFiles:
    """The files of one queue, addressed by unit number."""

    def __init__(self, folder: Path, unit_bytes: int) -> None:
        self.folder = folder
        self._unit_bytes = unit_bytes
        self._starts = sorted(int(name) for name in _names(folder) if len(name) == 20 and name.isdigit())
        self._file_bytes = self._size_of_first()

    def _size_of_first(self) -> int:
        while self._starts:
            try:
                return os.stat(self._path(self._starts[0])).st_size  # noqa: PTH116
            except FileNotFoundError:
                del self._starts[0]  # it went since the folder was listed
        return 0

    def _path(self, start: int) -> str:
        return f"{self.folder}/{start:020d}"

    @property
    def numbers(self) -> tuple[int, int]:
        """Return the range of unit numbers that the files cover."""
        if not self._starts:
            return 0, 0
        return self._starts[0] // self._unit_bytes, (self._starts[-1] + self._file_bytes) // self._unit_bytes

    def next_number(self, number: int) -> int | None:
        """Return the first unit number of the next file, None without one."""
        numbers = (start // self._unit_bytes for start in self._starts)
        return next((first for first in numbers if first > number), None)

    def read(self, first: int, count: int) -> bytes:
        """Return up to `count` units of one file from number `first` on, none if no file has them."""
        at = first * self._unit_bytes
        start = max((start for start in self._starts if start <= at), default=-1)
        if start < 0 or at >= start + self._file_bytes:
            return b""
        length = min(count * self._unit_bytes, start + self._file_bytes - at)
        try:
            descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""  # it went with the log's files
        try:
            data = os.pread(descriptor, length, at - start)
        finally:
            os.close(descriptor)
        return data[: len(data) // self._unit_bytes * self._unit_bytes]


def is_filler(position: int, size: int) -> bool:
    """True if a unit stands for an offset without a readable record."""
    return position == 0 and size == layout.FILLER_SIZE


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return []


FILLERS_AT_ONCE = 256


class QueueUnits:
    """A ConsumeQueue: 20 bytes per queue offset."""

    def __init__(self, folder: Path) -> None:
        self._files = _UnitFiles(folder, UNIT_BYTES)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self._files.folder

    def read(self, begin: int, end: int) -> bytes:
        """Return the units of [begin, end) in one file, none if the files have none at `begin`."""
        return self._files.read(begin, end - begin)

    def next_offset(self, queue_offset: int) -> int | None:
        """Return the first offset of the next file, None without one."""
        return self._files.next_number(queue_offset)

    def position(self, queue_offset: int) -> int | None:
        """Return the commit-log offset of the record, for a filler that of the next record, None for an unwritten
        unit.
        """
        count = 1
        while units := self._files.read(queue_offset, count):
            for position, size, _ in layout.CONSUME_QUEUE_UNIT.iter_unpack(units):
                if position < 0 or size <= 0:
                    return None
                if not is_filler(position, size):
                    return int(position)
            queue_offset, count = queue_offset + len(units) // UNIT_BYTES, FILLERS_AT_ONCE
        return None

    def first_from(self, position: int, begin: int, end: int) -> int | None:
        """Return the position of the queue's first record at or behind `position` among the offsets [begin, end)."""

        def is_behind(queue_offset: int) -> bool:
            found = self.position(queue_offset)
            return found is None or found >= position

        index = first_index(begin, end, is_behind)
        return self.position(index) if index < end else None


class BatchQueueUnits:
    """A BatchConsumeQueue: 46 bytes per record of several messages. Offsets count messages."""

    def __init__(self, folder: Path) -> None:
        self._files = _UnitFiles(folder, BATCH_UNIT_BYTES)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self._files.folder

    def _unit(self, number: int) -> tuple[int, int, int, int] | None:
        raw = self._files.read(number, 1)
        if not raw:
            return None
        position, size, _, _, base, count, _, _ = layout.BATCH_UNIT.unpack(raw)
        return (position, size, base, count) if position >= 0 and size > 0 and count > 0 else None

    def units(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the records with offsets in [begin, end).

        Each is (commit-log offset, size, queue offset of the first message, messages).
        """

        def reaches(number: int) -> bool:
            unit = self._unit(number)
            return unit is None or unit[2] + unit[3] > begin

        first, last = self._files.numbers
        for number in range(first_index(first, last, reaches), last):
            unit = self._unit(number)
            if unit is None or unit[2] >= end:
                return
            yield unit

    def position(self, queue_offset: int) -> int | None:
        """Return the commit-log offset of the record with this message."""
        return next((unit[0] for unit in self.units(queue_offset, queue_offset + 1)), None)

    def first_from(self, position: int, begin: int, end: int) -> int | None:
        """Return the position of the queue's first record at or behind `position` among the offsets [begin, end)."""
        return next((unit[0] for unit in self.units(begin, end) if unit[0] >= position), None)


def open_queue(root: str, key: QueueKey) -> QueueUnits | BatchQueueUnits:
    """Return the queue's files. A queue without files looks empty."""
    batch = Path(root) / layout.BATCH_CONSUME_QUEUE / key.topic / str(key.queue_id)
    if batch.is_dir():
        return BatchQueueUnits(batch)
    return QueueUnits(Path(root) / layout.CONSUME_QUEUE / key.topic / str(key.queue_id))
