"""Puts due messages into the log again, through the worker's ordered port.

The token of a request is the mark of its source record, so a start finds in the log what was delivered. Copies in
flight are in the order of their requests. After a refusal `Submissions` of `services/kit` waits until each request has
its completion. Then the caller returns to its slot what was not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.ipc.republish_words import SKIPPED
from ringmq.native import ffi, lib
from ringmq.remoting import properties
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.submissions import Collected, InOrder, copy_records
from ringmq.services.missing_targets import distinct_targets, first_not_copied
from ringmq.services.republisher import QueueTarget
from ringmq.store.native_copies import NativeCopies
from ringmq.store.queue_reader import DamagedError, DeletedError, QueueReader, QueueReadError
from ringmq.store.record_copy import CopyLimits, EditKind, PairEdit, RecordCopy
from ringmq.timer.core import Publish
from ringmq.timer.slots import BATCH, Slots


def copy_templates() -> list[RecordCopy]:
    """Copies with edits of their own, in the order that rmq_timer_copies knows."""
    found = []
    for number in range(BATCH):
        edits = (
            PairEdit(EditKind.SET, properties.TIMER_ENQUEUE_MS.encode(), number),
            PairEdit(EditKind.SET, properties.TIMER_DEQUEUE_MS.encode(), 0),
            PairEdit(EditKind.ADD, properties.TIMER_ROLL_TIMES.encode(), 1),
        )  # fmt: skip
        assert len(edits) == lib.RMQ_TIMER_EDITS
        found.append(RecordCopy(b"", edits=edits))
    return found


class Publisher:
    """The port of `role`. No other code of the process may use it."""

    def __init__(
        self, plane: Plane, role: int, slots: Slots, timer_queue: QueueTarget, log_line: Callable[[str], None]
    ) -> None:
        self._plane, self._slots, self._log_line = plane, slots, log_line
        self._has_started = False
        self.submissions = InOrder.of_role(plane, role, log_line, settle=self._settle)
        self.port, self.words, self.flow = self.submissions.port, self.submissions.words, self.submissions.flow
        self.reader = QueueReader(plane.struct, 8, 4)
        limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        self._native = NativeCopies(copy_templates(), limits, self.port.arena, 0, 0)
        self._edits = ffi.cast("struct rmq_pair_edit *", self._native.batch.edits)
        self._records = ffi.new("struct rmq_held_record[]", BATCH)
        self._timer_target = ffi.new("struct rmq_record_copy *")
        self._timer_target.topic_id, self._timer_target.queue_slot = timer_queue.topic_id, timer_queue.queue_slot
        self._timer_target.queue_id = timer_queue.queue_id

    def is_settled(self) -> bool:
        """True once each request of a dead predecessor has its completion, and every record of it is in its queue."""
        self._has_started = self._has_started or self.collect().has_settled
        return self._has_started

    def collect(self) -> Collected:
        """Take completions, and settle a refusal once every request has one."""
        return self.submissions.collect(monotonic_ms())

    def _settle(self) -> bool:
        end = self.port.settled_end
        return self._has_started or (end is not None and self._plane.watermarks.dispatched_offset >= end)

    @property
    def log_offset(self) -> int:
        """End of the last copy of this process that is known to be stored. 0 = none is known."""
        return self.submissions.log_end

    # -- publish -------------------------------------------------------------------------------------------

    def publish(self, due: Publish, now_ms: int) -> int:
        """Submit copies. Returns their number. The clock may have been set back since `due` was decided."""
        slot, batch = self._slots.slot(due.slot_ms), self._slots.batch
        until_ms = min(due.until_ms, now_ms)
        batch.room = min(BATCH, due.room, self.submissions.room) if self.submissions.may_submit(monotonic_ms()) else 0
        count = lib.rmq_timer_take(self._slots.files.struct, slot, until_ms, batch) if batch.room > 0 else 0
        self._slots.files.check()
        if not count:
            return 0
        held = int(lib.rmq_queue_reader_records(self.reader.native, batch.units, count, self._records))
        try:
            done = self._copy(slot, held, now_ms) if held else self._without_record()
        finally:
            lib.rmq_queue_reader_release_all(self._records, held)
        requests, tally = self._native.requests, self._slots.tally
        if lib.rmq_timer_submitted(self._slots.flight, slot, batch, requests, done, ffi.addressof(tally)):
            raise MemoryError("no memory for the messages of a slot")
        made = self.submissions.publish(self._native, batch.units, done)
        self.words[SKIPPED] = tally.skipped
        return made

    def _without_record(self) -> int:
        """The first record cannot be read: passed over if it is gone, else it waits. Returns how many are over."""
        unit = self._slots.batch.units[0]
        try:
            self.reader.record(unit.commit_log_offset, unit.size).release()
        except (DeletedError, DamagedError) as error:
            self._log_line(f"skips a timer message: {error}")
            self._native.requests[0].kind = 0
            return 1
        except QueueReadError as error:
            self._log_line(f"waits: {error}")
        return 0

    def _copy(self, slot: Any, held: int, now_ms: int) -> int:
        """Copy records. Returns the number of messages that were copied or cannot be copied."""
        native, batch = self._native, self._slots.batch
        copies = native.copies
        lib.rmq_record_copies_read(copies, batch.units, self._records, held)
        missing = lib.rmq_copy_targets(self._plane.struct, copies, held, lib.RMQ_NONE)
        precision_ms = self._slots.files.struct.precision_ms
        lib.rmq_timer_copies(slot, batch, copies, held, self._edits, self._timer_target, now_ms, precision_ms)
        if missing:
            for target in distinct_targets(copies, held):
                self._log_line(f"skips timer messages {target}")
        done = copy_records(self.submissions.arena, native.batch, copies, held, native.requests)
        not_copied = first_not_copied(copies, done)
        if not_copied is not None:
            number, reason = not_copied
            where = f"log offset {int(batch.units[number].commit_log_offset)}"
            self._log_line(f"skips timer messages whose records cannot be copied: {reason} ({where})")
        return done

    def close(self) -> None:
        """Unmap the files of the store."""
        self.reader.close()
