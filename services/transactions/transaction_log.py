"""The log and the two queues of transactions, as `Recovery` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import parts_of_mark
from ringmq.native import ffi
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_commits, scan_marks
from ringmq.services.transactions import records
from ringmq.services.transactions.halves import first_behind
from ringmq.store.queue_reader import DeletedError, QueueReader, RecordBatch
from ringmq.store.record import Record, parse_record

SCAN_STEP_BYTES = 4 << 20
BATCH = 128


class TransactionLog(Protocol):
    """The records of half queue and op queue, and a scan of the log. `queue` is one of `HALVES` and `OPS`."""

    end: int
    """End of the part of the log that counts."""

    def bounds(self, queue: int) -> tuple[int, int]:
        """(minimum, maximum) queue offset."""

    def records(self, queue: int, offset: int, end: int) -> Iterator[list[Record]]:
        """The records of a queue in [offset, end), in batches. Deleted ones are passed over. Raises QueueReadError."""

    def place(self, queue: int, offset: int) -> int:
        """Log offset of the record at this queue offset, the end of the log if there is none."""

    def first_behind(self, queue: int, place: int) -> int:
        """Offset of the queue's first record behind this place in the log."""

    def commits(self, since: int) -> Iterator[list[Record]]:
        """The half messages that committed messages from `since` on name, in steps."""

    def expired(self, since: int) -> Iterator[list[int]]:
        """First offsets of the halves that have expired, from copies from `since` on, in steps."""


HALVES, OPS = range(2)


class StoredTransactionLog:
    """Implements TransactionLog over the store. `slots`: queue slots of half queue and op queue in the plane."""

    def __init__(self, plane: Plane, reader: QueueReader, log: LogView, slots: tuple[int, int], end: int) -> None:
        self._plane, self._reader, self._log, self._slots, self.end = plane, reader, log, slots, end
        self._batch = RecordBatch(BATCH)
        self._steps = {
            "segment_bytes": int(plane.header.settings.segment_bytes),
            "step_bytes": SCAN_STEP_BYTES,
        }

    def bounds(self, queue: int) -> tuple[int, int]:
        """See TransactionLog."""
        entry = self._plane.queue(self._slots[queue])
        return int(entry.min_offset), int(entry.max_offset)

    def records(self, queue: int, offset: int, end: int) -> Iterator[list[Record]]:
        """See TransactionLog."""
        while offset < end:
            found: list[Record | None] = []
            try:
                count = self._reader.hold(self._batch, self._slots[queue], offset)
                found = [self._parsed(number) for number in range(count)]
                offset = max(self._batch.next_offset, offset + 1)
            except DeletedError as error:
                offset = max(error.next_offset, offset + 1)
            finally:
                self._batch.release()
            yield [record for record in found if record is not None and record.queue_offset < end]

    def _parsed(self, number: int) -> Record | None:
        data: Any = ffi.buffer(self._batch.records[number].at, self._batch.units[number].size)
        return parse_record(bytes(data))[1]

    def place(self, queue: int, offset: int) -> int:
        """See TransactionLog."""
        try:
            found = self._reader.units(self._slots[queue], offset, 1).units
        except DeletedError:
            return 0
        return found[0].commit_log_offset if found else self.end

    def first_behind(self, queue: int, place: int) -> int:
        """See TransactionLog."""
        return first_behind(self._plane, self._reader, self._slots[queue], place)

    def commits(self, since: int) -> Iterator[list[Record]]:
        """See TransactionLog."""
        for places in scan_commits(self._log, self._since(since), self.end, **self._steps):
            found = ((place, self._log.record(place)) for place in places)
            halves = (records.half_at(data, place) for place, data in found if data is not None)
            yield [half for half in halves if half is not None]

    def expired(self, since: int) -> Iterator[list[int]]:
        """See TransactionLog."""
        for marks in scan_marks(self._log, records.ROLE, self._since(since), self.end, **self._steps):
            parts = (parts_of_mark(mark) for mark, _ in marks)
            yield [first for _, lane, first in parts if lane == records.EXPIRED_LANE]

    def _since(self, since: int) -> int:
        return max(since, self._log.bounds().min_offset)
