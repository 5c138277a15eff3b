"""Answers that a read worker drops before their first byte leaves, and the notices of them (RMQ_INBOX_UNSENT)."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reader_kit import Client, connected, request
from test_asks import ANSWERER, CODE, INBOX_BYTES, PLAN, ROLE, AnswererKit
from waiting import wait_until

from ringmq.ipc.asks import Inbox, Unsent
from ringmq.ipc.record_answers import LogRange, records_payload
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, encode_frame

READ = lib.RMQ_ROLE_READ
SEND, RECORDS, DROP = lib.RMQ_VERDICT_SEND, lib.RMQ_VERDICT_RECORDS, lib.RMQ_VERDICT_DROP
GONE, STALE = lib.RMQ_UNSENT_GONE, lib.RMQ_UNSENT_STALE
FRAME = encode_frame(RemotingCommand(code=0, opaque=7, flag=1, remark="answered"))
NAMED = records_payload([b"\0\0\1\4\0\0\0\0", LogRange(4096, 256)], FRAME)
"""A record of a log that has none."""


class Answerer(AnswererKit):
    """The test is the answerer, and begins."""

    inbox: Inbox

    def begin(self) -> None:
        super().begin()
        self.inbox = Inbox(plane_of(self), ROLE)

    def next_ask(self) -> Any:
        """The next request of a client; ends of connections are passed over."""
        while (record := self.take(ANSWERER)[0]).type != lib.RMQ_INBOX_COLD_FRAME:
            assert record.type == lib.RMQ_INBOX_CLOSED
        return record

    def answer(self, record: Any, kind: int = SEND, payload: bytes = FRAME, serial: int = 5, **how: Any) -> None:
        """An answer that tells."""
        self.verdict(record, kind, payload, tells=True, serial=serial, answerer=ANSWERER, **how)

    def notices(self, count: int) -> list[Unsent]:
        """The notices that have come, when there are so many."""
        found: list[Unsent] = []

        def look() -> bool:
            while (ask := self.inbox.take()) is not None:
                said = self.inbox.unsent(ask) if ask.type == lib.RMQ_INBOX_UNSENT else None
                found.extend([said] if said else [])
            return len(found) >= count

        wait_until(look, "the notices come")
        assert len(found) == count
        return found

    def notice(self) -> tuple[int, int, int]:
        """Token, serial and reason of the one notice that comes."""
        (said,) = self.notices(1)
        return said.pending, said.serial, said.reason


class _PlaneOfKit:
    """What an `Inbox` needs of a plane."""

    def __init__(self, kit: AnswererKit) -> None:
        self.struct, self.header, self._kit = kit.plane, kit.header, kit

    def role(self, number: int) -> Any:
        return self.header.roles[number]


def plane_of(kit: AnswererKit) -> Any:
    """The plane of a kit, as an `Inbox` wants it."""
    return _PlaneOfKit(kit)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Answerer]:
    made = Answerer(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    made.begin()
    made.start("read")
    yield made
    made.close()


def vanished(kit: Answerer) -> Any:
    """The ask of a client that has closed its connection, which its reader knows."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        record = kit.next_ask()
    assert kit.take(ANSWERER)[0].type == lib.RMQ_INBOX_CLOSED
    return record


@pytest.mark.parametrize(("kind", "payload"), [(SEND, FRAME), (RECORDS, NAMED)], ids=["bytes", "records"])
def test_the_connection_is_gone(kit: Answerer, kind: int, payload: bytes) -> None:
    record = vanished(kit)
    kit.answer(record, kind, payload)
    assert kit.notice() == (record.pending, 5, GONE)


def test_who_does_not_ask_is_not_told(kit: Answerer) -> None:
    kit.verdict(vanished(kit), SEND, FRAME, answerer=ANSWERER)
    record = vanished(kit)
    kit.answer(record, serial=6)
    assert kit.notice() == (record.pending, 6, GONE)


def test_a_client_that_takes_its_answer(kit: Answerer) -> None:
    """There is nothing to tell, also when it goes a moment later."""
    with connected(kit) as client:
        for serial in range(20):
            client.send(request(CODE, {}))
            kit.answer(kit.next_ask(), serial=serial)
            assert client.read_frame() == FRAME
    last = vanished(kit)
    kit.answer(last, serial=99)
    assert kit.notice() == (last.pending, 99, GONE)


def test_an_answer_in_chunks_tells_once(kit: Answerer) -> None:
    record = vanished(kit)
    kit.answer(record, payload=FRAME[:9], last=0)
    kit.answer(record, payload=FRAME[9:])
    assert kit.notice() == (record.pending, 5, GONE)
    with connected(kit) as client:
        client.send(request(CODE, {}))
        record = kit.next_ask()
        kit.answer(record, payload=FRAME[:9], last=0)
        kit.answer(record, payload=FRAME[9:])
        assert client.read_frame() == FRAME
        kit.answer(record, payload=FRAME[:9], last=0, serial=6)
        kit.answer(record, payload=FRAME[9:], serial=6)
        assert kit.notice() == (record.pending, 6, STALE), "the ask has been answered"


def test_an_ask_that_is_answered_already(kit: Answerer) -> None:
    with connected(kit) as client:
        client.send(request(CODE, {}))
        record = kit.next_ask()
        kit.answer(record, serial=1)
        assert client.read_frame() == FRAME
        kit.answer(record, serial=2)
        assert kit.notice() == (record.pending, 2, STALE)
        client.send(request(CODE, {}, flag=2))
        record = kit.next_ask()
        kit.answer(record, serial=3)
        assert kit.notice() == (record.pending, 3, GONE), "a one-way request has no answer"


def test_a_record_that_is_gone(kit: Answerer) -> None:
    """The client has the other answer, of which nobody is told."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        record = kit.next_ask()
        kit.answer(record, RECORDS, NAMED)
        assert client.read_frame() == FRAME
        assert kit.notice() == (record.pending, 5, lib.RMQ_UNSENT_RECORD)
        client.send(request(CODE, {}))
        record = kit.next_ask()
        many = records_payload([b"\0\0\1\4\0\0\0\0", LogRange(4096, 256, 33)], FRAME)
        kit.answer(record, RECORDS, many)
        assert client.read_frame() == FRAME
        assert kit.notice() == (record.pending, 5, lib.RMQ_UNSENT_BOUNDS)


def test_answers_that_wait_behind_others_when_the_client_goes(kit: Answerer) -> None:
    """The kernel has taken the first bytes of some. Of each other answer the answerer hears."""
    large = encode_frame(RemotingCommand(code=0, opaque=7, flag=1, body=bytes(8000)))
    count = 1500
    client = Client(kit.listeners[0].getsockname())
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    answered = 0
    while answered < count:
        client.send(request(CODE, {}))
        kit.answer(kit.next_ask(), payload=large, serial=answered)
        answered += 1
        if kit.counter(lib.RMQ_READ_ANSWER_BYTES) > 64 << 10:
            break
    wait_until(lambda: kit.counter(lib.RMQ_READ_ANSWER_BYTES) > 0, "answers wait")
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    found: list[Unsent] = []

    def heard_all() -> bool:
        found.extend(every_notice(kit))
        return bool(found) and found[-1].serial == answered - 1

    wait_until(heard_all, "the notice of the last one")
    serials = [said.serial for said in found]
    assert serials == list(range(serials[0], answered)), "all behind the first one"
    assert {said.reason for said in found} == {GONE}


def every_notice(kit: Answerer) -> list[Unsent]:
    """Those that are there."""
    found = []
    while (ask := kit.inbox.take()) is not None:
        said = kit.inbox.unsent(ask) if ask.type == lib.RMQ_INBOX_UNSENT else None
        found += [said] if said else []
    return found


def test_a_full_inbox_loses_no_notice(kit: Answerer) -> None:
    """Nor does the reader take more answers than it may keep notices."""
    records = []
    with connected(kit) as client:
        for _ in range(40):
            client.send(request(CODE, {}))
            records.append(kit.next_ask())
    assert kit.take(ANSWERER)[0].type == lib.RMQ_INBOX_CLOSED
    filler = ffi.new("struct rmq_inbox_record *")
    filler.type, filler.role, filler.pending = lib.RMQ_INBOX_JUNK, READ, lib.RMQ_NONE
    while lib.rmq_inbox_put(kit.plane, ANSWERER, filler, bytes(400), 400, ffi.NULL) == 0:
        pass
    while lib.rmq_inbox_put(kit.plane, ANSWERER, filler, b"", 0, ffi.NULL) == 0:
        pass
    for serial, record in enumerate(records):
        kit.answer(record, serial=serial)
    ring = kit.row.answers[READ]
    wait_until(lambda: ring.head == ring.tail, "the reader has taken them")
    assert [said.serial for said in kit.notices(40)] == list(range(40))


def test_notices_without_end_stop_the_ring(kit: Answerer) -> None:
    """A reader keeps 4,096 of an answerer that takes none, then no answer of it."""
    record = vanished(kit)
    ring, sent = kit.row.answers[READ], 0
    filler = ffi.new("struct rmq_inbox_record *")
    filler.type, filler.role, filler.pending = lib.RMQ_INBOX_JUNK, READ, lib.RMQ_NONE
    while lib.rmq_inbox_put(kit.plane, ANSWERER, filler, b"", 0, ffi.NULL) == 0:
        pass
    most = 4096 + (ring.capacity - 1) // 40
    head = ffi.new("struct rmq_verdict *")
    head.type, head.last, head.flags, head.pending = DROP, 1, lib.RMQ_VERDICT_TELLS, record.pending
    head.asker_generation = record.role_generation

    def is_stopped() -> bool:
        nonlocal sent
        while True:
            head.serial = sent
            if lib.rmq_verdict_put(kit.plane, ANSWERER, READ, head, ffi.NULL, 0) < 0:
                break
            sent += 1
        return ring.head - ring.tail > ring.capacity - 80 and sent > 4096

    wait_until(is_stopped, "the ring is full")
    wait_until(lambda: is_stopped() and sent <= most + 64, "and stays so")
    found: list[Unsent] = []

    def took_all() -> bool:
        found.extend(every_notice(kit))
        return len(found) >= sent - 1

    wait_until(took_all, "all are told")
    assert [said.serial for said in found] == list(range(sent - len(found), sent))


def test_a_reader_that_stops_tells_of_no_answer_that_may_have_left(tmp_path: Path) -> None:
    """The kernel has sent it, and the reader has not yet taken the completion."""
    kit = Answerer(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    reader = lib.rmq_reader_open(kit.plane, 0, *(one.fileno() for one in kit.listeners), ffi.new("int *"))
    with connected(kit) as client:
        client.send(request(CODE, {}))
        while not kit.ask_waits():
            lib.rmq_reader_run(reader, 1_000_000)
        kit.answer(kit.next_ask())
        lib.rmq_reader_run(reader, 0)  # one round: the answer is handed to the kernel
        lib.rmq_reader_close(reader)
        assert client.answer().remark == "answered"
        assert [ask.type for ask in iter(kit.inbox.take, None) if ask.type == lib.RMQ_INBOX_UNSENT] == []
    kit.close()


def test_a_reader_that_died_with_answers_in_its_ring(tmp_path: Path) -> None:
    """The answerer finds them by the new generation. The replacement tells of them, too."""
    kit = Answerer(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    head = ffi.new("struct rmq_inbox_record *")
    head.type, head.role, head.role_generation, head.pending = lib.RMQ_INBOX_COLD_FRAME, READ, 1, 77
    for serial in range(300):
        kit.verdict(head, DROP, bytes(serial % 50), answerer=ANSWERER)
        ring = kit.row.answers[READ]
        ring.tail = ring.head  # consumed
        kit.verdict(head, SEND, FRAME, answerer=ANSWERER)
        kit.answer(head, serial=serial)
        assert [(said.pending, said.serial) for said in kit.inbox.unconsumed(READ, 1)] == [(77, serial)]
        assert kit.inbox.unconsumed(READ, 2) == []
    kit.answer(head, payload=FRAME[:9], last=0, serial=300)
    assert len(kit.inbox.unconsumed(READ, 1)) == 1, "half an answer"
    kit.header.roles[READ].generation = 2
    kit.start("read")
    (said,) = kit.notices(1)
    assert (said.asker_generation, said.serial, said.reason) == (1, 299, STALE)
    assert kit.inbox.unconsumed(READ, 1) == []
    kit.close()


def test_a_new_answerer_finds_nothing_of_the_old_one_in_a_ring(tmp_path: Path) -> None:
    """It has not decided on those answers, though its own may have the same serials."""
    kit = Answerer(tmp_path / "store", answerers=(PLAN,), inbox_bytes=INBOX_BYTES)
    kit.begin()
    head = ffi.new("struct rmq_inbox_record *")
    head.role, head.role_generation, head.pending = READ, 1, 77
    kit.answer(head, serial=1)
    kit.die()
    kit.begin()
    assert kit.inbox.unconsumed(READ, 1) == []
    kit.answer(head, serial=2)
    assert [said.serial for said in kit.inbox.unconsumed(READ, 1)] == [2]
    kit.close()


def test_a_new_answerer_hears_nothing_of_the_old_one(kit: Answerer) -> None:
    record = vanished(kit)
    kit.answer(record, serial=1)
    wait_until(kit.ask_waits, "a notice for the old one")
    kit.die()
    kit.begin()
    again = vanished_later(kit)
    kit.answer(again, serial=2)
    assert kit.notice() == (again.pending, 2, GONE)


def vanished_later(kit: Answerer) -> Any:
    """As `vanished`, behind a notice for a predecessor."""
    with connected(kit) as client:
        client.send(request(CODE, {}))
        while (record := kit.take(ANSWERER)[0]).type != lib.RMQ_INBOX_COLD_FRAME:
            pass
    assert kit.take(ANSWERER)[0].type == lib.RMQ_INBOX_CLOSED
    return record


def test_the_byte_maps() -> None:
    assert ffi.sizeof("struct rmq_verdict") == 40 and ffi.sizeof("struct rmq_unsent") == 16
    places = [ffi.offsetof("struct rmq_verdict", name) for name in ("answerer_generation", "serial", "rule", "flags")]
    assert places == [24, 28, 32, 34]
    places = [ffi.offsetof("struct rmq_unsent", name) for name in ("asker_generation", "serial", "flags", "reason")]
    assert places == [4, 8, 12, 14]
