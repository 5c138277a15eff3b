"""The ha role of a slave in this process, on a plane in anonymous memory, and a master that says what a test wants."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from plane_kit import Kit

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import ffi, lib

SLICE_NS = 2_000_000


def frame(offset: int, body: bytes = b"") -> bytes:
    """A transfer; without a body a heartbeat."""
    return struct.pack(">qi", offset, len(body)) + body


def frames(log: bytes, start: int, file_bytes: int, cuts: Iterable[int] = (), body_max: int = 32_768) -> bytes:
    """`log`, whose first byte is at `start`, as a master sends it: cut at `cuts` (log offsets) and at file ends."""
    ends = {start + len(log), *range(start - start % file_bytes + file_bytes, start + len(log), file_bytes)}
    ends |= {cut for cut in cuts if start < cut < start + len(log)}
    out, at = b"", start
    for end in sorted(ends):
        while at < end:
            size = min(body_max, end - at)
            out += frame(at, log[at - start : at - start + size])
            at += size
    return out


class SlaveKit(Kit):
    """A slave's plane and store."""

    def __init__(self, root: Path, *, append_offset: int = 0, **settings: Any) -> None:
        super().__init__(root, **settings)
        here = self.header.settings
        self.marks.tenure = Tenure(TenureState.SLAVE).word
        self.header.ports.journal.owner = lib.RMQ_ROLE_HA
        here.ha_heartbeat_ms, here.ha_housekeeping_ms = 60_000, 60_000
        self.marks.confirm_limit = 2**64 - 1
        if append_offset:
            self.create_segment(append_offset - append_offset % here.segment_bytes)
        self.marks.append_offset = self.marks.flushed_offset = append_offset
        self.marks.dispatched_offset = self.marks.min_offset = append_offset
        self.header.ports.journal.intent_high = append_offset

    @contextlib.contextmanager
    def receiver(self) -> Iterator["Receiver"]:
        """An open ha role."""
        error = ffi.new("int *")
        handle = lib.rmq_receiver_open(self.plane, error)
        if handle == ffi.NULL:
            raise OSError(-error[0], os.strerror(-error[0]))
        try:
            yield Receiver(handle)
        finally:
            lib.rmq_receiver_close(handle)

    def answer_questions(self) -> list[tuple[bytes, int]]:
        """Make the queues that dispatch asks for, as control does; (topic, queue id) of each."""
        made = []
        while (record := lib.rmq_inbox_take(self.plane, 0)) != ffi.NULL:
            assert record.type == lib.RMQ_INBOX_QUEUE
            size = ffi.sizeof("struct rmq_inbox_record")
            topic = bytes(ffi.buffer(ffi.cast("char *", record) + size, record.length - size))
            made.append((topic, record.pending))
            lib.rmq_inbox_done(self.plane, 0, record)
        for topic, queue_id in made:
            topic_id = lib.rmq_topic_find(self.plane, topic, len(topic))
            if topic_id == lib.RMQ_NONE:
                topic_id = self.topic(topic, 0)
            lib.rmq_queue_add(self.plane, topic_id, queue_id, 0, 0, self.marks.dispatched_offset)
        return made

    def dispatch_all(self) -> list[tuple[bytes, int]]:
        """Run dispatch until everything appended is dispatched; what it asked for."""
        asked = []
        with self.dispatcher(open_files=64) as run:
            while self.marks.dispatched_offset < lib.rmq_confirm_offset(self.marks):
                before = self.marks.dispatched_offset
                run(SLICE_NS)
                questions = self.answer_questions()
                asked += questions
                assert questions or self.marks.dispatched_offset > before
        return asked


class Receiver:
    """The C role and the master's end of its connection."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.master: socket.socket | None = None

    def connect(self) -> socket.socket:
        """A new connection; the master's end of it, which never blocks."""
        self.master, other = socket.socketpair()
        self.master.setblocking(False)
        other.setblocking(False)
        lib.rmq_receiver_attach(self.handle, other.detach())
        return self.master

    def run(self, budget_ns: int = SLICE_NS) -> int:
        """One slice; its reason."""
        code = int(lib.rmq_receiver_run(self.handle, budget_ns))
        assert code >= 0, os.strerror(-code)
        return code

    def feed(self, data: bytes) -> int:
        """Say `data` and run until it has been taken; the reason of the last slice."""
        assert self.master is not None
        code, view = lib.RMQ_RUN_BUDGET, memoryview(data)
        while view and code == lib.RMQ_RUN_BUDGET:
            with contextlib.suppress(BlockingIOError):
                view = view[self.master.send(view) :]
            code = self.run()
        return code

    def reports(self) -> list[int]:
        """What the slave has reported since the last look."""
        assert self.master is not None
        data = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    piece = self.master.recv(65_536)
                except ConnectionResetError:  # told once, what was said before is still there
                    continue
                if not piece:
                    break
                data += piece
        assert len(data) % 8 == 0
        return [offset for (offset,) in struct.iter_unpack(">q", data)]

    @property
    def state(self) -> SimpleNamespace:
        """Copy of struct rmq_receiver_state."""
        found = ffi.new("struct rmq_receiver_state *")
        lib.rmq_receiver_state(self.handle, found)
        names = ("received_offset", "offset", "reason", "error", "connected", "waits_for_segment")
        return SimpleNamespace(**{name: int(getattr(found, name)) for name in names})
