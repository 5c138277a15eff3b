"""Puts due messages into the log again, through the worker's ordered port.

The token of a request is the mark of its source record, so a start finds in the log what was delivered. Copies in
flight are in the order of their requests. After a refusal the port refuses all later ones: the publisher waits until
each request has its completion, and returns what was not stored to its slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, mark_of
from ringmq.ipc.republish_words import INHERITED, REFUSED, SKIPPED, SUBMITTED
from ringmq.native import ffi, lib
from ringmq.remoting import properties
from ringmq.services.arena_ring import ArenaRing
from ringmq.services.chains import CHAIN_PAIR
from ringmq.services.missing_targets import distinct_targets, first_not_copied
from ringmq.services.rate_limiter import RateLimiter
from ringmq.services.republisher import RINGS, QueueTarget
from ringmq.store.native_copies import NativeCopies
from ringmq.store.queue_reader import DamagedError, DeletedError, QueueReader, QueueReadError
from ringmq.store.record_copy import CopyLimits, EditKind, PairEdit, RecordCopy
from ringmq.timer.core import Publish
from ringmq.timer.slots import BATCH, Slots

LANE = 0


class Collected(Struct, frozen=True):
    """Completions since the last call. `refused`: of the copies in flight none will be stored."""

    stored: int
    refused: bool


def copy_templates() -> list[RecordCopy]:
    """Copies with edits of their own, in the order that rmq_timer_copies knows."""
    found = []
    for number in range(BATCH):
        edits = (
            PairEdit(EditKind.SET, properties.TIMER_ENQUEUE_MS.encode(), number),
            PairEdit(EditKind.SET, properties.TIMER_DEQUEUE_MS.encode(), 0),
            PairEdit(EditKind.REMOVE, CHAIN_PAIR.encode()),
            PairEdit(EditKind.ADD, properties.TIMER_ROLL_TIMES.encode(), 1),
        )  # fmt: skip
        assert len(edits) == lib.RMQ_TIMER_EDITS
        found.append(RecordCopy(b"", edits=edits))
    return found


class Publisher:
    """The port of `role`. No other code of the process may use it."""

    def __init__(
        self, plane: Plane, role: int, slots: Slots, timer_queue: QueueTarget, log: Callable[[str], None]
    ) -> None:
        self._plane, self._role, self._slots, self._log = plane, role, slots, log
        self.words = plane.role(role).counters
        self.port = Port(plane, plane.port_of(role))
        plane.map_arena(self.port.number)
        self.reader = QueueReader(plane.struct, 8, 4)
        limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        self._native = NativeCopies(copy_templates(), limits, self.port.arena, 0, 0)
        self._edits = ffi.cast("struct rmq_pair_edit *", self._native.batch.edits)
        self._records = ffi.new("struct rmq_held_record[]", BATCH)
        self._timer_target = ffi.new("struct rmq_record_copy *")
        self._timer_target.topic_id, self._timer_target.queue_slot = timer_queue.topic_id, timer_queue.queue_slot
        self._timer_target.queue_id = timer_queue.queue_id
        ports = [plane.header.ports.port[number] for number in range(plane.header.ports.count)]
        self._others = [port for port in ports if port.role != role]
        clients = sum(int(port.weight) for port in self._others if port.flags & lib.RMQ_PORT_CONNECTIONS)
        self._rate_limiter = RateLimiter(int(self.port.row.weight) / max(1, clients))
        self._arena = ArenaRing(len(self.port.arena))
        self._submitted = self._stored = 0
        self._refused_slot: int | None = None
        self._tally = ffi.new("struct rmq_port_tally *")
        self._lane = ffi.new("uint64_t[]", 1)

    def claim(self) -> None:
        """Make this process the owner of the port."""
        self.port.claim()

    def is_settled(self) -> bool:
        """True once each request of a dead predecessor has its completion, and every record of it is in its queue."""
        self._take_completions()
        end = self.port.settled_end
        if not self.port.answered or end is None or self._plane.watermarks.dispatched_offset < end:
            return False
        self._take_completions()
        self._submitted = self._stored = 0
        self.port.acknowledge()
        return True

    def collect(self) -> Collected:
        """Take completions, and settle a refusal once every request has one."""
        stored, refused = self._take_completions()
        if refused and self._refused_slot is None:
            first = self._tally.first
            self._log(f"waits: write refuses its records (code {first.code}, cause {first.cause})")
            self._refused_slot = 0
        if self._refused_slot is None or not self.port.answered:
            return Collected(stored, refused=False)
        stored += self._take_completions()[0]
        self.port.acknowledge()
        self._refused_slot = None
        self._arena.clear()
        self._submitted = self._stored
        return Collected(stored, refused=True)

    @property
    def may_publish(self) -> bool:
        """False while a refusal is not settled."""
        return self._refused_slot is None

    @property
    def log_offset(self) -> int:
        """End of the last copy of this process that is known to be stored. 0 = none is known."""
        return int(self._tally.end)

    def _take_completions(self) -> tuple[int, bool]:
        tally = self._tally
        tally.stored = tally.refused = tally.inherited = 0
        for ring in RINGS:
            while taken := self.port.tally(ring, self._lane, 0, tally):
                self.port.done(ring, taken)
        stored = int(tally.stored)
        self.words[INHERITED] += tally.inherited
        self.words[REFUSED] += tally.refused
        self._stored += stored
        self._arena.give_back([self._stored])
        return stored, bool(tally.refused)

    # -- publish -------------------------------------------------------------------------------------------

    def publish(self, due: Publish, now_ms: int) -> int:
        """Submit copies. Returns their number. The clock may have been set back since `due` was decided."""
        slot, batch = self._slots.slot(due.slot_ms), self._slots.batch
        until_ms = min(due.until_ms, now_ms)
        taken = sum(int(port.request.tail) for port in self._others)
        allowance = self._rate_limiter.allowance(time.monotonic_ns() // 1_000_000, taken)
        batch.room = min(BATCH, due.room, self.port.room, allowance)
        count = lib.rmq_timer_take(self._slots.files.struct, slot, until_ms, batch) if batch.room > 0 else 0
        self._slots.files.check()
        if not count:
            return 0
        held = int(lib.rmq_queue_reader_records(self.reader.native, batch.units, count, self._records))
        try:
            done = self._copy(slot, held, now_ms) if held else self._without_record()
        finally:
            lib.rmq_queue_reader_release_all(self._records, held)
        requests = self._native.requests
        if lib.rmq_timer_submitted(self._slots.flight, slot, batch, requests, done, ffi.addressof(self._slots.tally)):
            raise MemoryError("no memory for the messages of a slot")
        self.words[SKIPPED] = self._slots.tally.skipped
        mark = mark_of(self._role, LANE, 0)
        made = int(lib.rmq_record_copies_mark(requests, batch.units, done, mark)) if held else 0
        if made:
            self._submit(made)
        return made

    def _submit(self, made: int) -> None:
        self._submitted += made
        self._arena.take(LANE, self._submitted, int(self._native.batch.arena_at))
        self.words[SUBMITTED] += made
        self._rate_limiter.published(made)
        accepted = self.port.submit(self._native.requests, made)
        if accepted < made:
            raise RuntimeError(
                f"broken invariant: the request ring took {accepted} of {made} copies, with room for all"
            )

    def _without_record(self) -> int:
        """The first record cannot be read: passed over if it is gone, else it waits. Returns how many are over."""
        unit = self._slots.batch.units[0]
        try:
            self.reader.record(unit.commit_log_offset, unit.size).release()
        except (DeletedError, DamagedError) as error:
            self._log(f"skips a timer message: {error}")
            self._native.requests[0].kind = 0
            return 1
        except QueueReadError as error:
            self._log(f"waits: {error}")
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
                self._log(f"skips timer messages {target}")
        while True:
            native.batch.arena_at, native.batch.arena_end = self._arena.span
            done = int(lib.rmq_record_copies(copies, held, native.batch, native.requests))
            if done or not self._arena.wrap():
                break
        not_copied = first_not_copied(copies, done)
        if not_copied is not None:
            number, reason = not_copied
            where = f"log offset {int(batch.units[number].commit_log_offset)}"
            self._log(f"skips timer messages whose records cannot be copied: {reason} ({where})")
        if native.batch.needed > len(self.port.arena):
            raise ValueError(f"a copy needs {native.batch.needed} bytes, but the arena has {len(self.port.arena)}")
        return done

    def close(self) -> None:
        """Unmap the files of the store."""
        self.reader.close()
