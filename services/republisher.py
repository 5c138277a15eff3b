"""Publishes stored records again, in order. Services that republish queues of the plane share this module.

It reads, copies and aims records; `Submissions` of `services/kit` submits them and tells what was stored. The token of
a request is the mark of its record (native/src/plane/ports_layout.h). Each record is published exactly once: progress
is a word of the role block for each lane (`ipc/republish_words.py`), so it outlives the process. After a loss of the
plane the service's `recover` finds the progress in the copies on disk.

A service supplies its role, `recover`, the edits of its copies, the target of each record, and the time at which it is
due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import parts_of_mark
from ringmq.ipc.republish_words import PROGRESS, SKIPPED
from ringmq.native import ffi, lib
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import sleep
from ringmq.services.kit.submissions import InOrder, copy_records
from ringmq.services.missing_targets import MissingTarget, first_not_copied, missing_target
from ringmq.store.native_copies import NativeCopies
from ringmq.store.queue_reader import (
    DamagedError,
    DeletedError,
    NotConfirmedError,
    NotMappedError,
    QueueReader,
    QueueReadError,
    RecordBatch,
)
from ringmq.store.record import parse_record
from ringmq.store.record_copy import CopyLimits, PairEdit, RecordCopy

BATCH = 512
FILES = 4
"""Log files and queue files that the reader keeps mapped."""
RECOVER_MS = 20
"""Time limit of one search of `collect` for the last copy, because the loop of a service has to turn."""
TROUBLES_PER_MINUTE = 4
TICK_MS = 1000
"""Time between two checks for mapped files that retention has deleted. Their blocks are not free until they are
unmapped.
"""
LANES_MAX = len(ffi.new("struct rmq_role *").counters) - PROGRESS


class QueueTarget(Struct, frozen=True):
    """A queue of the plane."""

    topic_id: int
    queue_slot: int
    queue_id: int


def find_target(plane: Plane, topic: str, queue_id: int = 0) -> QueueTarget | None:
    """The queue. None until control has made it."""
    topic_id = plane.topic_find(topic)
    slot = None if topic_id is None else plane.queue_find(topic_id, queue_id)
    return None if topic_id is None or slot is None else QueueTarget(topic_id, slot, queue_id)


def following_copies(plane: Plane, reader: QueueReader, slot: int, role: int, lane: int = 0) -> Steps[int]:
    """Find the source offset behind the last one that a copy in this queue names. 0 if no copy is left.

    A step reads one unit, because clients may have written millions behind the last copy.

    Retention deletes the log from its front, and a copy follows its source. Once the last copy is deleted, so are the
    sources of all copies.
    """
    queue = plane.queue(slot)
    offset = int(queue.max_offset)
    while (offset := offset - 1) >= int(queue.min_offset):
        try:
            for unit in reader.units(slot, offset, 1).units:
                with reader.record(unit.commit_log_offset, unit.size) as data:
                    _, record = parse_record(data)
                if record is not None and parts_of_mark(record.prepared_transaction_offset)[:2] == (role, lane):
                    return parts_of_mark(record.prepared_transaction_offset)[2] + 1
        except DeletedError:  # retention has passed the scan: nothing older is left
            return 0
        yield
    return 0


class Republisher:
    """The port of `role`. No other code of the process may use it.

    `recover` finds a lane's next source offset in steps after a loss of the plane. It is called with the reader and the
    lane, when the queues hold every record of the log. `edits` apply to every copy. `batch` is the largest number of
    records of one call.
    """

    def __init__(
        self, plane: Plane, role: int, recover: Callable[[QueueReader, int], Steps[int]],
        log_line: Callable[[str], None], *,
        edits: Sequence[PairEdit] = (), lanes: int = 1, batch: int = BATCH,
    ) -> None:  # fmt: skip
        if not 1 <= lanes <= LANES_MAX:
            raise ValueError(f"{lanes} lanes are outside 1..{LANES_MAX}")
        self._plane, self._lanes = plane, lanes
        self._recover, self._log_line = recover, log_line
        self._recovering: Steps[int] | None = None
        self._clock = TurnClock(time.monotonic_ns)
        self._log_trouble = LogLines(log_line, TROUBLES_PER_MINUTE)
        self._next = [0] * lanes
        self._submissions = InOrder.of_role(
            plane, role, log_line, lanes=lanes, write_down=self._write_down, settle=self._settle
        )
        self.port, self.words = self._submissions.port, self._submissions.words
        self.reader = QueueReader(plane.struct, FILES, FILES)
        self.batch = RecordBatch(batch)
        limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        template = RecordCopy(b"", edits=tuple(edits))
        self._native = NativeCopies([template] * batch, limits, self.port.arena, 0, 0)
        self._aimed: QueueTarget | None = None
        self._next_tick_ms = 0

    def close(self) -> None:
        """Unmap the files of the store."""
        self.batch.release()
        self.reader.close()

    # -- what was stored -----------------------------------------------------------------------------------

    def collect(self) -> bool:
        """Take completions. True if records may be published now."""
        now_ms = monotonic_ms()
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self.reader.tick()
        self._submissions.collect(now_ms)
        return self._submissions.may_submit(now_ms)

    def next_offset(self, lane: int = 0) -> int:
        """The source offset that the lane publishes next. Valid after `collect` has returned True."""
        return self._next[lane]

    def progress(self, lane: int = 0) -> int:
        """The source offset behind those with stored copies. -1 while it is unknown."""
        return int(self.words[PROGRESS + lane]) - 1

    @property
    def log_offset(self) -> int:
        """End of the last copy of this process that is known to be stored. Every copy below it counts in `progress`, as
        the log has the copies of a port in order. 0 = none is known."""
        return self._submissions.log_end

    def count_passed(self) -> None:
        """Count records that were passed over as progress, if no copy is in flight. They have no completions."""
        if self._submissions.flow.is_settling or not self._submissions.is_answered:
            return
        for lane in range(self._lanes):
            if self._next[lane] > self.progress(lane):
                self.words[PROGRESS + lane] = self._next[lane] + 1

    def _write_down(self) -> None:
        for lane, stored in enumerate(self._submissions.stored):
            if stored and stored > self.progress(lane):
                self.words[PROGRESS + lane] = stored + 1

    def _settle(self) -> bool:
        """Go on behind the stored copies. False while they are not known."""
        for lane in range(self._lanes):
            if self.progress(lane) < 0 and not self._recover_lane(lane):
                return False
            self._next[lane] = self._submissions.stored[lane] = self.progress(lane)
        return True

    def _recover_lane(self, lane: int) -> bool:
        end = self.port.settled_end
        if end is None or self._plane.watermarks.dispatched_offset < end:
            return False
        if self._recovering is None:
            self._recovering = self._recover(self.reader, lane)
        try:
            found = self._clock.advance(self._recovering, RECOVER_MS)
        except QueueReadError as error:
            self._recovering = None
            self._log_trouble(f"waits: {error}")
            return False
        if found is None:
            return False
        self._recovering = None
        self.words[PROGRESS + lane] = found + 1
        return True

    # -- what is published ---------------------------------------------------------------------------------

    def read(self, slot: int, lane: int = 0) -> int:
        """Read the next records of a lane into `batch`. Returns their number. The source is the queue in this slot of
        the plane."""
        self.batch.release()
        try:
            if count := self.reader.hold(self.batch, slot, self._next[lane]):
                return count
            self._next[lane] = self.batch.next_offset  # behind fillers
        except DeletedError as error:
            first = self._next[lane]
            if error.next_offset > first:
                self._log_line(
                    f"skips {error.next_offset - first} messages: retention has deleted their records before they were "
                    f"published (source {lane}, offsets {first} to {error.next_offset - 1})"
                )
                self.words[SKIPPED] += error.next_offset - first
                self._next[lane] = error.next_offset
        except (NotMappedError, NotConfirmedError):
            pass
        except DamagedError as error:  # its record may be in the log, so it is not passed over
            self._log_trouble(
                f"waits: {error}; later messages of the queue are not published until the queue is rebuilt"
            )
        return 0

    def publish(self, count: int, target: QueueTarget, lane: int = 0) -> int:
        """Publish the first `count` records of `batch`. Returns the number of requests. If ring or arena are full there
        are fewer, and the rest is read again."""
        self._aim(target)
        return self._publish(count, lane)

    def aim_each(self, count: int, excluded_topic_id: int = lib.RMQ_NONE) -> list[MissingTarget]:
        """Find for the first `count` records of `batch` the queues that their pairs REAL_TOPIC and REAL_QID name, for
        `publish_aimed`. Returns the records without a queue."""
        copies = self._native.copies
        self._aimed = None
        lib.rmq_record_copies_read(copies, self.batch.units, self.batch.records, count)
        if not lib.rmq_copy_targets(self._plane.struct, copies, count, excluded_topic_id):
            return []
        numbers = (number for number in range(count) if copies[number].queue_slot == lib.RMQ_NONE)
        return [missing_target(copies[number], number) for number in numbers]

    def publish_aimed(self, count: int, lane: int = 0) -> int:
        """`publish` behind `aim_each`, each record to its own queue. Records without a queue are passed over, and
        counted in the word SKIPPED."""
        return self._publish(count, lane)

    def _publish(self, count: int, lane: int) -> int:
        count, native = min(count, self._submissions.room), self._native
        lib.rmq_record_copies_read(native.copies, self.batch.units, self.batch.records, count)
        done = copy_records(self._submissions.arena, native.batch, native.copies, count, native.requests)
        following = int(self.batch.units[done].queue_offset) if done < self.batch.count else self.batch.next_offset
        made = self._submissions.publish(native, self.batch.units, done, lane)
        if made < done:
            self._log_not_copied(done, lane)
        self.batch.release()
        self._next[lane] = following
        return made

    def _log_not_copied(self, count: int, lane: int) -> None:
        """Log the first of `count` records that cannot be copied. Records without a target are logged elsewhere."""
        found = first_not_copied(self._native.copies, count)
        if found is not None:
            number, reason = found
            where = f"source {lane}, offset {int(self.batch.units[number].queue_offset)}"
            self._log_trouble(f"skips messages whose records cannot be copied: {reason} ({where})")

    def _aim(self, target: QueueTarget) -> None:
        if target == self._aimed:
            return
        self._aimed = target
        for copy in self._native.copies:
            copy.topic_id, copy.queue_slot, copy.queue_id = target.topic_id, target.queue_slot, target.queue_id

    # -- sleep ---------------------------------------------------------------------------------------------

    def wait(self, wait_ms: int) -> None:
        """Sleep until a completion arrives, at most `wait_ms`."""
        sleep(self._plane, int(self.port.row.role), lambda: 0 if self.port.has_answers else wait_ms)
