"""A read role on loopback with real write and dispatch roles beside it, all in threads of the test process."""

import mmap
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plane_kit import LIVE, Kit
from waiting import TIMEOUT_S, wait_until

from ringmq.native import ffi, lib
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame

BUFFER_BYTES = 4096
BUFFER_COUNT = 32
REASSEMBLY_BYTES = 8 << 20
TURN_NS = 20_000_000
READ = lib.RMQ_ROLE_READ
BOTH = (SerializeType.JSON, SerializeType.ROCKETMQ)
MakeKit = Callable[..., "ReaderKit"]


class ReaderKit(Kit):
    """A plane whose reader 0 serves two real listeners. Without roles() nobody but the reader runs."""

    def __init__(self, root: Path, **settings: Any) -> None:
        kit = {
            name: settings.pop(name)
            for name in ("segment_bytes", "sync", "request_slots", "inbox_bytes", "answerers", "ports")
            if name in settings
        }
        super().__init__(root, **{"segment_bytes": 1 << 20, "request_slots": 256, "inbox_bytes": 1 << 20, **kit})
        s = self.header.settings
        s.frame_bytes_max, s.connections_max = 16 << 20, 256
        s.receive_buffer_bytes, s.receive_buffer_count, s.reassembly_bytes_max = (
            BUFFER_BYTES,
            BUFFER_COUNT,
            REASSEMBLY_BYTES,
        )
        s.send_queue_bytes_max = 8 << 20
        s.held_polls_max, s.held_connection_polls_max, s.held_bytes_max = 65536, 16384, 64 << 20
        s.partial_frame_timeout_ms = s.send_stall_timeout_ms = 60_000  # no stall of the machine closes a connection
        s.idle_connection_ms = 120_000
        s.answer_bytes_max, s.host_connections_max = 64 << 20, 1 << 20
        s.pull_memory_bytes_max, s.pull_memory_count_max = 262144, 32
        s.pull_disk_bytes_max, s.pull_disk_count_max, s.memory_window_bytes = 65536, 8, 1 << 30
        s.region_id, s.trace_on, s.lite_pull_enable, s.short_polling_ms = b"DefaultRegion", 1, 1, 1000
        for name, value in settings.items():
            setattr(s, name, value)
        size = s.receive_buffer_bytes * s.receive_buffer_count + s.reassembly_bytes_max
        size += int(lib.rmq_reader_scratch_bytes(self.header.ports.port[0].request.capacity))
        self._arena = mmap.mmap(-1, size)
        self.plane.arenas[0] = ffi.from_buffer("char *", self._arena, require_writable=True)
        self.plane.arena_bytes[0] = size
        self.header.roles[READ].generation = 1
        self.header.roles[lib.RMQ_ROLE_CONTROL].generation = 1
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self.failures: list[str] = []
        self.stopped: set[str] = set()

    # -- roles ---------------------------------------------------------------------------------------------

    def _loop(self, name: str, opener: Any, run: Any, close: Any, opened: threading.Event) -> None:
        error = ffi.new("int *")
        handle = opener(error)
        opened.set()
        if handle == ffi.NULL:
            self.failures.append(f"{name}: {os.strerror(-error[0])}")
            return
        while not self._stop.is_set():
            code = run(handle, TURN_NS)
            if code < 0:
                self.failures.append(f"{name}: {os.strerror(-code)}")
                break
            if code == lib.RMQ_RUN_STOPPED:
                self.stopped.add(name)
        close(handle)

    def start(self, name: str) -> None:
        """Run a role ("read", "write", "dispatch") in a thread until the kit is closed."""
        main, vip = (listener.fileno() for listener in self.listeners)
        roles: dict[str, tuple[Any, Any, Any]] = {
            "read": (
                lambda e: lib.rmq_reader_open(self.plane, 0, main, vip, e), lib.rmq_reader_run, lib.rmq_reader_close,
            ),
            "write": (lambda e: lib.rmq_writer_open(self.plane, e), lib.rmq_writer_run, lib.rmq_writer_close),
            "dispatch": (
                lambda e: lib.rmq_dispatcher_open(self.plane, 8, ffi.NULL, e),
                lib.rmq_dispatcher_run, lib.rmq_dispatcher_close,
            ),
        }  # fmt: skip
        opened = threading.Event()
        thread = threading.Thread(target=self._loop, args=(name, *roles[name], opened), name=name)
        thread.start()
        self._threads.append(thread)
        assert opened.wait(TIMEOUT_S), f"{name} did not open"
        assert not self.failures, self.failures

    def close(self) -> None:
        """Stop all roles; a role that failed fails the test."""
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"{thread.name} hangs"
        for listener in self.listeners:
            listener.close()
        assert not self.failures, self.failures

    # -- looking -------------------------------------------------------------------------------------------

    def counter(self, number: int) -> int:
        """One of the reader's counters, as last published."""
        return int(self.header.roles[READ].counters[number])

    def group(self, name: bytes, flags: int | None = None) -> int:
        """Add a consumer group."""
        config = (
            lib.RMQ_GROUP_LIVE | lib.RMQ_GROUP_CONSUME_ENABLE | lib.RMQ_GROUP_HAS_MEMBERS if flags is None else flags
        )
        return int(lib.rmq_group_add(self.plane, name, len(name), config))

    def subscribe(self, group: int, topic: int, tags: tuple[bytes, ...] = (), version: int = 1) -> None:
        """Publish a subscription; no tags = all."""
        hashes = [lib.rmq_java_hash(tag, len(tag)) for tag in tags]
        kind = lib.RMQ_SUBSCRIPTION_TAGS if tags else lib.RMQ_SUBSCRIPTION_ALL
        assert lib.rmq_subscription_set(self.plane, group, topic, kind, version, hashes, len(hashes)) == 0

    def wide_topic(self, name: bytes, queues: int = 4, flags: int = 0) -> int:
        """A topic with read and write queues."""
        topic_id = self.topic(name, queues)
        lib.rmq_topic_set(self.plane, topic_id, LIVE | 6 | queues << 8 | queues << 24 | flags << 40)
        return topic_id

    # -- being control -------------------------------------------------------------------------------------

    def inbox_take(self, answerer: int = 0) -> tuple[Any, bytes] | None:
        """Next record of an inbox, control's by default (a copy), and its payload."""
        record = lib.rmq_inbox_take(self.plane, answerer)
        if record == ffi.NULL:
            return None
        size = ffi.sizeof("struct rmq_inbox_record")
        copy = ffi.new("struct rmq_inbox_record *", record[0])
        payload = bytes(ffi.buffer(ffi.cast("char *", record) + size, record.length - size))
        lib.rmq_inbox_done(self.plane, answerer, record)
        return copy, payload

    def take(self, answerer: int = 0) -> tuple[Any, bytes]:
        """The next record; waits for it."""
        found: list[tuple[Any, bytes]] = []

        def look() -> bool:
            taken = self.inbox_take(answerer)
            if taken is not None:
                found.append(taken)
            return bool(found)

        wait_until(look, "a record in the inbox")
        return found[0]

    def verdict(
        self,
        record: Any,
        kind: int,
        payload: bytes = b"",
        last: int = 1,
        pending: int | None = None,
        answerer: int = 0,
        rule: int = 0,
        tells: bool = False,
        serial: int = 0,
        held: bool = False,
    ) -> None:
        """What an answerer answers."""
        head = ffi.new("struct rmq_verdict *")
        head.type, head.last, head.rule = kind, last, rule
        head.flags = (lib.RMQ_VERDICT_TELLS if tells else 0) | (lib.RMQ_VERDICT_HELD if held else 0)
        head.serial = serial
        head.connection, head.connection_generation = record.connection, record.connection_generation
        head.pending = record.pending if pending is None else pending
        head.asker_generation = record.role_generation
        assert lib.rmq_verdict_put(self.plane, answerer, record.role, head, payload, len(payload)) == 0


class Client:
    """A blocking test client of one connection."""

    def __init__(self, address: tuple[str, int], source: str | None = None) -> None:
        origin = (source, 0) if source else None
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S, source_address=origin)
        self._data = b""

    def send(self, *frames: bytes) -> None:
        """Write frames, coalesced."""
        self.socket.sendall(b"".join(frames))

    def read_frame(self) -> bytes:
        """One whole frame; EOFError when the broker closed."""
        while len(self._data) < 4 or len(self._data) < 4 + struct.unpack(">i", self._data[:4])[0]:
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionResetError as error:
                raise EOFError from error
            if not more:
                raise EOFError
            self._data += more
        size = 4 + struct.unpack(">i", self._data[:4])[0]
        frame, self._data = self._data[:size], self._data[size:]
        return frame

    def answer(self) -> RemotingCommand:
        """One decoded answer."""
        return decode_frame(self.read_frame())

    def ask(self, frame: bytes) -> RemotingCommand:
        """Send one frame, take one answer."""
        self.send(frame)
        return self.answer()

    def is_quiet(self, seconds: float = 0.1) -> bool:
        """Nothing came within `seconds`."""
        poll = select.poll()  # takes any descriptor, select only those below 1024
        poll.register(self.socket, select.POLLIN)
        return not self._data and not poll.poll(seconds * 1000)

    def is_closed(self) -> bool:
        """Waits until the broker closes; False when it sends something instead."""
        try:
            self.read_frame()
        except EOFError:
            return True
        return False

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


@contextmanager
def connected(kit: ReaderKit, listener: int = 0) -> Iterator[Client]:
    """A client of the kit's reader."""
    client = Client(kit.listeners[listener].getsockname())
    try:
        yield client
    finally:
        client.close()


def request(
    code: int, fields: dict[str, str], body: bytes = b"", *, opaque: int = 7,
    serialise: SerializeType = SerializeType.JSON, flag: int = 0,
) -> bytes:  # fmt: skip
    """One request frame."""
    return encode_frame(
        RemotingCommand(code=code, opaque=opaque, flag=flag, ext_fields=fields, body=body, serialize_type=serialise)
    )


def send_frame(
    topic: str, body: bytes, properties: str | None = "UNIQ_KEY\x010123456789ABCDEF\x02WAIT\x01true\x02", /, *,
    queue: int = 0, batch: bool = False, opaque: int = 7, serialise: SerializeType = SerializeType.JSON,
    flag: int = 0, **fields: str,
) -> bytes:  # fmt: skip
    """A SEND_MESSAGE_V2 frame; `fields` replace letters."""
    values = {"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1700000000000", "h": "0"}
    values |= {"j": "0", "k": "false", "m": str(batch).lower()}
    if properties is not None:
        values["i"] = properties
    values |= fields
    return request(320 if batch else 310, values, body, opaque=opaque, serialise=serialise, flag=flag)


def pull_frame(
    topic: str, group: str, offset: int, /, *, queue: int = 0, count: int = 32, sys_flag: int = 0,
    suspend_ms: int = 600_000, opaque: int = 9, serialise: SerializeType = SerializeType.JSON, code: int = 11,
    **fields: str,
) -> bytes:  # fmt: skip
    """A PULL_MESSAGE frame; `fields` replace or add ext fields."""
    values = {
        "consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": str(count), "sysFlag": str(sys_flag), "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms), "subVersion": "1", "expressionType": "TAG",
    }  # fmt: skip
    return request(code, values | fields, opaque=opaque, serialise=serialise)
