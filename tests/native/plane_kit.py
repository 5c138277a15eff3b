"""A plane in anonymous shared memory with a store folder: what the role tests write into and look at."""

import ctypes
import gc
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ringmq.broker.engine_choice import choose_engine
from ringmq.ipc.answerers import AnswererPlan, fill_answerer_plans
from ringmq.ipc.ports import PortPlan, fill_port_plans
from ringmq.ipc.tenure import AS_MASTER
from ringmq.ipc.workers import WORKERS, answerer_plans, port_plans
from ringmq.native import ffi, lib

CONTROL = 2
"""Its port, behind those of two read workers."""
NO_WAIT = lib.RMQ_APPEND_FLAG_NO_WAIT
ARENA_BYTES = 1 << 20
LIVE = lib.RMQ_TOPIC_LIVE << 40
SLICE_NS = 20_000_000
SHORT_SLICE_NS = 1_000_000
"""For loops around slices: a role that has nothing left to do sleeps to the end of its slice."""
FLUSH_TIMEOUT_MS = 50_000
"""Longer than any stall of the machine: a test that needs a late entry sets the time when it was parked."""
ENGINE = choose_engine(os.environ.get("RINGMQ_ENGINE", "auto")).kind
"""Of kits, chosen as a broker does it."""
SLICES_MAX = 10
"""Of a run to rest. A stall of the machine takes one of them whole."""


def maps_of(path: Path) -> int:
    """Mappings of a file in this process, also after it was deleted."""
    return Path("/proc/self/maps").read_text().count(str(path))


@dataclass(frozen=True)
class Completion:
    """Copy of struct rmq_completion."""

    commit_log_offset: int
    commit_log_end: int
    queue_offset: int
    token: int
    code: int
    cause: int
    cause_errno: int


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


ROWS = [row for row in WORKERS.rows(2) if row.name not in ("delay", "transactions", "timer", "pop")]
"""The workers of a kit. Tests name ports and answerers by number: theirs follow these."""


DESCRIPTORS = 512


class Kit:
    """One plane, its arenas and a store; small rings, so that wrapping around is the rule."""

    def __init__(
        self, root: Path, *, segment_bytes: int = 65536, sync: bool = False, queue_file_bytes: int = 6000,
        index: bool = True, slots: int = 64, request_slots: int = 64, inbox_bytes: int = 65536,
        ports: tuple[PortPlan, ...] = (), answerers: tuple[AnswererPlan, ...] = (), arrived_slots: int = 8,
    ) -> None:  # fmt: skip
        self.root = root
        (root / "commitlog").mkdir(parents=True, exist_ok=True)
        capacity = ffi.new("struct rmq_plane_capacity *")
        capacity.topics = capacity.groups = capacity.subscriptions = capacity.offsets = 64
        capacity.queues = 4096
        capacity.parked_slots = 4 * request_slots
        plans = port_plans(ROWS)
        fill_port_plans(capacity, [replace(plan, request_slots=request_slots) for plan in (*plans, *ports)])
        rings = (*answerer_plans(ROWS), *answerers)
        fill_answerer_plans(
            capacity, [replace(plan, inbox_bytes=inbox_bytes, answer_bytes=inbox_bytes) for plan in rings]
        )
        capacity.commit_slots, capacity.arrived_slots = 64, arrived_slots
        self._base = mmap.mmap(-1, lib.rmq_plane_bytes(capacity))
        self._marks = mmap.mmap(-1, 4096)
        self._areas = {port: mmap.mmap(-1, ARENA_BYTES) for port in range(len(plans) + len(ports))}
        self._used = dict.fromkeys(self._areas, 0)
        base, secret = ffi.from_buffer("char *", self._base, require_writable=True), ffi.new("uint64_t[2]", [1, 2])
        assert lib.rmq_plane_format(base, capacity, 1, secret) == 0
        self.plane = ffi.new("struct rmq_plane *")
        self.plane.base = ffi.from_buffer("char *", self._base, require_writable=True)
        self.plane.watermarks = ffi.cast(
            "struct rmq_watermarks *", ffi.from_buffer("char *", self._marks, require_writable=True)
        )
        for producer, area in self._areas.items():
            self.plane.arenas[producer] = ffi.from_buffer("char *", area, require_writable=True)
            self.plane.arena_bytes[producer] = ARENA_BYTES
        bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(lib.RMQ_ROLES_MAX)]
        for role, descriptor in enumerate(bells):
            self.plane.event_fds[role] = descriptor
        weakref.finalize(self, _close_all, bells)
        if bells[-1] > DESCRIPTORS:
            gc.collect()  # kits of earlier tests wait in cycles, and select() knows 1,024 descriptors
        self.header = lib.rmq_plane_header_of(self.plane)
        self.marks = self.plane.watermarks
        self.marks.tenure = AS_MASTER.word
        self.header.ports.journal.owner = lib.RMQ_ROLE_WRITE
        self._settings(segment_bytes, sync, queue_file_bytes, index, slots)
        self._pending = 0
        self.create_segment(0)

    def _settings(self, segment_bytes: int, sync: bool, queue_file_bytes: int, index: bool, slots: int) -> None:
        settings = self.header.settings
        settings.engine = ENGINE
        settings.segment_bytes, settings.queue_file_bytes = segment_bytes, queue_file_bytes
        settings.index_slot_count, settings.index_entry_count = slots, 400
        settings.message_index_enable = int(index)
        settings.sync_flush = int(sync)
        self.marks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED if sync else lib.RMQ_CONFIRM_APPENDED
        settings.message_bytes_max = 4 << 20
        settings.sync_flush_timeout_ms = FLUSH_TIMEOUT_MS
        settings.flush_interval_ms, settings.flush_least_pages = 5, 0
        settings.flush_thorough_interval_ms = 1000
        settings.populate_window_bytes = 65536
        settings.long_polling_enable = 1
        settings.store_host_bytes, settings.store_port = 4, 10911
        settings.store_host = bytes([127, 0, 0, 1]) + bytes(12)
        settings.store_path = str(self.root).encode()
        settings.commit_log_path = str(self.root / "commitlog").encode()

    def set_additions(self, text: bytes) -> None:
        """Properties that the broker adds to each message."""
        self.header.settings.additions = text
        self.header.settings.additions_length = len(text)

    def create_segment(self, offset: int) -> None:
        """What the flush worker's shell does: make the file that begins at `offset`."""
        folder = str(self.root / "commitlog").encode()
        code = lib.rmq_segment_create(str(self.root).encode(), folder, offset, self.header.settings.segment_bytes)
        assert code == 0, os.strerror(-code)

    def topic(self, name: bytes, queues: int = 1, flags: int = 0, replay_from: int = 0) -> int:
        """Add a topic with its queues; returns its id."""
        topic_id = int(lib.rmq_topic_add(self.plane, name, len(name), LIVE | 6 | flags << 40))
        for queue_id in range(queues):
            lib.rmq_queue_add(self.plane, topic_id, queue_id, 0, 0, replay_from)
        return topic_id

    def queue_slot(self, topic_id: int, queue_id: int) -> int:
        """Slot of a queue that is there."""
        slot = int(lib.rmq_queue_find(self.plane, topic_id, queue_id))
        assert slot != lib.RMQ_NONE
        return slot

    def queue(self, topic_id: int, queue_id: int) -> Any:
        """struct rmq_queue."""
        return lib.rmq_queue_at(self.plane, self.queue_slot(topic_id, queue_id))

    # -- producing -------------------------------------------------------------------------------------

    def keep(self, producer: int, data: bytes) -> int:
        """Put bytes into a producer's arena; their position."""
        at = self._used[producer]
        if at + len(data) > ARENA_BYTES:
            at = 0  # the tests take every completion long before
        self._areas[producer][at : at + len(data)] = data
        self._used[producer] = at + len(data)
        return at

    def arena(self, producer: int, at: int, length: int) -> bytes:
        """Bytes of a producer's arena."""
        return self._areas[producer][at : at + length]

    def request(self, topic_id: int, queue_id: int = 0, body: bytes = b"", *, producer: int = 0, **fields: Any) -> int:
        """Put one request; returns its token. properties, extra: bytes; others: fields of the struct."""
        ring = self.header.ports.port[producer].request
        assert ring.head - ring.tail < ring.capacity, "request ring is full"
        slot = self.slot("struct rmq_request *", ring, ring.head)
        ffi.memmove(slot, bytes(ffi.sizeof("struct rmq_request")), ffi.sizeof("struct rmq_request"))
        for name, data in (
            ("body", body),
            ("properties", fields.pop("properties", b"")),
            ("extra", fields.pop("extra", b"")),
        ):
            setattr(slot, f"{name}_at", self.keep(producer, data))
            setattr(slot, f"{name}_length", len(data))
        self._pending += 1
        slot.token, slot.kind = self._pending, lib.RMQ_APPEND_SINGLE
        slot.topic_id, slot.queue_id = topic_id, queue_id
        slot.queue_slot = lib.rmq_queue_find(self.plane, topic_id, queue_id)
        slot.born_time_ms, slot.born_port = 1_700_000_000_000, 5555
        slot.born_host = bytes([10, 0, 0, 1]) + bytes(12)
        for name, value in fields.items():
            setattr(slot, name, value)
        ring.head += 1
        return self._pending

    def slot(self, kind: str, ring: Any, position: int) -> Any:
        """Address of a ring slot."""
        return ffi.cast(kind, self.plane.base + ring.slots_at + (position & (ring.capacity - 1)) * ring.slot_bytes)

    def completions(self, producer: int = 0, ring_name: str = "appended") -> list[Completion]:
        """Take all completions of a producer."""
        ring = getattr(self.header.ports.port[producer], ring_name)
        taken = []
        while ring.tail < ring.head:
            c = self.slot("struct rmq_completion *", ring, ring.tail)
            taken.append(
                Completion(
                    c.commit_log_offset,
                    c.commit_log_offset + c.bytes,
                    c.queue_offset,
                    c.token,
                    c.code,
                    c.cause,
                    c.cause_errno,
                )
            )
            ring.tail += 1
        return taken

    # -- roles -----------------------------------------------------------------------------------------

    @contextmanager
    def writer(self) -> Iterator[Callable[[], int]]:
        """An open write role; call it to run until it has nothing left to do, or for a given time."""
        sleeps = (lib.RMQ_ROLE_WRITE, lib.RMQ_WRITE_SLEEPS)
        yield from self._role(lib.rmq_writer_open, lib.rmq_writer_run, lib.rmq_writer_close, sleeps)

    @contextmanager
    def flusher(self) -> Iterator[Any]:
        """An open flush role, called as `writer()` is; `.handle` is the C object."""
        sleeps = (lib.RMQ_ROLE_FLUSH, lib.RMQ_FLUSH_SLEEPS)
        yield from self._role(lib.rmq_flusher_open, lib.rmq_flusher_run, lib.rmq_flusher_close, sleeps)

    @contextmanager
    def dispatcher(self, open_files: int = 4) -> Iterator[Any]:
        """An open dispatch role, called as `writer()` is; `.handle` is the C object."""

        def opener(plane: Any, error: Any) -> Any:
            return lib.rmq_dispatcher_open(plane, open_files, ffi.NULL, error)

        sleeps = (lib.RMQ_ROLE_DISPATCH, lib.RMQ_DISPATCH_SLEEPS)
        yield from self._role(opener, lib.rmq_dispatcher_run, lib.rmq_dispatcher_close, sleeps)

    def dispatch_each(self, dispatch: Any, count: int) -> None:
        """One record a batch, up to `count` records of the log, or to a fault."""
        self.marks.confirm_policy = lib.RMQ_CONFIRM_FLUSHED
        for position, data, _ in self.records()[:count]:
            self.marks.flushed_offset = max(self.marks.flushed_offset, position + len(data))
            while self.marks.dispatched_offset < self.marks.flushed_offset and not self.marks.dispatch_fault:
                dispatch(1)

    def _role(self, opener: Any, run: Any, close: Any, sleeps: tuple[int, int]) -> Iterator[Any]:
        """`sleeps`: role and number of its counter of sleeps."""
        error = ffi.new("int *")
        handle = opener(self.plane, error)
        if handle == ffi.NULL:
            raise OSError(-error[0], os.strerror(-error[0]))

        counters, number = self.header.roles[sleeps[0]].counters, sleeps[1]

        def slice_(budget_ns: int) -> int:
            code = int(run(handle, budget_ns))
            if code < 0:
                raise OSError(-code, os.strerror(-code))
            return code

        def role(budget_ns: int | None = None) -> int:
            """Run to rest, or one slice of `budget_ns`. A role that sleeps can do nothing more now."""
            if budget_ns is not None:
                return slice_(budget_ns)
            before = counters[number]
            for _ in range(SLICES_MAX):
                code = slice_(SLICE_NS)
                if code != lib.RMQ_RUN_BUDGET or counters[number] != before:
                    break
            return code

        role.handle = handle  # type: ignore[attr-defined]
        try:
            yield role
        finally:
            close(handle)

    # -- looking ---------------------------------------------------------------------------------------

    def log(self, start: int, end: int) -> bytes:
        """Bytes of the log, across files."""
        size, out = self.header.settings.segment_bytes, bytearray()
        while start < end:
            first = start - start % size
            stop = min(end, first + size)
            data = (self.root / "commitlog" / f"{first:020d}").read_bytes()
            assert len(data) == size
            out += data[start - first : stop - first]
            start = stop
        return bytes(out)

    def records(self, start: int = 0, end: int | None = None) -> list[tuple[int, bytes, Any]]:
        """(offset, bytes, view) of every record up to the append position; fails on anything that is none."""
        size, found = self.header.settings.segment_bytes, []
        end = self.marks.append_offset if end is None else end
        while start < end:
            limit = start - start % size + size
            found += self._records_of_file(start, self.log(start, min(end, limit)), limit)
            start = limit
        return found

    def _records_of_file(self, start: int, data: bytes, limit: int) -> Iterator[tuple[int, bytes, Any]]:
        """Those of one file, which ends at `limit`; `data` begins at `start`."""
        bytes_of, at = ffi.from_buffer("uint8_t[]", data), 0
        while at < len(data):
            view = ffi.new("struct rmq_record_view *")
            code = lib.rmq_record_parse(bytes_of + at, len(data) - at, 1, view)
            if code == lib.RMQ_RECORD_BLANK:
                assert struct.unpack_from(">i", data, at)[0] == limit - start - at
                return
            assert code == lib.RMQ_RECORD_OK, (code, start + at)
            assert view.physical_offset == start + at
            yield start + at, data[at : at + view.total_size], view
            at += view.total_size

    def queue_units(self, topic: str, queue_id: int) -> dict[int, tuple[int, int, int]]:
        """Queue offset -> (commit log offset, size, tags code) of every unit that is not empty."""
        units = {}
        folder = self.root / "consumequeue" / topic / str(queue_id)
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            assert len(data) == self.header.settings.queue_file_bytes
            for number, unit in enumerate(struct.iter_unpack(">qiq", data)):
                if unit != (0, 0, 0):
                    units[int(path.name) // 20 + number] = unit
        return units


def element(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """One message of a client batch."""
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iIiii", size, 0x11111111, 0x22222222, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def die_with_parent() -> None:
    """A forked child must not outlive its test."""
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)


def filter_found(kit: Kit, text: bytes) -> bytes | None:
    """The program that a reader finds for an expression."""
    version = ffi.new("uint32_t *")
    slot = lib.rmq_filter_find(kit.plane, text, len(text), version)
    if slot == lib.RMQ_NONE:
        return None
    program = ffi.new("char[]", lib.RMQ_FILTER_PROGRAM_MAX)
    return bytes(ffi.buffer(program, lib.rmq_filter_copy(kit.plane, slot, version[0], program)))


def filter_put(kit: Kit, slot: int, text: bytes, program: bytes) -> int:
    """The version of a program that control publishes in a slot; 0 = refused."""
    return int(lib.rmq_filter_put(kit.plane, slot, text, len(text), program, len(program)))
