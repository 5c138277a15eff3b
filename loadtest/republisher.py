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

    def tally(self, ring: int, shift: int, groups: Any, refused: Any) -> int:
        """Count down groups by the completions of one of the two rings; their number."""

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
        self._refused = ffi.new("uint32_t *")
        self._open = ffi.new("uint32_t[]", len(port.arena) // region_bytes)
        """Requests of each region that have no completion."""
        self._free = deque(range(len(self._open)))
        self._in_use: set[int] = set()
        self._left = (0, 0)
        """Made requests that have not found room in the ring: first, count."""

    def close(self) -> None:
        """Unmap the files of the store."""
        self._lib.rmq_queue_reader_close(self._reader)

    def step(self) -> int:
        """Take completions, then submit a batch if ring and arena have room. The number of requests submitted."""
        self._collect()
        before = self.counts.submitted
        if not self._left[1] and self._free:
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
        self._refused[0] = 0
        for ring in (self._lib.RMQ_PORT_APPENDED, self._lib.RMQ_PORT_COMPLETED):
            while count := self._port.tally(ring, TOKEN_BITS, self._open, self._refused):
                self.counts.completed += count
                self._port.done(ring, count)
        self.counts.refused_requests += self._refused[0]
        for region in [region for region in self._in_use if not self._open[region]]:
            self._in_use.remove(region)
            self._free.append(region)

    def _hold(self) -> int:
        lib, units = self._lib, self._units
        count = lib.rmq_queue_reader_units(self._reader, self._source, self.offset, _null(), units, BATCH, self._next)
        if count < 0:
            raise OSError(-count, f"queue offset {self.offset} of queue slot {self._source} cannot be read")
        held = lib.rmq_queue_reader_records(self._reader, units, count, self._held)
        if held < count:
            lib.rmq_queue_reader_release_all(self._held, held)
            raise OSError(f"record at commit-log offset {units[held].commit_log_offset} cannot be read")
        lib.rmq_record_copies_read(self._native.copies, units, self._held, count)
        return int(count)

    def _make(self) -> None:
        count = self._hold()
        if not count:
            return
        region = self._free.popleft()
        native, batch = self._native, self._native.batch
        batch.arena_at, batch.arena_end = region * self._region_bytes, (region + 1) * self._region_bytes
        done = self._lib.rmq_record_copies(native.copies, count, batch, native.requests)
        self._lib.rmq_queue_reader_release_all(self._held, count)
        if not done:
            raise ValueError(f"a copy needs {batch.needed} bytes, a batch has {self._region_bytes}")
        self.offset = self._next[0] if done == count else self._units[done].queue_offset
        self._queue(region, done)

    def _queue(self, region: int, done: int) -> None:
        made = self._lib.rmq_port_number(self._native.requests, done, region << TOKEN_BITS)
        self.counts.refused_copies += done - made
        self._left = 0, made
        self._open[region] = made
        self._in_use.add(region)

    def _submit(self) -> None:
        first, count = self._left
        if count:
            taken = self._port.submit(self._native.requests + first, count)
            self.counts.submitted += taken
            self._left = first + taken, count - taken


def _null() -> Any:
    from ringmq.native import ffi

    return ffi.NULL
