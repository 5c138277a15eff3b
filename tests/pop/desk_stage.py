"""The desk of POP over a plane of the role tests, with windows in memory of its own: the test is the read worker."""

from __future__ import annotations

import itertools
import mmap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs
from plane_kit import ROWS, Kit

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Inbox
from ringmq.ipc.ports import Port, PortPlan, Reader
from ringmq.native import ffi, lib
from ringmq.pop.desk import Desk
from ringmq.pop.drain import PopDrain
from ringmq.pop.log_acks import LogAcks
from ringmq.pop.record_notice import KeptNotice
from ringmq.remoting import pop_bodies
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.errors import RequestError
from ringmq.remoting.pop_bodies import PopInflight
from ringmq.store import record as records

ROLE, READER = lib.RMQ_ROLE_POP, lib.RMQ_ROLE_READ
POP, ACK, CHANGE, BATCH_ACK = 200050, 200051, 200053, 200151
PEEK, NOTIFICATION, POLLING_INFO = 200052, 200054, 200055
INFLIGHT, DRAIN = 270007, 270008
CODES = (POP, ACK, CHANGE, BATCH_ACK, PEEK, NOTIFICATION, POLLING_INFO, INFLIGHT, DRAIN)
PLAN = AnswererPlan(ROLE, frozenset({READER, READER + 1}), 1 << 20, 1 << 20, CODES)
PORT = PortPlan(ROLE, flags=lib.RMQ_PORT_ARRIVALS | lib.RMQ_PORT_COMMITS | lib.RMQ_PORT_PULL_STATS)
BROKER = "broker-a"
GROUP_ON = lib.RMQ_GROUP_LIVE | lib.RMQ_GROUP_CONSUME_ENABLE
WINDOWS_MAX = 512


class StagePlane:
    """The methods of `ringmq.ipc.plane.Plane` that the desk calls."""

    def __init__(self, kit: Kit) -> None:
        self.kit, self.struct, self.header, self.watermarks = kit, kit.plane, kit.header, kit.marks
        self.readers = [Reader(0, READER), Reader(1, READER + 1)]

    def role(self, role: int) -> Any:
        return self.header.roles[role]

    def port_of(self, role: int) -> int:
        return int(lib.rmq_port_find(self.struct, role))

    def topic_find(self, name: str) -> int | None:
        return self._id(lib.rmq_topic_find(self.struct, name.encode(), len(name.encode())))

    def group_find(self, name: str) -> int | None:
        return self._id(lib.rmq_group_find(self.struct, name.encode(), len(name.encode())))

    def queue_find(self, topic_id: int, queue_id: int) -> int | None:
        return self._id(lib.rmq_queue_find(self.struct, topic_id, queue_id))

    def topic(self, topic_id: int) -> Any:
        return lib.rmq_topic_at(self.struct, topic_id)

    def group(self, group_id: int) -> Any:
        return lib.rmq_group_at(self.struct, group_id)

    def queue(self, slot: int) -> Any:
        return lib.rmq_queue_at(self.struct, slot)

    def offset_get(self, group_id: int, slot: int) -> int:
        return int(lib.rmq_offset_get(self.struct, group_id, slot))

    @staticmethod
    def _id(found: int) -> int | None:
        return None if found == lib.RMQ_NONE else int(found)


class StageNames:
    """The names of windows, in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, str, int]] = []
        self.forgotten: set[int] = set()

    def add(self, group: str, topic: str, queue_id: int, birth: int) -> int:
        self.lines.append((len(self.lines) + 1, group, topic, queue_id))
        return len(self.lines)

    def all(self) -> Iterator[tuple[int, str, str, int]]:
        return iter(list(self.lines))

    def forget(self, window_id: int) -> None:
        self.forgotten.add(window_id)


class StageControl:
    """Control: makes groups when the test says so. Those of the plane are on disk, unless `is_saving`."""

    def __init__(self, plane: StagePlane) -> None:
        self._plane, self.is_saving = plane, False
        self.asked: list[tuple[str, Callable[[RequestError | None], None]]] = []
        self.has_news = self.is_waiting = False

    def turn(self, now_ms: int) -> bool:
        return False

    def make(self, asked: Any, now_ms: int, then: Callable[[RequestError | None], None]) -> None:
        if self._plane.group_find(asked.group) is not None and not self.is_saving:
            then(None)
        else:
            self.asked.append((asked.group, then))


class StageLog:
    """A view of the log of which nothing is asked."""

    def refresh(self) -> None:
        pass


class StageMemory:
    """Memory of windows that the test may open again."""

    def __init__(self, root: Path, entries_max: int) -> None:
        self.root = root
        self.layout = lib.rmq_pop_layout_of(WINDOWS_MAX, entries_max)
        self._map = mmap.mmap(-1, int(self.layout.mapped_bytes))
        self.base = ffi.from_buffer("uint8_t *", self._map, require_writable=True)
        self.header = ffi.cast("struct rmq_pop_header *", self.base)
        self.pages = lib.rmq_pop_pages_open(self.base, self.layout, -1)

    def windows(self) -> Any:
        """The windows, as a start finds them."""
        damaged = ffi.new("uint64_t *")
        found = lib.rmq_pop_windows_open(
            self.pages, self.layout, time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000, damaged
        )
        assert found != ffi.NULL
        assert damaged[0] == 0
        return found


class Hold(NamedTuple):
    """The fields of a struct rmq_hold."""

    slot: int
    until_ns: int


class Answer(NamedTuple):
    """The answer of a client, with its verdict. Of a poll that is held: the answer at its time, and its ask."""

    command: RemotingCommand
    verdict: Any
    frame: bytes
    instead: bytes = b""
    hold: Hold | None = None

    @property
    def code(self) -> int:
        return self.command.code

    @property
    def fields(self) -> dict[str, str]:
        return self.command.ext_fields

    @property
    def messages(self) -> list[Any]:
        """The records of the body."""
        found, body = [], self.command.body
        while body:
            result, record = records.parse_record(body, -1)
            assert result == records.OK
            assert record is not None
            found.append(record)
            body = body[int.from_bytes(body[:4]) :]
        return found


class Verdict(NamedTuple):
    """The fields of a struct rmq_verdict that tests look at."""

    type: int
    flags: int
    serial: int
    pending: int
    pieces: int = 0


class Stage:
    """A broker's log, one desk, one client."""

    def __init__(
        self, root: Path, *, entries_max: int = 8192, arrived_slots: int = 8, has_log_acks: bool = False, **config: Any
    ) -> None:  # fmt: skip
        has_row = any(row.role == ROLE for row in ROWS)
        self.kit = Kit(
            root, segment_bytes=1 << 20, queue_file_bytes=60_000, inbox_bytes=1 << 20,
            answerers=() if has_row else (PLAN,), ports=() if has_row else (PORT,), arrived_slots=arrived_slots,
        )  # fmt: skip
        self.kit.marks.start_id = 9
        settings = self.kit.header.settings
        settings.pull_memory_count_max, settings.pull_memory_bytes_max = 32, 262_144
        settings.pull_disk_count_max, settings.pull_disk_bytes_max = 8, 65_536
        settings.memory_window_bytes = 1 << 30
        self.plane, self.names = StagePlane(self.kit), StageNames()
        self.control = StageControl(self.plane)
        self.memory = StageMemory(root, entries_max)
        self.config = BrokerConfig(store_path_root_dir=str(root), broker_name=BROKER, **config)
        self.lines: list[str] = []
        self._pending = itertools.count(1)
        self.asks: dict[int, bytes] = {}
        """The frame of each ask, by its token."""
        self.generation = 5
        """Of the read worker."""
        self.kit.header.roles[READER].generation = self.generation
        self.now_ms = 1000
        self._has_log_acks = has_log_acks
        self.log_acks: LogAcks | None = None
        self.open()

    # ---- the desk ----

    def open(self) -> None:
        """A process of the worker begins."""
        self.kit.header.roles[ROLE].generation += 1
        self.windows = self.memory.windows()
        plane: Any = self.plane
        control: Any = self.control
        log_view: Any = StageLog()
        if self._has_log_acks:
            port, notice = Port(plane, plane.port_of(ROLE)), KeptNotice(self.memory.root)
            port.claim()
            self.log_acks = LogAcks(plane, port, notice, lambda: self.config, self.lines.append)
        drain = PopDrain(
            self.windows, self.plane.role(ROLE).counters, lambda: (each for each in ()), lambda: self.desk.resume(),
            self.lines.append,
        )  # fmt: skip
        self.desk = Desk(
            plane, Inbox(plane, ROLE), self.memory, self.windows, self.names, lambda: self.config, control, log_view,
            log_line=self.lines.append, log_acks=self.log_acks, drain=drain,
        )  # fmt: skip
        self.answerer = self.desk.native.struct.answerer
        self.desk.begin()

    def die(self) -> None:
        """End the process. Its memory alone stays."""
        lib.rmq_pop_windows_close(self.windows)
        self.kit.header.roles[ROLE].state = 0

    def restart(self) -> None:
        """Another process of the worker goes on."""
        self.die()
        self.open()

    def set(self, **config: Any) -> None:
        """Change the configuration."""
        self.config = structs_replace(self.config, **config)

    # ---- the broker ----

    def topic(self, name: str, queues: int = 1, perm: int = 6) -> int:
        """A topic."""
        topic_id = self.kit.topic(name.encode(), queues)
        lib.rmq_topic_set(self.kit.plane, topic_id, lib.RMQ_TOPIC_LIVE << 40 | queues << 24 | queues << 8 | perm)
        return topic_id

    def group(self, name: str, config: int = GROUP_ON) -> int:
        """A group."""
        return int(lib.rmq_group_add(self.kit.plane, name.encode(), len(name.encode()), config))

    def send(self, topic: str, count: int, queue_id: int = 0, **fields: Any) -> None:
        """Messages, in their queue."""
        topic_id = self.plane.topic_find(topic)
        assert topic_id is not None
        bodies = fields.pop("bodies", None) or [b"m%d" % number for number in range(count)]
        with self.kit.writer() as write, self.kit.dispatcher() as dispatch:
            for number, body in enumerate(bodies, 1):
                self.kit.request(topic_id, queue_id, body, **fields)
                if number % 32 == 0 or number == len(bodies):
                    write()
                    self.kit.completions()
            while self.kit.marks.dispatched_offset < self.kit.marks.append_offset:
                dispatch()

    # ---- the client ----

    def put(
        self, code: int, fields: Mapping[str, Any], body: bytes = b"", *, oneway: bool = False, odd: bool = False,
        received_ns: int = 0, connection: int = 9, role: int = READER, held_until_ns: int = 0,
    ) -> int:  # fmt: skip
        """Ask as a read worker does. `odd`: in a form that C leaves to Python. `held_until_ns`: the read worker has
        held the ask for another process of the desk. Returns the token."""
        pending = next(self._pending)
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        flag = 2 if oneway else 0
        frame = encode_frame(RemotingCommand(code, pending, flag, ext_fields=texts, body=body, version=477))
        if odd:
            frame = frame[:4] + frame[4:].replace(b'"language"', b'"remark":"\\u0041","language"', 1)
            grown = len(b'"remark":"\\u0041",')
            header = int.from_bytes(frame[5:8]) + grown
            frame = (len(frame) - 4).to_bytes(4) + bytes([frame[4]]) + header.to_bytes(3) + frame[8:]
        self.asks[pending] = frame
        kind = lib.RMQ_INBOX_HELD if held_until_ns else lib.RMQ_INBOX_COLD_FRAME
        if held_until_ns:
            frame = held_until_ns.to_bytes(8, "little") + frame
        self.note(
            kind, frame, role=role, connection=connection, pending=pending, frame_length=len(self.asks[pending]),
            received_ns=received_ns,
        )  # fmt: skip
        return pending

    def note(
        self, kind: int, payload: bytes = b"", *, role: int = READER, connection: int = 9, pending: int = lib.RMQ_NONE,
        frame_length: int = 0, received_ns: int = 0,
    ) -> None:  # fmt: skip
        """A record of a read worker in the inbox."""
        head = ffi.new("struct rmq_inbox_record *")
        head.type, head.role, head.role_generation = kind, role, self.generation
        head.connection, head.connection_generation, head.pending = connection, 3, pending
        head.frame_length, head.peer_port, head.received_mono_ns = frame_length, 4312 + connection, received_ns
        head.peer_host = bytes([127, 0, 0, 1]) + bytes(12)
        assert lib.rmq_inbox_put(self.kit.plane, self.answerer, head, payload, len(payload), ffi.NULL) == 0

    def unsent(self, verdict: Verdict) -> None:
        """The read worker has dropped an answer, or does not hold a poll."""
        told = ffi.new("struct rmq_unsent *", {
            "answerer_generation": self.kit.header.roles[ROLE].generation, "asker_generation": self.generation,
            "serial": verdict.serial, "flags": verdict.flags, "reason": lib.RMQ_UNSENT_GONE,
        })  # fmt: skip
        self.note(lib.RMQ_INBOX_UNSENT, bytes(ffi.buffer(told)), pending=verdict.pending)

    def turn(self) -> None:
        """Turns of the desk, until it has nothing more to do."""
        for _ in range(50):
            self.now_ms += 1
            if not self.desk.turn(self.now_ms):
                return

    def has_verdict(self, role: int = READER) -> bool:
        """True if an answer waits for its read worker."""
        ring = self.kit.header.asks.answerer[self.answerer].answers[role]
        return bool(ring.head != ring.tail)

    def verdict(self, role: int = READER) -> Answer | None:
        """The next answer, as a read worker sends it."""
        found = lib.rmq_verdict_take(self.kit.plane, self.answerer, role)
        if found == ffi.NULL:
            return None
        size = ffi.sizeof("struct rmq_verdict")
        payload = bytes(ffi.buffer(ffi.cast("char *", found) + size, found.length - size))
        kind, told = found.type, (found.flags, found.serial, found.pending)
        lib.rmq_verdict_done(self.kit.plane, self.answerer, role, found)
        if kind == lib.RMQ_VERDICT_HOLD:
            hold, at = ffi.from_buffer("struct rmq_hold *", payload), ffi.sizeof("struct rmq_hold")
            ask, frame = payload[at : at + hold.ask_bytes], payload[at + hold.ask_bytes :]
            assert len(frame) == hold.answer_bytes
            return Answer(_decoded(frame), Verdict(kind, *told), ask, frame, Hold(hold.slot, hold.deadline_ns))
        if kind != lib.RMQ_VERDICT_RECORDS:
            return Answer(_decoded(payload), Verdict(kind, *told), payload)
        frame, instead, pieces = self._assembled(payload)
        return Answer(_decoded(frame), Verdict(kind, *told, pieces), frame, instead)

    def ask(self, code: int, fields: Mapping[str, Any], body: bytes = b"", **more: Any) -> Answer:
        """Ask, and get the answer."""
        pending = self.put(code, fields, body, **more)
        self.turn()
        answer = self.verdict()
        assert answer is not None, f"no answer to {code} {fields}"
        assert answer.verdict.pending == pending
        assert answer.command.opaque == pending
        return answer

    def pop(self, topic: str = "T", group: str = "G", **fields: Any) -> Answer:
        """One pop."""
        more = {key: fields.pop(key) for key in ("odd", "oneway", "received_ns", "connection") if key in fields}
        asked = {
            "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
            "pollTime": 0, "bornTime": time.time_ns() // 1_000_000, "initMode": 0, "expType": "TAG", "exp": "*",
        }  # fmt: skip
        return self.ask(POP, asked | fields, **more)

    def ack(self, receipt: str, group: str = "G", topic: str = "T", **fields: Any) -> Answer:
        """Acknowledge by a receipt."""
        parts = receipt.split(" ")
        asked = {
            "consumerGroup": group, "topic": topic, "queueId": parts[6], "extraInfo": receipt, "offset": parts[7],
        }  # fmt: skip
        more = {key: fields.pop(key) for key in ("odd", "oneway") if key in fields}
        return self.ask(fields.pop("code", ACK), asked | fields, **more)

    def peek(self, topic: str = "T", group: str = "G", **fields: Any) -> Answer:
        """One look at the next messages."""
        more = {key: fields.pop(key) for key in ("oneway", "connection") if key in fields}
        asked = {"consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32}
        return self.ask(PEEK, asked | fields, **more)

    def inflight(self, group: str = "G", **fields: Any) -> PopInflight:
        """The open messages of a group."""
        answer = self.ask(INFLIGHT, {"consumerGroup": group} | fields)
        assert answer.code == 0, answer.command.remark
        return PopInflight.decode(answer.command.body)

    def drain(self, choice: str) -> str:
        """An operator's request. Returns the state."""
        answer = self.ask(DRAIN, {"choice": choice})
        assert answer.code == 0, answer.command.remark
        return pop_bodies.PopDrain.decode(answer.command.body).state

    def polling_info(self, topic: str = "T", group: str = "G", **fields: Any) -> Answer:
        """The number of polls that wait."""
        return self.ask(POLLING_INFO, {"consumerGroup": group, "topic": topic, "queueId": -1} | fields)

    def notification(self, topic: str = "T", group: str = "G", **fields: Any) -> Answer:
        """One question whether a pop would find a message."""
        more = {key: fields.pop(key) for key in ("odd", "oneway", "connection") if key in fields}
        asked = {"consumerGroup": group, "topic": topic, "queueId": -1, "pollTime": 0, "bornTime": 0}
        return self.ask(NOTIFICATION, asked | fields, **more)

    def _assembled(self, payload: bytes) -> tuple[bytes, bytes, int]:
        """(frame, the other frame, pieces), with the checks of a read worker."""
        head = ffi.from_buffer("struct rmq_records_head *", payload)
        pieces = ffi.cast("struct rmq_record_piece *", ffi.cast("char *", head) + ffi.sizeof("struct rmq_records_head"))
        at = ffi.sizeof("struct rmq_records_head") + head.piece_count * ffi.sizeof("struct rmq_record_piece")
        frame = b""
        for number in range(head.piece_count):
            piece = pieces[number]
            assert piece.size
            if piece.position == lib.RMQ_RECORD_INLINE:
                assert piece.messages == 0
                frame += payload[at : at + piece.size]
                at += piece.size
            else:
                assert piece.messages
                frame += self.kit.log(piece.position, piece.position + piece.size)
        assert int.from_bytes(frame[:4]) + 4 == len(frame)
        assert len(payload) - at == head.fallback_bytes
        return frame, payload[at:], int(head.piece_count)


def receipts(answer: Answer) -> list[str]:
    """The receipts that a client makes of an answer, in the order of its messages."""
    fields, made = answer.fields, []
    starts = {tuple(entry.split(" ")[:2]): entry.split(" ")[2] for entry in fields["startOffsetInfo"].split(";")}
    for entry in fields["msgOffsetInfo"].split(";"):
        flag, queue_id, offsets = entry.split(" ")
        for offset in offsets.split(","):
            made.append(
                f"{starts[flag, queue_id]} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} {flag} "
                f"{BROKER} {queue_id} {offset}"
            )
    return made


def structs_replace(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    """The configuration with other values."""
    import dataclasses

    return (
        dataclasses.replace(config, **changes)
        if dataclasses.is_dataclass(config)
        else structs.replace(config, **changes)
    )  # type: ignore[type-var]


def _decoded(frame: bytes) -> RemotingCommand:
    return decode_frame(frame) if frame else RemotingCommand(0, 0)
