"""Ends of transactions from their rows to write and back: what C sends, what it leaves to the service, and why."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit_plane import KitPlane
from plane_kit import ARENA_BYTES, Kit

from ringmq.broker.requests.records import plain_request, request_of
from ringmq.ipc.answerers import AnswererPlan
from ringmq.ipc.ports import PortPlan
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, SerializeType, decode_payload, encode_frame
from ringmq.services.transactions.chain_port import ChainPort
from ringmq.services.transactions.end_chains import LEFT_ROOM, EndChains
from ringmq.services.transactions.ends import COMMIT, ROLLBACK, TABLE, Arrival
from ringmq.services.transactions.half_table import Half, HalfTable
from ringmq.store.queue_reader import QueueReader
from tests.native.plain_kit import HOST, ask

HALF, OP = b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROLE, READER = lib.RMQ_ROLE_TRANSACTIONS, lib.RMQ_ROLE_READ
HALVES = 80
MISSING, FULL, UNSOUND, DECIDE, SLOW = (
    lib.RMQ_END_MISSING, lib.RMQ_END_FULL, lib.RMQ_END_UNSOUND, lib.RMQ_END_DECIDE, lib.RMQ_END_SLOW,
)  # fmt: skip


class Ends:
    """A half queue with HALVES open halves, a port, and write. Requests have numbers, which are their opaques."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        asked = AnswererPlan(ROLE, frozenset({READER}), codes=(37,))
        self.kit = kit = Kit(
            root, ports=(PortPlan(ROLE),), answerers=(asked,), segment_bytes=1 << 20, request_slots=256
        )
        topics = [kit.topic(name) for name in (HALF, OP, b"T")]
        self.write: Callable[[], int] = stack.enter_context(kit.writer())
        with kit.dispatcher() as dispatch:
            for number in range(HALVES):
                target = b"Gone" if number == HALVES - 1 else b"T"
                pairs = b"PGROUP\x01G\x02REAL_TOPIC\x01" + target + b"\x02REAL_QID\x010\x02"
                kit.request(topics[0], 0, b"%04d" % number, properties=pairs)
            self.write()
            kit.completions()
            while kit.marks.dispatched_offset < kit.marks.append_offset:
                dispatch()
        self.places = [position for position, _, _ in kit.records()]
        kit.header.roles[ROLE].generation = kit.header.roles[READER].generation = HOST.reader_generation
        plane: Any = KitPlane(kit, ARENA_BYTES)
        plane.readers = [SimpleNamespace(port=HOST.reader, role=READER)]
        self.table = HalfTable()
        for first in range(HALVES):
            self.table.add(Half(first, first, 0, -1, 0))
        queues = [(topic, kit.queue_slot(topic, 0), 0) for topic in topics]
        reader = stack.enter_context(QueueReader(kit.plane, 4, 4))
        self.chains = EndChains(plane, ROLE, ChainPort(plane, ROLE, *queues[:2]), reader, self.table)
        self.arrival = Arrival(kit.marks.append_offset, kit.marks.dispatched_offset, HALVES, HALVES, False)

    def add(self, number: int, half: int, decision: int = COMMIT, **fields: object) -> None:
        """Python has decoded an end of this half."""
        wanted = {
            "producerGroup": "G", "tranStateTableOffset": half, "commitLogOffset": self.places[half],
            "commitOrRollback": decision, "msgId": "n\xf6te", **fields,
        }  # fmt: skip
        texts = {name: str(value) for name, value in wanted.items()}
        of = ask(encode_frame(RemotingCommand.request(37, texts, opaque=number, serialize_type=SerializeType.ROCKETMQ)))
        request = request_of(of, HOST, 9)
        self.chains.add(request, TABLE.decode(texts, request.command.version))

    def received(self, number: int, ns: int) -> None:
        """Let it have come from the inbox at this time."""
        native = self.chains._chains
        for at in range(native.waiting_count):
            row = native.rows[native.waiting[at]]
            if row.asked.opaque == number:
                row.record.received_mono_ns = ns

    def send(self, slow_ns: int = 0, now_ns: int = 1000, op_bytes_max: int = 4096) -> list[tuple[int, int]]:
        """(number, reason) of the ends that are left."""
        left = []
        for row in self.chains.send(self.arrival, None, op_bytes_max, now_ns, 9, slow_ns):
            left.append((plain_request(row.record, row.asked, 1, 9).command.opaque, int(row.why)))
        return left

    @property
    def judged(self) -> int:
        """Halves that C has read and judged so far."""
        return int(self.chains._chains.judged)

    def collect(self) -> None:
        self.write()
        assert not list(self.chains.collect())

    def answered(self) -> list[tuple[int, int]]:
        """(number, code) of the answers that C has put."""
        answerer, found = lib.rmq_answerer_find(self.kit.plane, ROLE), []
        while (verdict := lib.rmq_verdict_take(self.kit.plane, answerer, READER)) != ffi.NULL:
            size = ffi.sizeof("struct rmq_verdict")
            data = bytes(ffi.buffer(ffi.cast("char *", verdict) + size, verdict.length - size))
            command = decode_payload(memoryview(data)[4:])
            found.append((command.opaque, command.code))
            lib.rmq_verdict_done(self.kit.plane, answerer, READER, verdict)
        return found

    def bodies(self, topic: bytes) -> list[bytes]:
        """Of the records in the log."""
        records = ((data, view) for _, data, view in self.kit.records())
        return [
            data[view.body_at :][: view.body_length]
            for data, view in records
            if data[view.topic_at :][: view.topic_length] == topic
        ]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(tmp_path, stack)


def test_ends_are_stored_and_answered(ends: Ends) -> None:
    """A chain takes 63, the others go into a second one."""
    for number in range(70):
        ends.add(number, number, ROLLBACK if number % 10 == 9 else COMMIT)
    assert ends.send() == [] and ends.chains.waiting == 0 and not ends.chains.is_idle
    ends.collect()
    assert ends.answered() == [(number, 0) for number in range(70)]
    assert ends.bodies(b"T") == [b"%04d" % number for number in range(70) if number % 10 != 9]
    lists = [b"".join(b"%d," % number for number in numbers) for numbers in (range(63), range(63, 70))]
    assert ends.bodies(OP) == lists
    assert len(ends.table) == HALVES - 70 and ends.chains.is_idle and ends.chains.ended == 70


def test_reasons_why_the_service_gets_an_end(ends: Ends) -> None:
    ends.table.end(1)
    ends.table.hold(2)
    ends.add(0, 0, commitLogOffset=ends.arrival.append_end)
    ends.add(1, 1)
    ends.add(2, 2)
    ends.add(3, 3, producerGroup="H")
    ends.add(4, 4, tranStateTableOffset=5)
    ends.add(5, 5, commitLogOffset=-1)
    ends.add(6, HALVES - 1)
    ends.add(7, 7)
    assert ends.send() == [
        (0, MISSING), (1, DECIDE), (2, DECIDE), (3, UNSOUND), (4, UNSOUND), (5, UNSOUND), (6, DECIDE),
    ]  # fmt: skip
    ends.collect()
    assert ends.answered() == [(7, 0)]
    ends.arrival = ends.arrival._replace(arrived=20, is_full=True)
    ends.add(8, 19)
    ends.add(9, 20)
    assert ends.send() == [(9, FULL)]


def test_ends_wait_for_their_halves_in_the_order_in_which_they_came(ends: Ends) -> None:
    whole = ends.arrival
    ends.arrival = whole._replace(dispatched=ends.places[10], arrived=5)
    for number in (12, 11, 7, 3):
        ends.add(number, number)
    assert ends.send() == [] and ends.chains.waiting == 3 and ends.chains.is_waiting
    ends.arrival = whole
    assert ends.send() == []
    ends.collect()
    assert ends.bodies(b"T") == [b"0003", b"0012", b"0011", b"0007"]


def test_a_second_end_waits_for_the_chain_of_the_first(ends: Ends) -> None:
    ends.add(1, 5)
    ends.add(2, 5, ROLLBACK)
    assert ends.send() == [] and ends.chains.waiting == 1
    assert ends.send() == []
    ends.collect()
    assert ends.answered() == [(1, 0)]
    assert ends.send() == [(2, DECIDE)], "the core knows that it has ended"


def test_the_ends_of_a_refused_chain_are_left_and_their_halves_open_again(ends: Ends) -> None:
    ends.kit.header.settings.message_bytes_max = 1
    for number in range(3):
        ends.add(number, number)
        ends.received(number, 900)
    assert ends.send() == []
    ends.collect()
    assert not ends.answered() and ends.chains.is_waiting
    assert ends.send() == [(number, DECIDE) for number in range(3)]
    assert [int(ends.table.native.rows[at].state) for at in range(3)] == [lib.RMQ_HALF_OPEN] * 3
    row = ends.chains._left[1]
    assert (row.first, row.record.received_mono_ns) == (1, 0), "its time was counted when it was sent"
    ends.kit.header.settings.message_bytes_max = 1 << 20
    ends.chains.add_again(row)
    assert ends.send() == [] and ends.chains.is_idle is False
    ends.collect()
    assert ends.answered() == [(1, 0)]


def test_a_slow_end_is_sent_and_told(ends: Ends) -> None:
    for number, received_ns in enumerate((900, 100, 0)):
        ends.add(number, number)
        ends.received(number, received_ns)
    assert ends.send(slow_ns=500) == [(1, SLOW)]
    latency = ends.kit.header.latency[ROLE][lib.RMQ_SERVICES_LATENCY_ANSWERED]
    assert sum(latency.counts) == 1, "that of the slow one is counted with its line, that of the third elsewhere"
    ends.collect()
    assert ends.answered() == [(0, 0), (1, 0), (2, 0)]


def test_what_one_call_leaves_has_a_bound(ends: Ends) -> None:
    """The others wait for the next call, without a look at their halves. Rows are used again."""
    for _ in range(2):
        for number in range(LEFT_ROOM + 10):
            ends.add(number, 0, producerGroup="H")
        ends.add(1000, 0)
        left = ends.send()
        assert left == [(number, UNSOUND) for number in range(LEFT_ROOM)] and ends.chains.has_more
        assert ends.chains.waiting == 11
        assert ends.send() == [(LEFT_ROOM + number, UNSOUND) for number in range(10)] and not ends.chains.has_more
        ends.collect()
        ends.answered()
        ends.table = ends.chains._table = HalfTable()
        ends.table.add(Half(0, 0, 0, -1, 0))
    assert ends.chains._chains.used_rows == LEFT_ROOM + 11


def test_while_chains_are_busy_no_half_is_judged(ends: Ends) -> None:
    """Each chain takes one end here. A turn judges as many ends as it sends, and one that opens no further chain."""
    numbers = range(HALVES - 1)
    for number in numbers:
        ends.add(number, number)
    for turn in range(1, len(numbers) // lib.RMQ_END_CHAINS + 2):
        for _ in range(3):
            assert ends.send(op_bytes_max=1) == []
        sent = min(turn * lib.RMQ_END_CHAINS, len(numbers))
        assert ends.chains.waiting == len(numbers) - sent
        assert sent <= ends.judged <= sent + turn
        ends.collect()
    assert ends.answered() == [(number, 0) for number in numbers] and ends.chains.is_idle


def test_an_end_is_judged_once_while_its_half_is_in_the_chain_of_another(ends: Ends) -> None:
    for number in range(40):
        ends.add(number, 5)
    for _ in range(3):
        assert ends.send() == [] and ends.chains.waiting == 39
        assert ends.judged == 40
    ends.collect()
    assert ends.send() == [(number, DECIDE) for number in range(1, 40)]
    assert ends.judged == 79, "its half has ended: the record is read again for the service"


def test_an_end_that_cannot_be_stored_is_answered_while_chains_are_busy(ends: Ends) -> None:
    for number in range(lib.RMQ_END_CHAINS + 1):
        ends.add(number, number)
    ends.add(100, 0, commitLogOffset=ends.arrival.append_end)
    assert ends.send(op_bytes_max=1) == [(100, MISSING)]
    assert ends.chains.waiting == 1


def test_a_row_remembers_nothing_of_the_end_before(ends: Ends) -> None:
    """The second end gets the row of the first, whose half is still in a chain."""
    ends.add(0, 5)
    assert ends.send() == []
    ends.add(1, 6)
    assert ends.send() == [] and ends.chains.waiting == 0
    assert ends.chains._chains.used_rows == 1
