"""Reads queues of a running broker's store for services: one call a batch, bounded by the confirm offset.

A thin shell over `native/src/queue/queue_reader.h`, which describes the result of each call. `queue_reader_twin.py`
does the same in Python over the files, for simulations and as a reference.
"""

import errno
import os
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, NamedTuple

from ringmq.native import ffi, lib
from ringmq.store.consume_queue import Unit
from ringmq.store.layout import BORN_HOST_V6

SCAN_MAX: int = lib.RMQ_QUEUE_SCAN_MAX
TAGS_MAX: int = lib.RMQ_TAGS_MAX
PIECE_BYTES: int = ffi.sizeof("struct rmq_record_piece")
RANGES_MAX = int(lib.RMQ_RECORD_PIECES_MAX) // 4
"""Ranges of one call. An answer may be made of several."""
SYS_FLAG_AT, STORE_TIME_AT, STORE_TIME_AT_V6 = 36, 56, 68
"""Bytes of a record in front of these fields. The host of the sender in between has 8 or 20 bytes."""


class QueueReadError(Exception):
    """The requested units or record cannot be given. The message names queue and offset, or the position in the log."""


class DeletedError(QueueReadError):
    """Retention has deleted the requested offset. `next_offset` is the queue's next one.

    For a deleted topic `next_offset` is the requested offset, for a requested record -1.
    """

    def __init__(self, message: str, next_offset: int = -1) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class NotMappedError(QueueReadError):
    """The file cannot be mapped now: too few descriptors, too little memory, too many held records. Retry later."""


class NotConfirmedError(QueueReadError):
    """The record does not end below the confirm offset."""


class ColdError(QueueReadError):
    """The record of the unit is on disk, and a condition has to look at it. The kernel reads it now. Retry later."""


class DamagedError(QueueReadError):
    """The unit is damaged. The reader does not step over it: its record may still exist."""


class Units(NamedTuple):
    """Units in the order of the queue. `next_offset` is behind the last examined unit.

    If `next_offset` is the requested offset, the queue has no more units now.
    """

    units: list[Unit]
    next_offset: int


class Ranges(NamedTuple):
    """Records of a queue as ranges of the log, for an answer that names them."""

    pieces: bytes
    """A `struct rmq_record_piece` for each range."""
    messages: int
    size: int
    """Bytes of all records."""
    next_offset: int
    """Behind the last unit looked at. If it is the requested offset, nothing more can be taken now."""


class HeldRecord:
    """The bytes of a record in the mapped log.

    They stay, even if retention deletes the file, until `release`, or until the last slice of `data` is gone.
    """

    def __init__(self, data: memoryview, forget: Callable[["HeldRecord"], None]) -> None:
        self.data = data
        self._forget = forget

    def release(self) -> None:
        """Release the file. `data` cannot be read any more."""
        self.data.release()
        self._forget(self)

    def __enter__(self) -> memoryview:
        return self.data

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class RecordBatch:
    """Units of a queue with their records, which `QueueReader.hold` fills for C loops.

    `release` must come before the next `hold`.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.units = ffi.new("struct rmq_queue_unit[]", room)
        self.records = ffi.new("struct rmq_held_record[]", room)
        self.count = 0
        self.next_offset = 0
        """Offset of the queue's first unit behind the batch."""

    def store_time_ms(self, number: int) -> int:
        """Store time of the record in ms. The records of a batch are in this order, too."""
        at = self.records[number].at
        has_v6 = int.from_bytes(ffi.buffer(at + SYS_FLAG_AT, 4), "big") & BORN_HOST_V6
        return int.from_bytes(ffi.buffer(at + (STORE_TIME_AT_V6 if has_v6 else STORE_TIME_AT), 8), "big", signed=True)

    def release(self) -> None:
        """Release the records' files."""
        lib.rmq_queue_reader_release_all(self.records, self.count)
        self.count = 0


def _unit(found: Any) -> Unit:
    return Unit(found.queue_offset, found.commit_log_offset, found.size, found.tags_code)


class QueueReader:
    """A reader for one thread. `plane` is the C struct of a mapped plane, which must outlive the reader."""

    def __init__(self, plane: Any, log_files_max: int, queue_files_max: int) -> None:
        if log_files_max < 1 or queue_files_max < 1:
            raise ValueError(f"log_files_max = {log_files_max} or queue_files_max = {queue_files_max} is below 1")
        self._reader: Any = lib.rmq_queue_reader_open(plane, log_files_max, queue_files_max)
        if self._reader == ffi.NULL:
            raise MemoryError(f"no memory to map {log_files_max} log files and {queue_files_max} queue files")
        self._units = ffi.new("struct rmq_queue_unit[]", 0)
        self._next = ffi.new("int64_t *")
        self._filter = ffi.new("struct rmq_subscription_copy *")
        self._all = ffi.new("struct rmq_subscription_copy *", {"kind": lib.RMQ_SUBSCRIPTION_ALL})
        self._pieces = ffi.new("struct rmq_record_piece[]", RANGES_MAX)
        self._answer_size = ffi.new("struct rmq_answer_size *")
        self._program = ffi.new("uint64_t[]", 0)
        self._program_text: bytes | None = None
        self._records: set[HeldRecord] = set()
        self._holds = 0

    def __enter__(self) -> "QueueReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unmap everything, held records included. Raises BufferError while a slice of a held record is in use."""
        if self._reader is None:
            return
        for record in list(self._records):
            record.release()
        if self._holds:
            raise BufferError(
                f"{self._holds} records are in use, so their log files stay mapped: release their slices first"
            )
        lib.rmq_queue_reader_close(self._reader)
        self._reader = None  # a later call fails in cffi, not in freed memory

    @property
    def native(self) -> Any:
        """The C reader, for a C loop that reads single records. It is gone after `close`."""
        return self._reader

    def tick(self) -> None:
        """Unmap files that retention has deleted, about once a second. The mappings keep their blocks allocated."""
        lib.rmq_queue_reader_tick(self._reader)

    def units(self, slot: int, offset: int, room: int, wanted: Collection[int] | None = None) -> Units:
        """Return at most `room` units of the queue in this slot of the plane, from a queue offset on.

        `wanted` holds at most TAGS_MAX tag hashes. Units with other hashes and fillers are left out. None = every
        unit. A call looks at SCAN_MAX units at most. Raises `QueueReadError`, and `ValueError` for a slot without a
        ConsumeQueue.
        """
        if len(self._units) < room:
            self._units = ffi.new("struct rmq_queue_unit[]", room)
        chosen = ffi.NULL if wanted is None else self._filter_of(wanted)
        count = lib.rmq_queue_reader_units(self._reader, slot, offset, chosen, self._units, room, self._next)
        if count < 0:
            raise self._error(-count, f"queue slot {slot}, queue offset {offset}", self._next[0])
        found = self._units[0:count]
        return Units([_unit(one) for one in found], int(self._next[0]))

    def matching(self, slot: int, offset: int, room: int, program: bytes) -> Units:
        """Return at most `room` units whose records a compiled SQL92 condition wants (`filters`), from an offset on.

        No record is read from the disk: the call ends in front of the first one that is not in memory, and raises
        `ColdError` if that is the first of all. Raises `ValueError` for a program that is not sound.
        """
        if program is not self._program_text:
            self._program = ffi.new("uint64_t[]", (len(program) + 7) // 8)
            ffi.memmove(self._program, program, len(program))
            self._program_text = None
            if lib.rmq_filter_verify(ffi.cast("struct rmq_filter_program *", self._program), len(program)) < 0:
                raise ValueError(f"{len(program)} bytes are no sound program of a condition")
            self._program_text = program
        if len(self._units) < room:
            self._units = ffi.new("struct rmq_queue_unit[]", room)
        chosen = ffi.cast("struct rmq_filter_program *", self._program)
        count = lib.rmq_queue_reader_matching(self._reader, slot, offset, chosen, self._units, room, self._next)
        if count < 0:
            raise self._error(-count, f"queue slot {slot}, queue offset {offset}", self._next[0])
        return Units([_unit(found) for found in self._units[0:count]], int(self._next[0]))

    def ranges(self, slot: int, offset: int, count: int, messages: int = 0, size: int = 0) -> Ranges:
        """Name the records of at most `count` units from an offset on. Fillers are passed over.

        `messages` and `size` are those of the answer so far. The call ends in front of the first record with which the
        answer would have more messages or bytes than a pull's. The bounds of a range are those of its first record:
        they are lower on disk. Raises as `units` does.
        """
        taken, room = self._answer_size, len(self._pieces)
        taken.messages, taken.bytes = messages, size
        found = lib.rmq_queue_reader_ranges(self._reader, slot, offset, count, taken, self._pieces, room, self._next)
        if found < 0:
            raise self._error(-found, f"queue slot {slot}, queue offset {offset}", self._next[0])
        pieces = bytes(ffi.buffer(self._pieces, found * PIECE_BYTES))
        return Ranges(pieces, taken.messages - messages, taken.bytes - size, int(self._next[0]))

    def unit(self, slot: int, offset: int) -> Unit | None:
        """Return the unit at a queue offset, a filler too. None if nothing is there now. Raises `QueueReadError`, and
        `ValueError` for a slot without a ConsumeQueue."""
        if not len(self._units):
            self._units = ffi.new("struct rmq_queue_unit[]", 1)
        code = int(lib.rmq_queue_reader_unit(self._reader, slot, offset, self._units, self._next))
        if code == -errno.ENODATA:
            return None
        if code < 0:
            raise self._error(-code, f"queue slot {slot}, queue offset {offset}", self._next[0])
        return _unit(self._units[0])

    def hold(self, batch: RecordBatch, slot: int, offset: int) -> int:
        """Fill the batch with units of the queue from an offset on, hold their records, and return their number.

        Fillers are left out. The batch ends early at a record that cannot be held. Raises `QueueReadError` if the
        first one cannot.
        """
        found = lib.rmq_queue_reader_units(self._reader, slot, offset, self._all, batch.units, batch.room, self._next)
        if found < 0:
            raise self._error(-found, f"queue slot {slot}, queue offset {offset}", self._next[0])
        batch.count = int(lib.rmq_queue_reader_records(self._reader, batch.units, found, batch.records))
        if found and not batch.count:
            unit = batch.units[0]
            self.record(unit.commit_log_offset, unit.size).release()  # raises the error with its cause
        batch.next_offset = int(self._next[0] if batch.count == found else batch.units[batch.count].queue_offset)
        return batch.count

    def record(self, commit_log_offset: int, size: int) -> HeldRecord:
        """Hold the record of a unit. Raises `QueueReadError`."""
        held = ffi.new("struct rmq_held_record *")
        code = lib.rmq_queue_reader_record(self._reader, commit_log_offset, size, held)
        if code < 0:
            raise self._error(-code, f"record of {size} bytes at commit-log offset {commit_log_offset}", -1)
        self._holds += 1

        def drop(_: Any) -> None:
            lib.rmq_queue_reader_release(held)
            self._holds -= 1

        at = ffi.gc(held.at, drop)  # called when the last view of the bytes is gone
        record = HeldRecord(memoryview(ffi.buffer(at, size)).toreadonly(), self._records.discard)
        self._records.add(record)
        return record

    def in_memory(self, commit_log_offset: int) -> bool:
        """True if the record's page is presumably in memory. Otherwise a read may wait for the disk."""
        return bool(lib.rmq_queue_reader_in_memory(self._reader, commit_log_offset))

    def _filter_of(self, wanted: Collection[int]) -> Any:
        if len(wanted) > TAGS_MAX:
            raise ValueError(f"{len(wanted)} tag hashes are over the limit of {TAGS_MAX}")
        self._filter.kind = lib.RMQ_SUBSCRIPTION_TAGS
        self._filter.tag_count = len(wanted)
        for number, tag in enumerate(wanted):
            self._filter.tags[number] = tag
        return self._filter

    def _error(self, code: int, what: str, next_offset: int) -> Exception:
        if code == errno.EINVAL:
            return ValueError(f"{what}: no such ConsumeQueue")
        if code == errno.ENOENT:
            return DeletedError(f"{what} was deleted", next_offset)
        if code == errno.ENODATA:
            return NotConfirmedError(f"{what} is not below the confirm offset")
        if code == errno.EBADMSG:
            return DamagedError(f"{what}: the unit is damaged")
        if code == errno.EBUSY:
            return ColdError(f"{what}: its record is on disk")
        return NotMappedError(f"{what}: its file cannot be mapped now: {os.strerror(ffi.errno)}")
