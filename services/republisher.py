"""Publishes stored records again through an ordered port. All services that republish share this module.

The token of a request is the mark of its record (native/src/plane/ports_layout.h). Each record is published exactly
once:

- Progress is a word of the role block for each lane (`ipc/republish_words.py`), so it outlives the process.
- A replacement first takes the completions of the dead process, which tell by their tokens what was stored.
- After a loss of the plane the service's `recover` finds the progress in the copies on disk.
- After a refusal the ordered port refuses all later requests. The service settles as after a death, pauses, and submits
  the refused record again.

`RepublishFlow` decides; this module reads, copies and submits, with one C call for each step of a batch. A service
supplies its role, `recover`, the edits of its copies, the target of each record, and the time at which it is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, mark_of, parts_of_mark
from ringmq.ipc.republish_words import INHERITED, PROGRESS, REFUSED, SKIPPED, SUBMITTED
from ringmq.native import ffi, lib
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.services.chains import CHAIN_PAIR
from ringmq.services.missing_targets import MissingTarget, first_not_copied, missing_target
from ringmq.services.rate_limiter import RateLimiter
from ringmq.services.republish_flow import Refusal, RepublishFlow
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
from ringmq.store.record_copy import CopyLimits, EditKind, PairEdit, RecordCopy

BATCH = 512
FILES = 4
"""Log files and queue files that the reader keeps mapped."""
RECOVER_MS = 20
"""Time limit of one search of `collect` for the last copy, because the loop of a service has to turn."""
LINES_PER_MINUTE = 4
TICK_MS = 1000
"""Time between two checks for mapped files that retention has deleted. Their blocks are not free until they are
unmapped.
"""
RINGS = (lib.RMQ_PORT_APPENDED, lib.RMQ_PORT_COMPLETED)
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
    lane, when the queues hold every record of the log. `say` writes a line to the log. `edits` apply to every copy. The
    pair of a chain is taken off first, so that a client's message begins none (`chains`). `batch` is the largest number
    of records of one call.
    """

    def __init__(
        self, plane: Plane, role: int, recover: Callable[[QueueReader, int], Steps[int]], say: Callable[[str], None], *,
        edits: Sequence[PairEdit] = (), lanes: int = 1, batch: int = BATCH,
    ) -> None:  # fmt: skip
        if not 1 <= lanes <= LANES_MAX:
            raise ValueError(f"{lanes} lanes are outside 1..{LANES_MAX}")
        self._plane, self._role, self._lanes = plane, role, lanes
        self._recover, self._write_line = recover, say
        self._recovering: Steps[int] | None = None
        self._clock = TurnClock(time.monotonic_ns)
        self._trouble = LogThrottle(LINES_PER_MINUTE)
        self.words = plane.role(role).counters
        self.port = Port(plane, plane.port_of(role))
        plane.map_arena(self.port.number)
        self.reader = QueueReader(plane.struct, FILES, FILES)
        self.batch = RecordBatch(batch)
        limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        template = RecordCopy(b"", edits=(PairEdit(EditKind.REMOVE, CHAIN_PAIR.encode()), *edits))
        self._native = NativeCopies([template] * batch, limits, self.port.arena, 0, 0)
        self._aimed: QueueTarget | None = None
        self._next_tick_ms = 0
        ports = [plane.header.ports.port[number] for number in range(plane.header.ports.count)]
        self._others = [port for port in ports if port.role != role]
        clients = sum(int(port.weight) for port in self._others if port.flags & lib.RMQ_PORT_CONNECTIONS)
        self._rate_limiter = RateLimiter(int(self.port.row.weight) / max(1, clients))
        self._allowance = 0
        self._flow = RepublishFlow(lanes, len(self.port.arena))
        self._stored = ffi.new("uint64_t[]", lanes)
        self._tally = ffi.new("struct rmq_port_tally *")
        self.port.claim()

    def close(self) -> None:
        """Unmap the files of the store."""
        self.batch.release()
        self.reader.close()

    # -- what was stored -----------------------------------------------------------------------------------

    def collect(self) -> bool:
        """Take completions. True if records may be published now."""
        now_ms = _now_ms()
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self.reader.tick()
        self._take_completions()
        if not self._flow.may_submit(now_ms):
            self._settle()
        self._allowance = self._rate_limiter.allowance(now_ms, sum(int(port.request.tail) for port in self._others))
        return self._allowance > 0 and self._flow.may_submit(now_ms)

    def next_offset(self, lane: int = 0) -> int:
        """The source offset that the lane publishes next. Valid after `collect` has returned True."""
        return self._flow.next[lane]

    def progress(self, lane: int = 0) -> int:
        """The source offset behind those with stored copies. -1 while it is unknown."""
        return int(self.words[PROGRESS + lane]) - 1

    @property
    def log_offset(self) -> int:
        """End of the last copy of this process that is known to be stored. Every copy below it counts in `progress`, as
        the log has the copies of a port in order. 0 = none is known."""
        return int(self._tally.end)

    def count_passed(self) -> None:
        """Count records that were passed over as progress, if no copy is in flight. They have no completions."""
        if self._flow.is_settling or not self.port.answered or self.port.has_answers:
            return
        for lane in range(self._lanes):
            if self._flow.next[lane] > self.progress(lane):
                self.words[PROGRESS + lane] = self._flow.next[lane] + 1

    def _take_completions(self) -> None:
        tally, count = self._tally, 0
        tally.refused = 0
        for ring in RINGS:
            while taken := self.port.tally(ring, self._stored, self._lanes, tally):
                self._write_down()  # before `done`, so that a replacement finds the completions or the words
                self.port.done(ring, taken)
                count += taken
        if not count:
            return
        self.words[INHERITED] += tally.inherited
        tally.inherited = 0
        self.words[REFUSED] += tally.refused
        refusal = Refusal(tally.first.code, tally.first.cause) if tally.refused else None
        self._log(self._flow.tallied(self._stored_offsets(), refusal, _now_ms()))

    def _write_down(self) -> None:
        for lane in range(self._lanes):
            if self._stored[lane] and self._stored[lane] > self.progress(lane):
                self.words[PROGRESS + lane] = self._stored[lane] + 1

    def _stored_offsets(self) -> list[int]:
        return list(self._stored[0 : self._lanes])

    def _settle(self) -> None:
        """After a death or a refusal: go on behind the stored copies, once every request has its completion."""
        if not self._flow.is_settling or not self.port.answered:
            return
        self._take_completions()
        for lane in range(self._lanes):
            if self.progress(lane) < 0 and not self._recover_lane(lane):
                return
            self._stored[lane] = self.progress(lane)
        self.port.acknowledge()
        self._flow.settled(self._stored_offsets())

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
            if count := self.reader.hold(self.batch, slot, self._flow.next[lane]):
                return count
            self._flow.next[lane] = self.batch.next_offset  # behind fillers
        except DeletedError as error:
            first = self._flow.next[lane]
            if error.next_offset > first:
                self._log(
                    f"skips {error.next_offset - first} messages: retention has deleted their records before they were "
                    f"published (source {lane}, offsets {first} to {error.next_offset - 1})"
                )
                self.words[SKIPPED] += error.next_offset - first
                self._flow.next[lane] = error.next_offset
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
        count = min(count, self.port.room, self._allowance)
        done = self._copy(count) if count else 0
        following = self.batch.next_offset
        if done < self.batch.count:
            following = int(self.batch.units[done].queue_offset)
        requests = self._native.requests
        made = lib.rmq_record_copies_mark(requests, self.batch.units, done, mark_of(self._role, lane, 0))
        if made < done:
            self._log_not_copied(done, lane)
        self.batch.release()
        self.words[SKIPPED] += done - made
        self.words[SUBMITTED] += made
        self._rate_limiter.published(made)
        end = parts_of_mark(requests[made - 1].token)[2] + 1 if made else None
        self._flow.submitted(lane, following, end, int(self._native.batch.arena_at))
        accepted = self.port.submit(requests, made) if made else 0
        if accepted < made:
            raise RuntimeError(
                f"broken invariant: the request ring took {accepted} of {made} copies, with room for all"
            )
        return int(made)

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

    def _copy(self, count: int) -> int:
        """The number of records that were copied or cannot be copied."""
        native, arena = self._native, self._flow.arena
        lib.rmq_record_copies_read(native.copies, self.batch.units, self.batch.records, count)
        while True:
            native.batch.arena_at, native.batch.arena_end = arena.span
            done = int(lib.rmq_record_copies(native.copies, count, native.batch, native.requests))
            if done or not arena.wrap():
                break
        if native.batch.needed > len(self.port.arena):
            raise ValueError(f"a copy needs {native.batch.needed} bytes, but the arena has {len(self.port.arena)}")
        return done

    # -- sleep ---------------------------------------------------------------------------------------------

    def wait(self, wait_ms: int) -> None:
        """Sleep until a completion arrives, at most `wait_ms`."""
        self._plane.arm(self._role)
        if self.port.has_answers:
            self._plane.disarm(self._role)
        else:
            self._plane.wait(self._role, wait_ms)

    def _log_trouble(self, text: str) -> None:
        """Log a failure that may recur at each turn."""
        self._log(self._trouble.line(text, _now_ms()) or "")

    def _log(self, text: str) -> None:
        if text:
            self._write_line(text)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
