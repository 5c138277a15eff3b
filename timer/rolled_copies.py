"""Messages that were rolled, known by their copies in the timer topic.

Windows and precisions of earlier processes do not count.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np
from msgspec import Struct

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.ports import parts_of_mark
from ringmq.native import ffi, lib
from ringmq.store.queue_reader import (
    DamagedError,
    DeletedError,
    NotConfirmedError,
    NotMappedError,
    QueueReader,
    RecordBatch,
)
from ringmq.timer.timer_record import TimerRecord

BATCH = 512
NO_NAME = -1


def name_of(hashed_key: int, record: TimerRecord, rolls: int) -> int:
    """Name a message after so many rolls by the first half of its hashed key, and by times that copies keep. A delete
    has the key of the message that it names.

    The twin of native/src/timer/timer_steps.c. The record has a time.
    """
    assert record.out_ms is not None
    number = rolls << 1 | record.is_delete
    mixed = (record.out_ms + (number << 44)) * 0x9E3779B97F4A7C15 ^ record.born_ms * 0xC2B2AE3D27D4EB4F
    return (hashed_key ^ mixed) & 0xFFFF_FFFF_FFFF_FFFF | 1 << 63


def rolled_source(record: TimerRecord, hashed_key: int | None, role: int) -> int | None:
    """Name the message of which a record is a rolled copy: by the queue offset in the mark of this role, else by key,
    time and birth. None for other records. The twin of rmq_timer_rolled_sources."""
    named, _, source = parts_of_mark(record.mark)
    if named == role:
        return source
    if not record.rolls or hashed_key is None or record.out_ms is None:
        return None
    return name_of(hashed_key, record, record.rolls - 1)


class DoneBefore(Struct, frozen=True):
    """Knowledge of a start about deliveries and rolls. The twin of was_done_before in
    native/src/timer/timer_steps.c."""

    rolled: Container[int]
    """Results of `rolled_source` for the records before the queue offset `rolled_end`."""
    rolled_end: int
    known_offset: int
    known_ms: int
    """See timer.core.Progress."""

    def has(self, queue_offset: int, *, exact_ms: int, slot_ms: int, name: int = NO_NAME) -> bool:
        """True if the message went out or was rolled. `exact_ms`: its time by the steps that were in force then.
        `slot_ms`: its slot by the present window."""
        if queue_offset < self.rolled_end and (queue_offset in self.rolled or name in self.rolled):
            return True
        if queue_offset >= self.known_offset:
            return False
        return slot_ms < self.known_ms if queue_offset >= self.rolled_end else exact_ms <= self.known_ms


class RolledCopies:
    """The sources of rolled copies (rmq_timer_rolled_sources) among the records of [offset, `end`)."""

    def __init__(self, offset: int, sources: Iterable[int] = ()) -> None:
        self.end = offset
        self._sources = array("Q", sources)

    def read(
        self, reader: QueueReader, queue_slot: int, role: int, secret: Any, end: int, wait: Callable[[], object]
    ) -> Steps[array[int]]:
        """Read the records up to `end`, in steps. Returns the sources in ascending order.

        `wait`: called before a record is tried again that cannot be read now. One that is not confirmed is a copy, too:
        without it, its source would be rolled once more.
        """
        batch, found = RecordBatch(BATCH), ffi.new("uint64_t[]", BATCH)
        while self.end < end:
            try:
                reader.hold(batch, queue_slot, self.end)
                count = lib.rmq_timer_rolled_sources(role, batch.records, batch.units, batch.count, secret, found)
                self._sources.frombytes(ffi.buffer(found, count * self._sources.itemsize))
                if batch.next_offset == self.end:
                    break
                self.end = batch.next_offset
            except DeletedError as error:
                self.end = max(self.end + 1, error.next_offset)
            except DamagedError:
                self.end += 1
            except (NotConfirmedError, NotMappedError):
                wait()
            finally:
                batch.release()
            yield
        np.frombuffer(self._sources, np.uint64).sort()
        return self._sources
