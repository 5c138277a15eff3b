"""A service of the measurements: it publishes a topic's records again, through a port of its own, in batches.

It shows what a service costs at least: units from a queue reader, copies by the C core, an ordinary request each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

BATCH = 512
REGION_BYTES = 1 << 20
"""Of the arena, for one batch: it is used again when every request of the batch has its completion."""
MAPPED_FILES = 4
TOKEN_BITS = 16


class Port(Protocol):
    """What a republisher uses of `ringmq.ipc.ports.Port`."""

    @property
    def arena(self) -> memoryview:
        """Memory that requests point into."""

    def submit(self, requests: Any, count: int) -> int:
        """Put requests into the ring; how many found room."""

    def peek(self, ring: int, out: Any, room: int) -> int:
        """Copy completions of one of the two rings; their number."""

    def done(self, ring: int, count: int) -> None:
        """Give the oldest ones back."""


@dataclass(frozen=True, slots=True)
class Place:
    """A queue as the plane knows it."""

    topic_id: int
    queue_slot: int
    queue_id: int


@dataclass(slots=True)
class Counts:
    """What became of the records so far."""

    submitted: int = 0
    completed: int = 0
    refused_copies: int = 0
    refused_requests: int = 0


class Republisher:
    """Copies the queue in `source_slot` from its queue offset `offset` on to `target`.

    `edits`: `PairEdit`s of `ringmq.store.record_copy`.
    """

    def __init__(
        self, plane: Any, port: Port, source_slot: int, target: Place, edits: Sequence[Any] = (), *,
        offset: int = 0, region_bytes: int = REGION_BYTES,
    ) -> None:  # fmt: skip
        from ringmq.native import ffi, lib
        from ringmq.store.native_copies import NativeCopies
        from ringmq.store.record_copy import CopyLimits, RecordCopy

        self.offset = offset
        self._region_bytes = region_bytes
        self.counts = Counts()
        self._lib, self._port, self._source = lib, port, source_slot
        self._reader = lib.rmq_queue_reader_open(plane, MAPPED_FILES, MAPPED_FILES)
        if self._reader == ffi.NULL:
            raise MemoryError("a queue reader")
        settings = lib.rmq_plane_header_of(plane).settings
        limits = CopyLimits(settings.message_bytes_max)
        template = RecordCopy(b"", target.topic_id, target.queue_slot, target.queue_id, tuple(edits))
        self._native = NativeCopies([template] * BATCH, limits, port.arena, 0, 0)
        self._units = ffi.new("struct rmq_queue_unit[]", BATCH)
        self._held = ffi.new("struct rmq_held_record[]", BATCH)
        self._next = ffi.new("int64_t *")
        self._completions = ffi.new("struct rmq_completion[]", BATCH)
        self._open = [0] * (len(port.arena) // region_bytes)
        self._free = deque(range(len(self._open)))
        self._left: deque[tuple[int, int]] = deque()
        """Made requests that have not found room in the ring: (first, count)."""

    def close(self) -> None:
        """Unmap the files of the store."""
        self._lib.rmq_queue_reader_close(self._reader)

    def step(self) -> int:
        """Take completions, then submit a batch if ring and arena have room. The number of requests submitted."""
        self._collect()
        before = self.counts.submitted
        if not self._left and self._free:
            self._make()
        self._submit()
        return self.counts.submitted - before

    def run(self, is_over: Callable[[], bool], wait: Callable[[], object]) -> None:
        """Step until it is over; `wait` where a step had nothing to do."""
        while not is_over():
            if not self.step():
                wait()

    @property
    def in_flight(self) -> int:
        """Requests without a completion."""
        return sum(self._open)

    def _collect(self) -> None:
        for ring in (self._lib.RMQ_PORT_APPENDED, self._lib.RMQ_PORT_COMPLETED):
            while count := self._port.peek(ring, self._completions, BATCH):
                for number in range(count):
                    self._complete(self._completions[number])
                self._port.done(ring, count)

    def _complete(self, completion: Any) -> None:
        region = completion.token >> TOKEN_BITS
        self.counts.completed += 1
        self.counts.refused_requests += completion.code != 0
        self._open[region] -= 1
        if not self._open[region]:
            self._free.append(region)

    def _hold(self) -> int:
        lib, units, held, copies = self._lib, self._units, self._held, self._native.copies
        count = lib.rmq_queue_reader_units(self._reader, self._source, self.offset, _null(), units, BATCH, self._next)
        if count < 0:
            raise OSError(-count, f"queue offset {self.offset} of queue slot {self._source} cannot be read")
        for number in range(count):
            unit, copy = units[number], copies[number]
            code = lib.rmq_queue_reader_record(self._reader, unit.commit_log_offset, unit.size, held + number)
            if code < 0:
                for taken in range(number):
                    lib.rmq_queue_reader_release(held + taken)
                raise OSError(-code, f"record at commit-log offset {unit.commit_log_offset} cannot be read")
            copy.record, copy.record_bytes, copy.position = held[number].at, unit.size, unit.commit_log_offset
        return int(count)

    def _make(self) -> None:
        count = self._hold()
        if not count:
            return
        region = self._free.popleft()
        native, batch = self._native, self._native.batch
        batch.arena_at, batch.arena_end = region * self._region_bytes, (region + 1) * self._region_bytes
        done = self._lib.rmq_record_copies(native.copies, count, batch, native.requests)
        for number in range(count):
            self._lib.rmq_queue_reader_release(self._held + number)
        if not done:
            raise ValueError(f"a copy needs {batch.needed} bytes, a batch has {self._region_bytes}")
        self.offset = self._next[0] if done == count else self._units[done].queue_offset
        self._queue(region, done)

    def _queue(self, region: int, done: int) -> None:
        requests, first, made = self._native.requests, 0, 0
        for number in range(done):
            request = requests[number]
            if not request.kind:
                self.counts.refused_copies += 1
                self._left.append((first, number - first))
                first = number + 1
                continue
            request.token = region << TOKEN_BITS | number
            made += 1
        self._left.append((first, done - first))
        self._open[region] = made
        if not made:
            self._free.append(region)

    def _submit(self) -> None:
        while self._left:
            first, count = self._left.popleft()
            taken = self._port.submit(self._native.requests + first, count) if count else 0
            self.counts.submitted += taken
            if taken < count:
                self._left.appendleft((first + taken, count - taken))
                return


def _null() -> Any:
    from ringmq.native import ffi

    return ffi.NULL
