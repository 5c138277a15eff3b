"""A master's HA writer over a plane of its own, turned by hand, and slaves as plain sockets."""

import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plane_kit import Kit
from waiting import TIMEOUT_S

from ringmq.native import ffi, lib

TURN_NS = 2_000_000
FOLLOWS = lib.RMQ_HA_PEER_COUNTS | lib.RMQ_HA_PEER_IN_SYNC


@dataclass(frozen=True)
class Event:
    """Copy of struct rmq_ha_event."""

    kind: int
    peer: int
    why: int
    error: int
    offset: int
    port: int


class Slave:
    """A raw connection to the HA port; keeps the frames that came."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.port = int(self.socket.getsockname()[1])
        self.stream = b""
        self.closed = False

    def report(self, *offsets: int) -> None:
        """Say how far the log is here."""
        self.socket.send(struct.pack(f">{len(offsets)}Q", *offsets))

    def read(self, limit: int = 1 << 22) -> int:
        """Take in what is there; bytes."""
        try:
            data = self.socket.recv(limit)
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            data = b""
        self.closed = not data
        self.stream += data
        return len(data)

    def frames(self) -> list[tuple[int, bytes]]:
        """Whole frames: (offset, body)."""
        found, at = [], 0
        while at + 12 <= len(self.stream):
            offset, length = struct.unpack_from(">QI", self.stream, at)
            if at + 12 + length > len(self.stream):
                break
            found.append((offset, self.stream[at + 12 : at + 12 + length]))
            at += 12 + length
        return found

    def body(self) -> bytes:
        """Log bytes of all whole frames."""
        return b"".join(body for _, body in self.frames())

    def end(self) -> int:
        """Where the log ends that has come."""
        frames = self.frames()
        return frames[-1][0] + len(frames[-1][1]) if frames else 0


class HaKit(Kit):
    """`turn` runs the C loop and collects its events; `follow` brings a slave into TRANSFER."""

    def __init__(
        self, root: Path, *, window_bytes: int = 1 << 20, message_bytes_max: int = 65536, **settings: Any
    ) -> None:
        super().__init__(root, **settings)
        ours = self.header.settings
        ours.message_bytes_max = message_bytes_max
        ours.ha_transfer_bytes, ours.ha_window_bytes = 32768, window_bytes
        ours.ha_heartbeat_ms, ours.ha_housekeeping_ms = 5000, 20000
        ours.slave_timeout_ms = 300
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self.listener.getsockname()[1])
        self.written = b""
        self.events: list[Event] = []
        self.slaves: list[Slave] = []
        self.sender: Any = None
        self.open()

    def open(self) -> None:
        """Start the HA writer, perhaps as a successor."""
        error = ffi.new("int *")
        self.sender = lib.rmq_ha_sender_open(self.plane, self.listener.fileno(), error)
        assert self.sender != ffi.NULL, os.strerror(-error[0])

    def close(self) -> None:
        """End it and every slave."""
        lib.rmq_ha_sender_close(self.sender)
        self.sender = ffi.NULL
        self.listener.close()
        for slave in self.slaves:
            slave.socket.close()

    def append(self, data: bytes) -> None:
        """What write does, without records: the log grows by `data`."""
        size = self.header.settings.segment_bytes
        while data:
            at = len(self.written)
            part = data[: size - at % size]
            self.create_segment(at - at % size)
            path = self.root / "commitlog" / f"{at - at % size:020d}"
            with path.open("r+b") as file:
                file.seek(at % size)
                file.write(part)
            self.written += part
            data = data[len(part) :]
        self.marks.append_offset = len(self.written)
        lib.rmq_role_wake(self.plane, lib.RMQ_ROLE_HA)

    def turn(self, budget_ns: int = TURN_NS) -> int:
        """One call of the C loop; events go to `events`."""
        reason = int(lib.rmq_ha_sender_run(self.sender, budget_ns))
        assert reason >= 0, os.strerror(-reason)
        event = ffi.new("struct rmq_ha_event *")
        while lib.rmq_ha_sender_event(self.sender, event):
            taken = Event(event.kind, event.peer, event.why, event.error, event.offset, event.port)
            self.events.append(taken)
        return reason

    def turn_until(self, condition: Any, what: str, timeout_s: float = TIMEOUT_S, *, read: bool = True) -> None:
        """Turn, and with `read` let the slaves take in what came, until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
            self.turn()
            for slave in self.slaves if read else ():
                if not slave.closed:
                    slave.read()

    def connect(self, **options: Any) -> Slave:
        """A new slave, accepted."""
        slave = Slave(self.port, **options)
        self.slaves.append(slave)
        self.turn_until(lambda: self.found(slave, lib.RMQ_HA_EVENT_CONNECTED), "the connection is accepted")
        return slave

    def follow(self, requested: int = 0, start: int | None = None, flags: int = FOLLOWS, **options: Any) -> Slave:
        """A slave whose stream has begun."""
        slave = self.connect(**options)
        slave.report(requested)
        self.turn_until(lambda: self.found(slave, lib.RMQ_HA_EVENT_FIRST_REPORT), "its first report has come")
        peer = self.peer(slave)
        assert lib.rmq_ha_sender_mark(self.sender, peer, -1, lib.RMQ_HA_LEVEL_CACHED, flags, b"") == 0
        assert lib.rmq_ha_sender_start(self.sender, peer, requested if start is None else start) == 0
        return slave

    def found(self, slave: Slave, kind: int) -> Event | None:
        """The slave's event of that kind, if it has come."""
        return next((event for event in self.events if event.port == slave.port and event.kind == kind), None)

    def peer(self, slave: Slave) -> int:
        """Its place in the table."""
        event = self.found(slave, lib.RMQ_HA_EVENT_CONNECTED)
        assert event is not None
        return event.peer

    def row(self, slave: Slave) -> Any:
        """Its row in the table."""
        return self.header.replication.peers[self.peer(slave)]

    def require(self, count: int, level: int = lib.RMQ_HA_LEVEL_CACHED) -> None:
        """Answers and confirmation wait for `count` slaves at `level`."""
        requirement = ffi.new("struct rmq_ha_requirement *")
        requirement.count = 1
        condition = requirement.conditions[0]
        condition.peers, condition.count, condition.level = 0xFFFF, count, level
        lib.rmq_ha_sender_require(self.sender, requirement, requirement)
