"""Ends of transactions out of an inbox: what C takes, the service reads alike."""

import random
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.requests.records import fill_plain_request, plain_request, request_of
from ringmq.broker.requests.request import Request
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plain_requests import fill_record
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame
from ringmq.services.transactions.ends import TABLE, UNKNOWN, End, end_of, end_of_row
from ringmq.services.transactions.plain_ends import PlainEnds
from tests.native.plain_kit import HOST, TEXTS, ask, fill, record_of

FIELDS = {
    "producerGroup": "G", "tranStateTableOffset": "7", "commitLogOffset": "900", "commitOrRollback": "8",
    "msgId": "0A", "fromTransactionCheck": "false", "topic": "T",
}  # fmt: skip
END = 37
READER, ROLE = lib.RMQ_ROLE_READ, lib.RMQ_ROLE_TRANSACTIONS
SMALL = Capacity(
    topics=64, queues=64, groups=64, subscriptions=64, offsets=64, parked_slots=64, commit_slots=64, arrived_slots=64,
    answerers=(
        AnswererPlan(lib.RMQ_ROLE_CONTROL, frozenset({READER, ROLE}), 1 << 16, 1 << 16),
        AnswererPlan(ROLE, frozenset({READER}), 1 << 18, 1 << 16, (END,)),
    ),
)  # fmt: skip


def native(of: Ask) -> tuple[Request, End] | None:
    record, _kept = record_of(of)
    row = ffi.new("struct rmq_plain_end *")
    return request_of_row(row) if lib.rmq_plain_end_read(record, row) else None


def request_of_row(row: Any) -> tuple[Request, End]:
    return plain_request(row.record, row.asked, 1, 9), end_of_row(row)


def added(of: Ask) -> tuple[Request, End]:
    """The request in a row that Python has filled."""
    request, row = request_of(of, HOST, 9), ffi.new("struct rmq_plain_end *")
    fill_plain_request(request, of.role, row.record, row.asked)
    fill_record(row, TABLE.decode(request.command.ext_fields, request.command.version))
    assert row.record.role == of.role
    return request_of_row(row)


def decoded(of: Ask) -> tuple[Request, End]:
    """The same by the service in Python."""
    request = request_of(of, HOST, 9)
    return request, end_of(TABLE.decode(request.command.ext_fields, request.command.version))


def needed(found: tuple[Request, End]) -> tuple[object, ...]:
    """What the service and the answer need of a request."""
    request, end = found
    command = request.command
    return (
        end, command.code, command.opaque, command.is_oneway, command.is_response, command.serialize_type,
        request.connection, request.pending, request.now_ms, request.received_mono_ns, request.frame_bytes,
    )  # fmt: skip


def both(of: Ask) -> bool:
    """True if C takes the end. Python decodes what C takes, and alike."""
    taken = native(of)
    if taken is not None:
        assert needed(taken) == needed(decoded(of)) == needed(added(of)) and taken[1].decision != UNKNOWN
    return taken is not None


def frame(serialize: SerializeType, fields: dict[str, str], **changes: Any) -> bytes:
    return encode_frame(replace(RemotingCommand.request(END, fields, opaque=41, serialize_type=serialize), **changes))


@pytest.mark.parametrize("serialize", SerializeType)
def test_plain_ends(serialize: SerializeType) -> None:
    assert both(ask(frame(serialize, FIELDS)))
    assert both(ask(frame(serialize, FIELDS | {"commitOrRollback": "12", "fromTransactionCheck": "TRUE"})))
    assert both(ask(frame(serialize, {name: FIELDS[name] for name in list(FIELDS)[:5]}, flag=2)))
    assert both(ask(frame(serialize, FIELDS | {"producerGroup": "G" * 255})))
    assert both(ask(frame(serialize, FIELDS | {"tranStateTableOffset": "+7", "commitLogOffset": "0" * 40 + "1"})))


@pytest.mark.parametrize("group", ["g\xe9", "\ud800", "G" * 255, ""])
def test_ends_that_python_reads(group: str) -> None:
    """They become the same rows."""
    of = ask(frame(SerializeType.JSON, FIELDS | {"producerGroup": group, "msgId": "n\xf6te"}, flag=2))
    assert native(of) is None
    assert needed(added(of)) == needed(decoded(of))


@pytest.mark.parametrize("serialize", SerializeType)
def test_ends_for_python(serialize: SerializeType) -> None:
    for name in list(FIELDS)[:5]:
        assert not both(ask(frame(serialize, {key: value for key, value in FIELDS.items() if key != name})))
    for changed in (
        {"commitOrRollback": "0"}, {"commitOrRollback": "4"}, {"commitLogOffset": "x"}, {"producerGroup": "g\xe9"},
        {"producerGroup": "G" * 256}, {"tranStateTableOffset": "9223372036854775808"},
    ):  # fmt: skip
        assert not both(ask(frame(serialize, FIELDS | changed)))
    assert not both(ask(frame(serialize, FIELDS, flag=1)))
    assert not both(ask(frame(serialize, FIELDS, code=36)))
    assert not both(ask(frame(serialize, FIELDS)[:30]))
    assert not both(ask(b""))
    assert not both(ask(frame(serialize, FIELDS), lib.RMQ_INBOX_CLOSED))


@pytest.mark.parametrize(
    ("old", "new", "is_plain"),
    [
        (b'"900"', b"900", True),
        (b'"900"', b"9e2", False),
        (b'"900"', b"900.0", False),
        (b'"G"', b"1e5", False),
        (b'"G"', b'"\\u0047"', False),
        (b'"G"', b"null", False),
        (b'"false"', b"true", True),
        (b'"T"', b'{"a":1}', False),
        (b'"T"', b'"\xff"', False),
        (b'"topic":', b'"msgId":"1","topic":', False),
    ],
)
def test_json_in_other_words(old: bytes, new: bytes, is_plain: bool) -> None:
    plain = frame(SerializeType.JSON, FIELDS)
    header = plain[8:].replace(old, new, 1)
    assert header != plain[8:]
    assert both(ask(struct.pack(">II", 4 + len(header), len(header)) + header)) == is_plain


@pytest.mark.parametrize("seed", range(4))
def test_random_ends(seed: int) -> None:
    dice = random.Random(seed)
    taken = 0
    for _ in range(3000):
        fields = dict(FIELDS)
        for name in dice.sample(list(FIELDS), dice.choice((0, 1, 1, 2))):
            fields[name] = dice.choice(TEXTS)
        order = list(fields)
        dice.shuffle(order)
        changes = {"flag": dice.choice((0, 0, 0, 1, 2, 3, 4)), "opaque": dice.randrange(-(1 << 31), 1 << 31)}
        data = frame(dice.choice(list(SerializeType)), {name: fields[name] for name in order}, **changes)
        if dice.random() < 0.05:
            data = data[: dice.randrange(len(data))]
        taken += both(ask(data))
    assert taken > 500


class Service:
    """Takes as many ends as it has room for, and sends none of them in C."""

    def __init__(self, room: int, waiting: int = 0) -> None:
        self.room, self._waiting = room, waiting
        self.taken: list[int] = []

    def begin(self, plane: Plane, answerer: int) -> None:
        self._plane, self._chains = plane, ffi.new("struct rmq_end_chains *")
        self._chains.answerer = answerer
        for _ in range(self._waiting):
            lib.rmq_end_chains_add(self._chains)

    def take_plain(self, room: int) -> int:
        return int(lib.rmq_end_chains_take(self._plane.struct, self._chains, max(0, min(room, self.room))))

    def send_ends(self) -> Iterator[Any]:
        for number in range(self._waiting, self._chains.waiting_count):
            yield self._chains.rows[self._chains.waiting[number]]

    def take_left(self, request: Request, row: Any) -> None:
        self.room -= 1
        self.taken.append(request.pending)


class Asks:
    """An inbox, and a read worker that asks."""

    def __init__(self, root: Path) -> None:
        self.name = f"test-{uuid.uuid4().hex[:12]}"
        self.plane = Plane.create(self.name, SMALL, root.stat(), 1)
        self.plane.role(READER).generation = self.plane.role(ROLE).generation = 1
        self.inbox = Inbox(self.plane, ROLE)
        self.inbox.begin()

    def put(self, pending: int, code: int = END, generation: int = 1, received_mono_ns: int = 0) -> None:
        head, data = ffi.new("struct rmq_inbox_record *"), frame(SerializeType.ROCKETMQ, FIELDS, code=code)
        fill(head, ask(data))
        head.role, head.role_generation, head.pending = READER, generation, pending
        head.received_mono_ns = received_mono_ns
        assert lib.rmq_inbox_put(self.plane.struct, self.inbox.answerer, head, data, len(data), ffi.NULL) == 0

    def take(self, service: Service, room: int = 512) -> tuple[int, list[int]]:
        """Number of records, and the requests that are handed over."""

        def reader_of(role: int, generation: int) -> int | None:
            assert role == READER
            return 4 if generation == 1 else None

        service.begin(self.plane, self.inbox.answerer)
        count, requests = PlainEnds(service).take(room, reader_of, 9)
        assert {request.connection.reader for request in requests} <= {4}
        assert [request.pending for request in requests] == service.taken
        return count, service.taken


@pytest.fixture
def asks(tmp_path: Path) -> Iterator[Asks]:
    found = Asks(tmp_path)
    yield found
    remove_segments(found.name)


def test_records_keep_their_order(asks: Asks) -> None:
    """Ends behind another request wait for it."""
    for pending, code in enumerate((END, END, 36, END)):
        asks.put(pending, code)
    assert asks.take(Service(10)) == (2, [0, 1])
    assert asks.take(Service(10)) == (0, [])
    other = asks.inbox.take()
    assert other is not None and other.pending == 2
    assert asks.take(Service(10)) == (1, [3])
    assert asks.take(Service(10)) == (0, []) and not asks.inbox.is_blocked


def test_a_batch_has_bounds(asks: Asks) -> None:
    """The room of the service, of the call, and of the ends that wait."""
    for pending in range(90):
        asks.put(pending)
    assert asks.take(Service(0)) == asks.take(Service(-5)) == (0, [])
    assert asks.take(Service(3)) == (3, [0, 1, 2])
    assert asks.take(Service(99), 2) == (2, [3, 4])
    assert asks.take(Service(99, lib.RMQ_END_WAITING_MAX)) == (0, [])
    assert asks.take(Service(99, lib.RMQ_END_WAITING_MAX - 2)) == (2, [5, 6])
    assert asks.take(Service(99)) == (83, list(range(7, 90)))


def test_ends_of_a_dead_read_worker_are_dropped(asks: Asks) -> None:
    asks.put(0, generation=2)
    asks.put(1)
    assert asks.take(Service(10)) == (2, [1])


def test_an_end_that_its_asker_has_given_up_is_left_to_python(asks: Asks) -> None:
    asks.put(0, received_mono_ns=1)
    asks.put(1)
    asks.plane.header.asks.answerer[asks.inbox.answerer].serving_since_ns = 1 << 60
    assert asks.take(Service(10)) == (0, [])
    found = asks.inbox.take()
    assert found is not None and found.pending == 1, "the void ask is passed over"
