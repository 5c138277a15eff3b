"""The log and its queues as services read them, up to the live confirm offset, which each call reads again."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.store.message_store import MessageStore
from ringmq.store.tail_checksums import window_crc


class LogBounds(Struct, frozen=True):
    """Positions in the log."""

    min_offset: int
    append_offset: int
    confirm_offset: int


class LogView:
    """Reads a store beside its owner. Returned bytes are views of the mapped log."""

    def __init__(self, plane: Plane, store: MessageStore) -> None:
        self._plane = plane
        self._store = store

    def bounds(self) -> LogBounds:
        """The current bounds."""
        marks = self._plane.watermarks
        return LogBounds(int(marks.min_offset), int(marks.append_offset), self._plane.confirm_offset())

    def record(self, commit_log_offset: int) -> memoryview | None:
        """The bytes at an offset, as many as the first four give, unchecked. None if they are not readable."""
        return self._store.commit_log.raw_at(commit_log_offset, self._plane.confirm_offset())

    def file(self, commit_log_offset: int) -> tuple[int, Any] | None:
        """(first offset, mapping) of the log file that holds this offset."""
        return self._store.commit_log.files.find(commit_log_offset)

    def crc(self, offset: int, length: int) -> int | None:
        """CRC-32 of a range of the log. None if a byte of it is missing."""
        return window_crc(self._store.commit_log, offset, length)

    def sync(self, offset: int, end_offset: int) -> None:
        """Write a range of the log to disk, for a service that cannot wait for the next flush. Raises OSError."""
        files = self._store.commit_log.files
        while offset < end_offset and (found := files.find(offset)) is not None:
            descriptor = os.open(files.path(found[0]), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            offset = found[0] + len(found[1])

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int]]:
        """(commit-log offset, size) of at most `count` readable records of a queue from `queue_offset` on."""
        queue = self._store.queue(topic, queue_id)
        if queue is None:
            return []
        confirm_offset = self._plane.confirm_offset()
        found = (queue.unit(offset) for offset in range(queue_offset, queue_offset + count))
        return [(unit.commit_log_offset, unit.size) for unit in found if unit and unit.end <= confirm_offset]

    def refresh(self) -> None:
        """Unmap files that retention has deleted. Called several times a minute."""
        self._store.refresh()
