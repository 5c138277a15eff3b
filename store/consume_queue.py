"""ConsumeQueues: for each queue offset the position, size and tags code of one record (20-byte units).

Max and min are never stored. The end is the last valid unit (offset >= 0 and size > 0) whose record is readable. The
begin is the first unit whose record the log still has. Bytes and rules: RocketMQ's ConsumeQueue.
"""

import bisect
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store.mapped_file import FileQueue, MappedFileCache, has_data

UNIT_BYTES = layout.CONSUME_QUEUE_UNIT.size
_PLACE = struct.Struct(">qi")  # the first two fields of a unit
_UNWRITTEN = 1 << 63


class Unit(NamedTuple):
    """One entry of a queue."""

    queue_offset: int
    commit_log_offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """Return the commit log offset behind the record."""
        return self.commit_log_offset + self.size

    @property
    def is_filler(self) -> bool:
        """True if the unit is a filler without a message: dispatch bridges a gap of queue offsets with fillers."""
        return self.size == layout.FILLER_SIZE and self.commit_log_offset == 0


def first_index(low: int, high: int, is_behind: Callable[[int], bool]) -> int:
    """Return the first index in [low, high) for which `is_behind` holds, `high` without one (binary search)."""
    while low < high:
        middle = (low + high) // 2
        if is_behind(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _units_in_file(path: str, first_offset: int) -> tuple[int, Unit | None]:
    """Return the number of leading valid units of a file and the last of them.

    The search gallops from the start with small reads. A start looks at every queue, and most queues are short.
    Mapping all of them, or touching pages in the middle of empty files, would cost more than the rest of a recovery.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:

        def unit_at(index: int) -> Unit | None:
            raw = os.pread(descriptor, UNIT_BYTES, index * UNIT_BYTES)
            if len(raw) < UNIT_BYTES:
                return None
            commit_log_offset, size, tags_code = layout.CONSUME_QUEUE_UNIT.unpack(raw)
            if commit_log_offset < 0 or size <= 0:
                return None
            return Unit(first_offset + index, commit_log_offset, size, tags_code)

        low, high = 0, 1
        while unit_at(high - 1) is not None:
            low, high = high, high * 2
        count = first_index(low, high - 1, lambda index: unit_at(index) is None)
        return count, unit_at(count - 1) if count else None
    finally:
        os.close(descriptor)


def _fillers(units: memoryview) -> int:
    """Return the number of leading fillers, which have no record and so no position in the log."""
    return int(lib.rmq_cq_fillers(ffi.from_buffer(units), len(units) // UNIT_BYTES))


def _unit_place(mapped: mmap.mmap, number: int) -> int:
    """Return the position of a unit's record. A filler has that of the next unit, an unwritten unit lies behind all."""
    commit_log_offset, size = _PLACE.unpack_from(mapped, number * UNIT_BYTES)
    if size == layout.FILLER_SIZE and commit_log_offset == 0:
        number += _fillers(memoryview(mapped)[number * UNIT_BYTES :])
        if number >= len(mapped) // UNIT_BYTES:
            return _UNWRITTEN
        commit_log_offset, size = _PLACE.unpack_from(mapped, number * UNIT_BYTES)
    return _UNWRITTEN if commit_log_offset < 0 or size <= 0 else int(commit_log_offset)


def _first_unit_at(mapped: mmap.mmap, low: int, border: int) -> int:
    """Return the number of the first unit from `low` on whose record begins at `border` or behind.

    If fillers are in front of that unit, the number is that of the first filler.
    """
    count = len(mapped) // UNIT_BYTES
    high, step = low, 1
    while high < count and _unit_place(mapped, high) < border:
        low, high, step = high + 1, high + step, step * 2
    return bisect.bisect_left(range(count), border, low, min(high, count), key=partial(_unit_place, mapped))


class ConsumeQueue:
    """Reader of one queue. `queue_offset` counts units from the start of the queue's life."""

    unit_bytes = UNIT_BYTES

    def __init__(self, directory: Path, topic: str, queue_id: int, file_bytes: int, cache: MappedFileCache) -> None:
        self.topic = topic
        self.queue_id = queue_id
        # Random: otherwise a page fault in a mostly empty file reads 128 KiB around it.
        self.files = FileQueue((directory,), file_bytes, cache, mmap.MADV_RANDOM)

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the unit, None if it is not written (yet) or its file is gone."""
        if queue_offset < 0:
            return None
        raw = self.files.read(queue_offset * UNIT_BYTES, UNIT_BYTES)
        if raw is None:
            return None
        commit_log_offset, size, tags_code = layout.CONSUME_QUEUE_UNIT.unpack(raw)
        if commit_log_offset < 0 or size <= 0:
            return None
        return Unit(queue_offset, commit_log_offset, size, tags_code)

    def _first_unit(self) -> Unit | None:
        start = self.files.min_offset
        try:
            raw = self.files.head(start, UNIT_BYTES)
            commit_log_offset, size, tags_code = layout.CONSUME_QUEUE_UNIT.unpack(raw)
        except (KeyError, FileNotFoundError, struct.error):
            return None  # no file, gone, or shorter than a unit
        return Unit(start // UNIT_BYTES, commit_log_offset, size, tags_code) if size > 0 else None

    def max_offset(self, readable_offset: int) -> int:
        """Return the queue offset behind the last unit whose record ends at or below `readable_offset`."""
        self.files.refresh()
        for start in reversed(self.files.starts):
            first = start // UNIT_BYTES

            def is_behind(index: int) -> bool:
                unit = self.unit(index)
                return unit is None or (unit.end > readable_offset and not unit.is_filler)

            end = first_index(first, first + self.files.file_bytes // UNIT_BYTES, is_behind)
            if end > first or start == self.files.starts[0]:
                return end
        return 0

    def min_offset(self, log_min_offset: int, max_offset: int) -> int:
        """Return the first queue offset whose record lies at or behind the log's first byte (correctMinOffset)."""
        first = self.files.min_offset // UNIT_BYTES
        oldest = self._first_unit() if first < max_offset else None
        if oldest is not None and oldest.commit_log_offset >= log_min_offset and not oldest.is_filler:
            return first
        low, high, found = first, max_offset, max_offset
        while low < high:
            middle = (low + high) // 2
            number = self._next_unit(middle, high)
            unit = self.unit(number) if number < high else None
            if number < high and (unit is None or unit.commit_log_offset < log_min_offset):
                low = number + 1
            else:
                found, high = number if number < high else found, middle
        return found

    def _next_unit(self, queue_offset: int, end: int) -> int:
        """Return the first offset from `queue_offset` on whose unit is no filler, at most `end`."""
        while queue_offset < end:
            rest = self.files.rest(queue_offset * UNIT_BYTES, end * UNIT_BYTES)
            if rest is None:
                break  # the file is gone
            fillers = _fillers(rest)
            queue_offset += fillers
            if fillers < len(rest) // UNIT_BYTES or not fillers:
                break
        return queue_offset

    def offsets_at(self, borders: Sequence[int]) -> list[int]:
        """Return for ascending commit log offsets the queue offset of the first unit that begins there or behind.

        Without such a unit it is the offset behind the last unit. Planners ask this of every queue, so the search
        gallops on mapped files and touches few pages of short queues.
        """
        starts = self.files.starts
        if not starts:
            return [0] * len(borders)
        found: list[int] = []
        number, mapping, low = -1, None, 0
        for border in borders:
            at = max(0, bisect.bisect_left(starts, border, key=self._first_place) - 1) if len(starts) > 1 else 0
            if at != number:
                number, mapping, low = at, self.files.find(starts[at]), 0
            first = starts[at] // UNIT_BYTES
            # retention has deleted the file, so all units that are left come later
            low = _first_unit_at(mapping[1], low, border) if mapping else self.files.file_bytes // UNIT_BYTES
            found.append(self._next_unit(first + low, self.files.end_offset // UNIT_BYTES))
        return found

    def _first_place(self, start: int) -> int:
        """Return the position of a file's first record."""
        if self.files.find(start) is None:
            return -1
        unit = self.unit(self._next_unit(start // UNIT_BYTES, self.files.end_offset // UNIT_BYTES))
        return _UNWRITTEN if unit is None else unit.commit_log_offset

    def units(self, from_offset: int, max_offset: int) -> Iterator[Unit]:
        """Yield units from `from_offset` up to `max_offset`, file by file, and stop at an unwritten one."""
        at = from_offset
        while at < max_offset:
            rest = self.files.rest(at * UNIT_BYTES, max_offset * UNIT_BYTES)
            if rest is None or len(rest) < UNIT_BYTES:
                return
            for commit_log_offset, size, tags_code in layout.CONSUME_QUEUE_UNIT.iter_unpack(
                rest[: len(rest) // UNIT_BYTES * UNIT_BYTES]
            ):
                if commit_log_offset < 0 or size <= 0:
                    return
                yield Unit(at, commit_log_offset, size, tags_code)
                at += 1

    # ---- recovery -----------------------------------------------------------------------------------------

    def recovered_end(self) -> tuple[int, int]:
        """Find the end as stock does: from the third newest file on, up to the first invalid unit.

        Returns (queue offset behind the last valid unit, end of that unit's record in the log or -1).
        """
        starts = self.files.starts
        end_offset, physical_end = 0, -1
        last = ffi.new("int64_t *")
        for start in starts[-3:]:
            found = self.files.find(start)
            if found is None:
                break
            units = len(found[1]) // UNIT_BYTES
            valid = lib.rmq_cq_valid_units(ffi.from_buffer(found[1]), units, last)
            end_offset = start // UNIT_BYTES + valid
            physical_end = last[0] if valid else physical_end
            if valid < units:
                break
        return end_offset, physical_end

    def sound_end(self, log_end: int, known_end: int | None = None) -> tuple[int, int, bool]:
        """Like `recovered_end`, but end also at a unit that no dispatch has written there.

        Of files before the last three, only the first and the last unit are read. Such a unit's record begins before
        the end of the one before, or ends behind `log_end`. Returns a third value: True if bytes behind the end are
        not zero, so the queue has been longer. A queue that ends at the queue offset `known_end` has not, and its
        files are not read for it.
        """
        starts = self.files.starts
        end_offset, physical_end = 0, -1
        for start in starts[:-3]:
            first_place, last_place = self._edges(start)
            if last_place == 0:
                continue  # fillers
            if first_place < physical_end or last_place < first_place or last_place > log_end:
                return start // UNIT_BYTES, physical_end, True
            physical_end = last_place
        last = ffi.new("int64_t *", physical_end)
        for number, start in enumerate(starts[-3:], max(0, len(starts) - 3)):
            found = self.files.find(start)
            if found is None:
                break
            units = len(found[1]) // UNIT_BYTES
            sound = lib.rmq_cq_sound_units(ffi.from_buffer(found[1]), units, log_end, last)
            end_offset, physical_end = start // UNIT_BYTES + sound, int(last[0])
            if end_offset == known_end:
                return end_offset, physical_end, False
            if sound < units:
                rest = [self.files.path_text(start), *map(self.files.path_text, starts[number + 1 :])]
                is_cut = has_data(rest[0], sound * UNIT_BYTES) or any(has_data(path, 0) for path in rest[1:])
                return end_offset, physical_end, is_cut
        return end_offset, physical_end, False

    def _edges(self, start: int) -> tuple[int, int]:
        """Return the places of the first and the last unit's record in a file, -2 for an impossible unit.

        A filler has the place of the other unit.
        """
        places = []
        with Path(self.files.path_text(start)).open("rb") as file:
            for at in (0, self.files.file_bytes - UNIT_BYTES):
                place, size = _PLACE.unpack(os.pread(file.fileno(), _PLACE.size, at))
                if size != layout.FILLER_SIZE or place:
                    places.append(place if place >= 0 and size > 0 else -2)
        return (places[0], places[-1]) if places else (0, 0)

    def trusted_end(self) -> tuple[int, int]:
        """Like `recovered_end`, by binary search: units written in one boot are valid up to the end, zero behind it."""
        for start in reversed(self.files.starts):
            count, unit = _units_in_file(self.files.path_text(start), start // UNIT_BYTES)
            if unit is not None:
                return start // UNIT_BYTES + count, self._record_end_up_to(unit)
        return self.files.min_offset // UNIT_BYTES, -1

    def _record_end_up_to(self, unit: Unit) -> int:
        """Return the end of the record of the last unit up to this one that is no filler, -1 without one."""
        first = self.files.starts[0] // UNIT_BYTES
        found: Unit | None = unit
        while found is not None and found.is_filler:
            found = self.unit(found.queue_offset - 1) if found.queue_offset > first else None
        return -1 if found is None else found.end

    def end_below(self, commit_log_offset: int) -> int:
        """Return the queue offset behind the last valid unit that begins below `commit_log_offset`."""
        for start in reversed(self.files.starts):
            found = self.files.find(start)
            if found is None:
                continue
            units = len(found[1]) // UNIT_BYTES
            kept = lib.rmq_cq_units_below(ffi.from_buffer(found[1]), units, commit_log_offset)
            if kept or start == self.files.starts[0]:
                return start // UNIT_BYTES + int(kept)
        return 0
