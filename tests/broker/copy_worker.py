"""The smallest service: it copies one queue into another, each record once and in order, whichever process dies.

The token of a request is the queue offset of its source record. The port is ordered, so the target holds the source's
records up to some offset and none behind it, and the largest token that write has stored says which. `progress`, a word
of the role block, keeps that offset while the plane lives. Each copy carries it as a pair, too: after a loss of the
plane the last record of the target says how far the copies have come.
"""

import sys
from collections import deque
from contextlib import ExitStack
from typing import Any

from ringmq.ipc.exit_status import EXIT_CLEAN
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, PortRow
from ringmq.ipc.role_loop import run_worker
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING, StopFlag, WorkerSpec
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.native import ffi, lib
from ringmq.store.native_copies import NativeCopies
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record import parse_record
from ringmq.store.record_copy import CopyLimits, EditKind, From, PairEdit, RecordCopy

SOURCE, TARGET = "Source", "Target"
FROM = b"SOURCE_OFFSET"
REGIONS, REGION_BYTES, BATCH = 4, 1 << 16, 128
WAIT_MS = 10
PROGRESS, FOUND, REFUSED = range(3)
"""Words of the role block: the next source offset + 1 (0 = the plane is new), completions of dead predecessors, and
refusals."""
RINGS = (lib.RMQ_PORT_APPENDED, lib.RMQ_PORT_COMPLETED)


def arena_bytes(config: Any) -> int:
    """What the row names as the size of the port's arena."""
    return REGIONS * REGION_BYTES


COPY = WorkerRow(
    "copy", 24, __name__, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True,
    port=PortRow(f"{__name__}:arena_bytes", lib.RMQ_PORT_ORDERED, weight=1),
)  # fmt: skip


class Copier:
    """`turn` until the stop. `source` and `target`: (topic id, queue slot) in the plane."""

    def __init__(self, plane: Plane, role: int, source: tuple[int, int], target: tuple[int, int]) -> None:
        self._plane, self._source, self._target = plane, source[1], target[1]
        self._words = plane.role(role).counters
        self._port = Port(plane, plane.port_of(role))
        plane.map_arena(self._port.number)
        self._reader = QueueReader(plane.struct, 4, 4)
        edit = PairEdit(EditKind.SET, FROM, From.QUEUE_OFFSET)
        limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        self._copies = NativeCopies([RecordCopy(b"", *target, 0, (edit,))] * BATCH, limits, self._port.arena, 0, 0)
        self._completions = ffi.new("struct rmq_completion[]", BATCH)
        self._following = 0
        self._in_use: deque[tuple[int, int]] = deque()
        """Regions of the arena: the last source offset in it, its number."""
        self._must_wait = True
        """Until the port is answered: behind a death or a refusal only then is it known what was stored."""
        self._port.claim()

    def turn(self) -> bool:
        """Take completions, then submit a batch. False when there was nothing to do."""
        if self._must_wait and not self._settle():
            return False
        if self._collect():
            self._must_wait = True
            return True
        while self._in_use and self._in_use[0][0] < self._progress:
            self._in_use.popleft()
        return len(self._in_use) < REGIONS and self._submit()

    @property
    def _progress(self) -> int:
        return int(self._words[PROGRESS]) - 1

    def _settle(self) -> bool:
        """Behind a death or a refusal: go on behind what was stored, when every request has its completion."""
        if not self._port.answered:
            return False
        self._collect()
        if self._progress < 0 and not self._read_progress():
            return False
        self._port.acknowledge()
        self._following = self._progress
        self._in_use.clear()
        self._must_wait = False
        return True

    @property
    def has_answers(self) -> bool:
        """A completion waits."""
        return self._port.has_answers

    def _collect(self) -> bool:
        """Take completions: write down what they say, then give them back. True when one is a refusal."""
        refused = False
        for ring in RINGS:
            while count := self._port.peek(ring, self._completions, BATCH):
                taken = self._completions[0:count]
                refusals = sum(not one.bytes for one in taken)
                stored = max((one.token + 1 for one in taken if one.bytes), default=0)
                self._words[REFUSED] += refusals
                self._words[FOUND] += sum(one.generation != self._port.row.generation for one in taken)
                if stored + 1 > self._words[PROGRESS] and stored:
                    self._words[PROGRESS] = stored + 1
                refused |= refusals > 0
                self._port.done(ring, count)
        return refused

    def _read_progress(self) -> bool:
        """From the last record of the target, when dispatch has reached the end of the log."""
        end = self._port.settled_end
        if end is None or self._plane.watermarks.dispatched_offset < end:
            return False
        size = int(self._plane.queue(self._target).max_offset)
        following = 0
        if size:
            (unit,), _ = self._reader.units(self._target, size - 1, 1)
            with self._reader.record(unit.commit_log_offset, unit.size) as data:
                _, record = parse_record(data)
                assert record is not None
                following = int(record.properties_raw.split(FROM + b"\x01")[1].split(b"\x02")[0]) + 1
        self._words[PROGRESS] = following + 1
        return True

    def _submit(self) -> bool:
        units = self._reader.units(self._source, self._following, BATCH).units
        if not units:
            return False
        free = set(range(REGIONS)) - {region for _, region in self._in_use}
        region, native = free.pop(), self._copies
        native.batch.arena_at, native.batch.arena_end = region * REGION_BYTES, (region + 1) * REGION_BYTES
        with ExitStack() as held:
            for unit, copy in zip(units, native.copies, strict=False):
                data = held.enter_context(self._reader.record(unit.commit_log_offset, unit.size))
                copy.record = held.enter_context(ffi.from_buffer("uint8_t[]", data))
                copy.record_bytes, copy.position = unit.size, unit.commit_log_offset
            made = lib.rmq_record_copies(native.copies, len(units), native.batch, native.requests)
        for unit, request in zip(units[:made], native.requests, strict=False):
            assert request.kind, "a copy of each record can be made"
            request.token = unit.queue_offset
        submitted = self._port.submit(native.requests, made)
        if submitted:
            self._following = units[submitted - 1].queue_offset + 1
            self._in_use.append((self._following - 1, region))
        return submitted > 0


def queues(plane: Plane) -> list[tuple[int, int]]:
    """(topic id, queue slot) of source and target, as far as control has made them."""
    topics = [topic for topic in map(plane.topic_find, (SOURCE, TARGET)) if topic is not None]
    slots = [plane.queue_find(topic, 0) for topic in topics]
    return [(topic, slot) for topic, slot in zip(topics, slots, strict=True) if slot is not None]


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Copy until SIGTERM."""
    role = plane.role(spec.role)
    role.state = STATE_SERVING
    while not stop.is_set and len(found := queues(plane)) < 2:
        role.progress += 1
        plane.wait(spec.role, WAIT_MS)
    copier = None if stop.is_set else Copier(plane, spec.role, *found)
    while copier is not None and not stop.is_set:
        role.progress += 1
        if copier.turn():
            continue
        plane.arm(spec.role)
        if copier.has_answers:
            plane.disarm(spec.role)
        else:
            plane.wait(spec.role, WAIT_MS)
    role.state = STATE_STOPPING
    return EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
