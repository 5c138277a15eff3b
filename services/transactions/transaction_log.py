"""The log and the two queues of transactions, as `Recovery` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct, field

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import parts_of_mark
from ringmq.native import ffi
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_commits, scan_marks
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import DoneHalves, HalfTable
from ringmq.services.transactions.halves import first_behind
from ringmq.store.queue_reader import DamagedError, DeletedError, QueueReader, RecordBatch
from ringmq.store.record import Record, parse_record

SCAN_STEP_BYTES = 4 << 20
BATCH = 256


class Damage(Struct):
    """The damaged units and records of one queue."""

    units: tuple[int, int] | None = None
    """The first and the last queue offset whose unit is damaged."""
    records: list[int] = field(default_factory=list)
    """Queue offsets whose record is damaged."""

    def add_unit(self, offset: int) -> None:
        """Note a damaged unit."""
        first, last = self.units or (offset, offset)
        self.units = min(first, offset), max(last, offset)


class TransactionLog(Protocol):
    """The records of half queue and op queue, and a scan of the log. `queue` is one of `HALVES` and `OPS`."""

    end: int
    """End of the part of the log that counts."""
    damage: tuple[Damage, Damage]
    """The places that `stage` and `records` have passed over in each queue."""

    def bounds(self, queue: int) -> tuple[int, int]:
        """(minimum, maximum) queue offset."""

    def records(self, queue: int, offset: int, end: int) -> Iterator[list[Record]]:
        """The records of a queue in [offset, end), in batches. Deleted and damaged ones are passed over. `damage` has
        the damaged ones of OPS. Raises QueueReadError."""

    def stage(self, offset: int, end: int, table: HalfTable, done: DoneHalves) -> Iterator[int]:
        """Stage the records of the half queue in [offset, end), in batches. Deleted and damaged ones are passed over.
        `damage` has the damaged ones. Yields the offset of the next batch. Raises QueueReadError."""

    def place(self, queue: int, offset: int) -> int:
        """Log offset of the record at this queue offset, the end of the log if there is none, 0 if it is not known."""

    def first_behind(self, queue: int, place: int) -> int:
        """Offset of the queue's first record behind this place in the log."""

    def commits(self, since: int) -> Iterator[list[Record]]:
        """The half messages that committed messages from `since` on name, in steps."""

    def expired(self, since: int) -> Iterator[list[int]]:
        """First offsets of the halves that have expired, from copies from `since` on, in steps."""

    def last_expired(self, count: int) -> Iterator[list[int]]:
        """First offsets of the halves of the last `count` copies in the queue of expired ones, the oldest first."""


HALVES, OPS = range(2)


class StoredTransactionLog:
    """Implements TransactionLog over the store.

    `slots`: queue slots in the plane of the half queue, the op queue, and the queue of expired halves. None: it has
    none.
    """

    def __init__(
        self, plane: Plane, reader: QueueReader, log: LogView, slots: tuple[int, int, int | None], end: int
    ) -> None:
        self._plane, self._reader, self._log, self.end = plane, reader, log, end
        self._slots, self._expired_slot = slots[:2], slots[2]
        self.damage = Damage(), Damage()
        self._batch = RecordBatch(BATCH)
        self._steps = {
            "segment_bytes": int(plane.header.settings.segment_bytes),
            "step_bytes": SCAN_STEP_BYTES,
        }

    def bounds(self, queue: int) -> tuple[int, int]:
        """See TransactionLog."""
        return self._bounds(self._slots[queue])

    def records(self, queue: int, offset: int, end: int) -> Iterator[list[Record]]:
        """See TransactionLog."""
        return self._records(self._slots[queue], offset, end, self.damage[queue] if queue == OPS else Damage())

    def stage(self, offset: int, end: int, table: HalfTable, done: DoneHalves) -> Iterator[int]:
        """See TransactionLog."""
        slot, damage = self._slots[HALVES], self.damage[HALVES]
        while offset < end:
            try:
                count = self._reader.hold(self._batch, slot, offset)
                damage.records += table.stage(self._batch, count, done)
                offset = max(self._batch.next_offset, offset + 1)
            except DamagedError:
                damage.add_unit(offset)
                offset += 1
            except DeletedError as error:
                offset = max(error.next_offset, offset + 1)
            finally:
                self._batch.release()
            yield offset

    def _bounds(self, slot: int) -> tuple[int, int]:
        entry = self._plane.queue(slot)
        return int(entry.min_offset), int(entry.max_offset)

    def _records(self, slot: int, offset: int, end: int, damage: Damage) -> Iterator[list[Record]]:
        while offset < end:
            found: list[Record | None] = []
            try:
                count = self._reader.hold(self._batch, slot, offset)
                found = [self._parsed(number) for number in range(count)]
                offsets = (int(self._batch.units[at].queue_offset) for at, one in enumerate(found) if one is None)
                damage.records += [bad for bad in offsets if bad < end]
                offset = max(self._batch.next_offset, offset + 1)
            except DamagedError:
                damage.add_unit(offset)
                offset += 1
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
        except (DeletedError, DamagedError):
            return 0
        return found[0].commit_log_offset if found else self.end

    def first_behind(self, queue: int, place: int) -> int:
        """See TransactionLog."""
        return first_behind(self._plane, self._reader, self._slots[queue], place)

    def commits(self, since: int) -> Iterator[list[Record]]:
        """See TransactionLog."""
        for places in scan_commits(self._log, self._since(since), self.end, **self._steps):
            halves = (records.half_of_commit(self._log.record, half, commit) for half, commit in places)
            yield [half for half in halves if half is not None]

    def expired(self, since: int) -> Iterator[list[int]]:
        """See TransactionLog."""
        for marks in scan_marks(self._log, records.ROLE, self._since(since), self.end, **self._steps):
            parts = (parts_of_mark(mark) for mark, _ in marks)
            yield [first for _, lane, first in parts if lane == records.EXPIRED_LANE]

    def last_expired(self, count: int) -> Iterator[list[int]]:
        """See TransactionLog."""
        if self._expired_slot is None:
            return
        begin, end = self._bounds(self._expired_slot)
        for batch in self._records(self._expired_slot, max(begin, end - count), end, Damage()):
            parts = (parts_of_mark(record.prepared_transaction_offset) for record in batch)
            yield [first for role, lane, first in parts if (role, lane) == (records.ROLE, records.EXPIRED_LANE)]

    def _since(self, since: int) -> int:
        return max(since, self._log.bounds().min_offset)
