"""The queue reader in Python, over the files and without a plane.

Simulations read with it, and tests compare it with the C core (`native/src/queue/queue_reader.c`).
"""

import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ringmq.store import layout
from ringmq.store.consume_queue import UNIT_BYTES, ConsumeQueue, Unit
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_reader import (
    RANGES_MAX,
    SCAN_MAX,
    DamagedError,
    DeletedError,
    NotConfirmedError,
    QueueReadError,
    Ranges,
    Units,
)

_PIECE = struct.Struct("=QII")


class QueueBounds(NamedTuple):
    """A queue as the plane publishes it. `max_offset` is the next offset: messages at or above it are not readable."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    is_live: bool = True


class Bounds(Protocol):
    """The bounds that a plane publishes."""

    confirm_offset: int
    min_offset: int
    """The first byte of the log."""
    append_offset: int

    def queue(self, slot: int) -> QueueBounds:
        """Return the queue in a slot of the table."""


class QueueReaderTwin:
    """The methods of `QueueReader`."""

    def __init__(self, store: MessageStore, bounds: Bounds, memory_window_bytes: int) -> None:
        self._store = store
        self._bounds = bounds
        self._memory_window_bytes = memory_window_bytes

    def units(self, slot: int, offset: int, room: int, wanted: Collection[int] | None = None) -> Units:
        """See QueueReader."""
        queue = self._bounds.queue(slot)
        what = f"queue slot {slot}, queue offset {offset}"
        if not queue.is_live:
            raise DeletedError(f"{what} was deleted", offset)
        if offset < queue.min_offset:
            raise DeletedError(f"{what} was deleted", queue.min_offset)
        taken: list[Unit] = []
        at = offset
        try:
            for unit in self._each(queue, offset, what):
                if len(taken) == room:
                    break
                if not unit.is_filler and unit.end > self._bounds.append_offset:
                    raise DamagedError(f"{what}: the unit is damaged")
                if not unit.is_filler and unit.end > self._bounds.confirm_offset:
                    break
                if not unit.is_filler and unit.commit_log_offset < self._bounds.min_offset:
                    if at == offset:
                        raise DeletedError(f"{what} was deleted", self._behind_deleted(queue, offset, what))
                    break
                at += 1
                if wanted is None or (not unit.is_filler and _java_int(unit.tags_code) in wanted):
                    taken.append(unit)
        except QueueReadError:
            if at == offset:
                raise
        return Units(taken, at)

    def _behind_deleted(self, queue: QueueBounds, offset: int, what: str) -> int:
        """The offset behind the units of one file, from `offset` on, whose records retention has deleted."""
        per_file = self._store.config.consume_queue_file_bytes // UNIT_BYTES
        behind, file_end = offset, (offset // per_file + 1) * per_file
        try:
            for unit in self._each(queue, offset, what):
                if behind == file_end or unit.is_filler or unit.commit_log_offset >= self._bounds.min_offset:
                    break
                behind += 1
        except QueueReadError:
            pass
        return behind

    def matching(self, slot: int, offset: int, room: int, wants: Callable[[memoryview], bool]) -> Units:
        """See QueueReader. `wants` looks at a record. All records count as loaded."""
        taken: list[Unit] = []
        at = offset
        while len(taken) < room and at - offset < SCAN_MAX:
            try:
                units, behind = self.units(slot, at, 1)
            except QueueReadError:
                if at > offset:
                    break
                raise
            if behind == at:
                break
            taken += (unit for unit in units if not unit.is_filler and self._wants(unit, wants))
            at = behind
        return Units(taken, at)

    def ranges(
        self, slot: int, offset: int, count: int, messages: int, size: int, exceeds: Callable[[int, int, int], bool]
    ) -> Ranges:
        """See QueueReader. `exceeds(position, messages, size)`: no answer may have so many with a record there."""
        found: list[tuple[int, int, int]] = []
        file_bytes, at, taken, total = self._store.config.commit_log_file_bytes, offset, 0, 0
        while at - offset < count:
            try:
                units, behind = self.units(slot, at, 1)
            except QueueReadError:
                if at > offset:
                    break
                raise
            if behind == at:
                break
            for unit in units if not units[0].is_filler else ():
                position = unit.commit_log_offset
                first, length, number = found[-1] if found else (-1, 0, 0)
                is_new = first + length != position or first // file_bytes != position // file_bytes
                too_much = exceeds(position if is_new else first, messages + taken + 1, size + total + unit.size)
                if too_much or (is_new and len(found) == RANGES_MAX):
                    return self._ranges(found, taken, total, at)
                if is_new:
                    found.append((position, unit.size, 1))
                else:
                    found[-1] = first, length + unit.size, number + 1
                taken, total = taken + 1, total + unit.size
            at = behind
        return self._ranges(found, taken, total, at)

    @staticmethod
    def _ranges(found: list[tuple[int, int, int]], messages: int, size: int, next_offset: int) -> Ranges:
        return Ranges(b"".join(_PIECE.pack(*piece) for piece in found), messages, size, next_offset)

    def _wants(self, unit: Unit, wants: Callable[[memoryview], bool]) -> bool:
        try:
            with self.record(unit.commit_log_offset, unit.size) as data:
                return wants(data)
        except DeletedError:
            return False

    def unit(self, slot: int, offset: int) -> Unit | None:
        """See QueueReader."""
        units, _ = self.units(slot, offset, 1)
        return units[0] if units else None

    def _each(self, queue: QueueBounds, offset: int, what: str) -> Iterator[Unit]:
        files = self._store.queue(queue.topic, queue.queue_id)
        at, end = offset, min(queue.max_offset, offset + SCAN_MAX)
        while at < end:
            rest = files.files.rest(at * UNIT_BYTES, end * UNIT_BYTES) if isinstance(files, ConsumeQueue) else None
            if rest is None:
                per_file = self._store.config.consume_queue_file_bytes // UNIT_BYTES
                raise DeletedError(f"{what} was deleted", min((at // per_file + 1) * per_file, queue.max_offset))
            whole = rest[: len(rest) // UNIT_BYTES * UNIT_BYTES]
            for position, size, tags_code in layout.CONSUME_QUEUE_UNIT.iter_unpack(whole):
                if position < 0 or size <= 0:
                    raise DamagedError(f"{what}: the unit is damaged")
                yield Unit(at, position, size, tags_code)
                at += 1
            if not whole:
                raise DamagedError(f"{what}: the unit is damaged")

    @contextmanager
    def record(self, commit_log_offset: int, size: int) -> Iterator[memoryview]:
        """See QueueReader. The bytes of a mapping stay as long as they are referenced."""
        what = f"record of {size} bytes at commit-log offset {commit_log_offset}"
        file_bytes = self._store.config.commit_log_file_bytes
        if not 0 < size <= file_bytes - commit_log_offset % file_bytes:
            raise DamagedError(f"{what}: the unit is damaged")
        if commit_log_offset + size > self._bounds.confirm_offset:
            raise NotConfirmedError(f"{what} is not below the confirm offset")
        is_there = commit_log_offset >= self._bounds.min_offset
        data = self._store.commit_log.files.read(commit_log_offset, size) if is_there else None
        if data is None:
            raise DeletedError(f"{what} was deleted")
        yield data

    def in_memory(self, commit_log_offset: int) -> bool:
        """See QueueReader."""
        return self._bounds.append_offset - commit_log_offset <= self._memory_window_bytes


def _java_int(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
