"""BatchConsumeQueues (topics with queue.type=BatchCQ): one 46-byte unit per record of one or more messages.

Queue offsets count messages: a unit covers [base offset, base offset + batch size). Lookup is a binary search on the
base offset. This module reads and recovers. Dispatch writes the queues (`native/src/queue/batch_queues.c`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ringmq.store import layout
from ringmq.store.consume_queue import first_index
from ringmq.store.mapped_file import FileQueue, MappedFileCache

UNIT_BYTES = layout.BATCH_UNIT.size


class BatchUnit(NamedTuple):
    """One entry of a batch queue. `queue_offset` is the offset of its first message."""

    queue_offset: int
    commit_log_offset: int
    size: int
    tags_code: int
    store_time_ms: int
    batch_size: int

    @property
    def end(self) -> int:
        """Return the commit log offset behind the record."""
        return self.commit_log_offset + self.size


class BatchConsumeQueue:
    """Reader of one batch queue, with the methods of `ConsumeQueue`."""

    unit_bytes = UNIT_BYTES

    def __init__(self, directory: Path, topic: str, queue_id: int, file_bytes: int, cache: MappedFileCache) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = FileQueue((directory,), file_bytes, cache)

    def unit_number(self, number: int) -> BatchUnit | None:
        """Return the unit by its number in the file queue, None if it is not written or its file is gone."""
        raw = self.files.read(number * UNIT_BYTES, UNIT_BYTES) if number >= 0 else None
        if raw is None:
            return None
        offset, size, tags_code, store_time, base, count, _, _ = layout.BATCH_UNIT.unpack(raw)
        if offset < 0 or size <= 0 or count <= 0:
            return None
        return BatchUnit(base, offset, size, tags_code, store_time, count)

    def numbers(self, readable_offset: int) -> tuple[int, int]:
        """Return the range of unit numbers on disk whose records are readable."""
        return self.files.min_offset // UNIT_BYTES, self._end_number(readable_offset)

    def _end_number(self, readable_offset: int) -> int:
        first = self.files.min_offset // UNIT_BYTES
        last = self.files.end_offset // UNIT_BYTES

        def is_behind(number: int) -> bool:
            unit = self.unit_number(number)
            return unit is None or unit.end > readable_offset

        return first_index(first, last, is_behind)

    def unit(self, queue_offset: int) -> BatchUnit | None:
        """Return the unit that covers a message's queue offset."""
        first = self.files.min_offset // UNIT_BYTES
        end = self._end_number(1 << 62)

        def is_behind(number: int) -> bool:
            unit = self.unit_number(number)
            return unit is None or unit.queue_offset > queue_offset

        unit = self.unit_number(first_index(first, end, is_behind) - 1)
        if unit is None or not unit.queue_offset <= queue_offset < unit.queue_offset + unit.batch_size:
            return None
        return unit

    def max_offset(self, readable_offset: int) -> int:
        """Return the message offset behind the last readable unit."""
        self.files.refresh()
        unit = self.unit_number(self._end_number(readable_offset) - 1)
        return unit.queue_offset + unit.batch_size if unit else 0

    def min_offset(self, log_min_offset: int, max_offset: int) -> int:
        """Return the first message offset whose record the log still has, `max_offset` without one."""
        first = self.files.min_offset // UNIT_BYTES
        end = self._end_number(1 << 62)

        def is_behind(number: int) -> bool:
            unit = self.unit_number(number)
            return unit is not None and unit.commit_log_offset >= log_min_offset

        unit = self.unit_number(first_index(first, end, is_behind))
        return min(unit.queue_offset, max_offset) if unit else max_offset

    def offsets_at(self, borders: Sequence[int]) -> list[int]:
        """Return for each commit log offset the offset of the first message whose unit begins there or behind.

        Without such a unit it is the offset behind the last message.
        """
        first, end = self.files.min_offset // UNIT_BYTES, self._end_number(1 << 62)
        found = []
        for border in borders:

            def is_behind(number: int, border: int = border) -> bool:
                unit = self.unit_number(number)
                return unit is None or unit.commit_log_offset >= border

            number = first_index(first, end, is_behind)
            unit, last = self.unit_number(number) if number < end else None, self.unit_number(end - 1)
            found.append(unit.queue_offset if unit else last.queue_offset + last.batch_size if last else 0)
        return found

    def units(self, from_offset: int, max_offset: int) -> Iterator[BatchUnit]:
        """Yield the units that cover [from_offset, max_offset)."""
        first = self.files.min_offset // UNIT_BYTES
        end = self._end_number(1 << 62)

        def covers(number: int) -> bool:
            unit = self.unit_number(number)
            return unit is None or unit.queue_offset + unit.batch_size > from_offset

        for number in range(first_index(first, end, covers), end):
            unit = self.unit_number(number)
            if unit is None or unit.queue_offset >= max_offset:
                return
            yield unit

    def recovered_end(self) -> tuple[int, int]:
        """Return (message offset behind the last valid unit of a linear scan, end of its record or -1)."""
        end, physical_end = 0, -1
        for start in self.files.starts[-3:]:
            raw = self.files.read(start, self.files.file_bytes // UNIT_BYTES * UNIT_BYTES)
            if raw is None:
                break
            for offset, size, _, _, base, count, _, _ in layout.BATCH_UNIT.iter_unpack(raw):
                if offset < 0 or size <= 0 or count <= 0:
                    return end, physical_end
                end, physical_end = base + count, offset + size
        return end, physical_end

    def trusted_end(self) -> tuple[int, int]:
        """Like `recovered_end`, by binary search."""
        unit = self.unit_number(self._end_number(1 << 62) - 1)
        return (unit.queue_offset + unit.batch_size, unit.end) if unit else (0, -1)

    def bytes_below(self, commit_log_offset: int) -> int:
        """Return the length in bytes of the valid units that begin below `commit_log_offset`."""
        first = self.files.min_offset // UNIT_BYTES

        def is_behind(number: int) -> bool:
            unit = self.unit_number(number)
            return unit is None or unit.commit_log_offset >= commit_log_offset

        return first_index(first, self._end_number(1 << 62), is_behind) * UNIT_BYTES
