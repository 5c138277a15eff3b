"""Answers that name records of the log (RMQ_VERDICT_RECORDS)."""

import socket
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from reader_kit import MakeKit, ReaderKit, connected, request, send_frame
from test_invariant import ended
from waiting import wait_until

from ringmq.ipc.record_answers import LogRange, Part, records_payload
from ringmq.native import ffi, lib
from ringmq.remoting.command import RemotingCommand, encode_frame

RECORDS = lib.RMQ_VERDICT_RECORDS
ROUTE = 105
"""A code that control answers."""
INSTEAD = encode_frame(RemotingCommand(code=23, opaque=7, flag=1, remark="gone"))


def store(kit: ReaderKit, *bodies: bytes) -> list[LogRange]:
    """Store messages, and say where their records lie."""
    kit.create_segment(kit.header.settings.segment_bytes)
    kit.start("write")
    kit.start("read")
    with connected(kit) as producer:
        for body in bodies:
            assert producer.ask(send_frame("TopicA", body)).code == 0
    return [LogRange(position, len(data)) for position, data, _ in kit.records()]


def frame_of(*parts: Part) -> list[Part]:
    """The parts of an answer whose body they are."""
    size = sum(len(part) if isinstance(part, bytes) else part.size for part in parts)
    head = encode_frame(RemotingCommand(code=0, opaque=7, flag=1))
    return [(int.from_bytes(head[:4]) + size).to_bytes(4) + head[4:], *parts]


def bytes_of(kit: ReaderKit, parts: Sequence[Part]) -> bytes:
    """What a client receives."""
    log = {position: data for position, data, _ in kit.records()}
    return b"".join(part if isinstance(part, bytes) else log[part.position] for part in parts)


def answer_of(kit: ReaderKit, payload: bytes, frame: bytes = b"") -> bytes:
    """What the client of a request receives when the answerer says so."""
    with connected(kit) as client:
        client.send(frame or request(ROUTE, {}))
        while (record := kit.take()[0]).type != lib.RMQ_INBOX_COLD_FRAME:
            pass  # the end of an earlier connection
        kit.verdict(record, RECORDS, payload)
        return client.read_frame()


@pytest.mark.parametrize("window_bytes", [1 << 30, 0], ids=["memory", "disk"])
def test_an_answer_of_records_and_of_bytes_between_them(make_kit: MakeKit, window_bytes: int) -> None:
    """Over files of the log, too. What may be on disk only is read by the kernel's helper first."""
    kit = make_kit(segment_bytes=65536, memory_window_bytes=window_bytes)
    named = store(kit, *(bytes([65 + n]) * 9000 for n in range(8)))
    assert len({part.position // 65536 for part in named}) == 2
    for parts in (
        frame_of(named[6], b"between", named[0], named[7]),
        frame_of(b"only bytes"),
        frame_of(named[1], named[2], b"end"),
    ):
        assert answer_of(kit, records_payload(parts, INSTEAD)) == bytes_of(kit, parts)
    wait_until(lambda: kit.counter(lib.RMQ_READ_NAMED_MESSAGES) == 5, "named records are counted")


def test_records_of_one_range(make_kit: MakeKit) -> None:
    kit = make_kit()
    named = store(kit, b"one", b"two", b"three")
    whole = LogRange(named[0].position, sum(part.size for part in named), messages=3)
    assert all(first.position + first.size == second.position for first, second in pairwise(named))
    parts = frame_of(whole)
    assert answer_of(kit, records_payload(parts, INSTEAD)) == bytes_of(kit, frame_of(*named))


def test_the_body_of_a_record(make_kit: MakeKit) -> None:
    """An answerer that writes the rest of a record anew leaves the body in the log."""
    kit = make_kit()
    (named,) = store(kit, b"x" * 5000)
    _, _, view = kit.records()[0]
    body = LogRange(named.position + view.body_at, view.body_length)
    parts = frame_of(b"head", body, b"tail")
    head = parts[0]
    assert isinstance(head, bytes)
    assert answer_of(kit, records_payload(parts, INSTEAD)) == head + b"head" + b"x" * 5000 + b"tail"


def test_answers_keep_their_order_with_others(make_kit: MakeKit) -> None:
    kit = make_kit()
    (named,) = store(kit, b"x" * 100_000)
    parts = frame_of(named)
    with connected(kit) as client:
        client.send(*(request(ROUTE, {}) for _ in range(3)))
        asked = [kit.take()[0] for _ in range(3)]
        kit.verdict(asked[2], lib.RMQ_VERDICT_SEND, INSTEAD)
        kit.verdict(asked[0], RECORDS, records_payload(parts, INSTEAD))
        kit.verdict(asked[1], lib.RMQ_VERDICT_SEND, INSTEAD)
        assert [client.read_frame() for _ in range(3)] == [INSTEAD, bytes_of(kit, parts), INSTEAD]


def test_a_record_that_retention_has_taken(make_kit: MakeKit) -> None:
    """No byte of the frame goes out."""
    kit = make_kit()
    named = store(kit, b"old", b"new")
    kit.marks.min_offset = named[1].position
    payload = records_payload(frame_of(named[1], named[0]), INSTEAD)
    assert answer_of(kit, payload) == INSTEAD
    assert answer_of(kit, records_payload(frame_of(named[1]), INSTEAD)) != INSTEAD


def test_a_record_that_may_not_be_read_yet(make_kit: MakeKit) -> None:
    kit = make_kit()
    (named,) = store(kit, b"x")
    kit.marks.confirm_policy = lib.RMQ_CONFIRM_APPENDED | lib.RMQ_CONFIRM_LIMITED
    kit.marks.confirm_limit = named.position + named.size - 1
    assert answer_of(kit, records_payload(frame_of(named), INSTEAD)) == INSTEAD
    kit.marks.confirm_limit = named.position + named.size
    assert answer_of(kit, records_payload(frame_of(named), INSTEAD)) != INSTEAD


def test_a_file_that_is_gone(make_kit: MakeKit) -> None:
    kit = make_kit(segment_bytes=65536)
    (named,) = store(kit, b"x")
    far = LogRange(named.position + 65536 * 40, named.size)
    kit.marks.append_offset = far.position + far.size
    assert answer_of(kit, records_payload(frame_of(far), INSTEAD)) == INSTEAD


@pytest.mark.parametrize(("window_bytes", "most"), [(1 << 30, 32), (0, 8)], ids=["memory", "disk"])
def test_an_answer_has_the_messages_of_a_pull(make_kit: MakeKit, window_bytes: int, most: int) -> None:
    kit = make_kit(memory_window_bytes=window_bytes)
    named = store(kit, *(b"x" for _ in range(most + 1)))
    parts = frame_of(*named[:most])
    assert answer_of(kit, records_payload(parts, INSTEAD)) == bytes_of(kit, parts)
    assert answer_of(kit, records_payload(frame_of(*named), INSTEAD)) == INSTEAD


@pytest.mark.parametrize(("window_bytes", "most"), [(1 << 30, 262144), (0, 65536)], ids=["memory", "disk"])
def test_an_answer_has_the_bytes_of_a_pull(make_kit: MakeKit, window_bytes: int, most: int) -> None:
    """The answerer's own bytes count. One message may be larger."""
    kit = make_kit(memory_window_bytes=window_bytes)
    first, second, large = store(kit, b"x" * 20_000, b"y" * 20_000, b"z" * 300_000)
    head = len(frame_of()[0])
    room = most - first.size - second.size - head
    parts = frame_of(bytes(room), first, second)
    assert answer_of(kit, records_payload(parts, INSTEAD)) == bytes_of(kit, parts)
    assert answer_of(kit, records_payload(frame_of(bytes(room + 1), first, second), INSTEAD)) == INSTEAD
    parts = frame_of(large)
    assert answer_of(kit, records_payload(parts, INSTEAD)) == bytes_of(kit, parts)


def test_who_needs_no_answer_gets_none(make_kit: MakeKit) -> None:
    kit = make_kit()
    (named,) = store(kit, b"x")
    payload = records_payload(frame_of(named), INSTEAD)
    with connected(kit) as client:
        client.send(request(ROUTE, {}, flag=2))
        kit.verdict(kit.take()[0], RECORDS, payload)
        client.send(request(ROUTE, {}))
        record = kit.take()[0]
        kit.verdict(record, RECORDS, payload)
        kit.verdict(record, RECORDS, payload)  # its ask is answered
        assert client.read_frame() == bytes_of(kit, frame_of(named))
        assert client.is_quiet()
    wait_until(lambda: kit.counter(lib.RMQ_READ_STALE) == 1, "the second verdict is stale")


def test_an_answer_for_a_connection_that_is_gone(make_kit: MakeKit) -> None:
    """It holds no file. Its place is free for others."""
    kit = make_kit(request_slots=64)
    (named,) = store(kit, b"x")
    payload = records_payload(frame_of(named), INSTEAD)
    for _ in range(70):
        with connected(kit) as client:
            client.send(request(ROUTE, {}))
            record = kit.take()[0]
        assert kit.take()[0].type == lib.RMQ_INBOX_CLOSED
        kit.verdict(record, RECORDS, payload)
    assert answer_of(kit, payload) == bytes_of(kit, frame_of(named))


def test_the_python_side_makes_frames_only() -> None:
    record = LogRange(4096, 100)
    assert len(records_payload(frame_of(record), INSTEAD)) == 8 + 2 * 16 + len(frame_of(record)[0]) + len(INSTEAD)
    with pytest.raises(ValueError, match=r"outside of 1\.\.512"):
        records_payload(frame_of(*[record] * 512), INSTEAD)
    with pytest.raises(ValueError, match=r"outside of 1\.\.512"):
        records_payload([], INSTEAD)
    for parts in ([record], [b"\0\0\0\x63", record], [b"\0\0\0\x70\0\0\0\0", record]):
        with pytest.raises(ValueError, match="does not begin with its own length"):
            records_payload(parts, INSTEAD)


PAYLOAD = records_payload([b"\0\0\0\x68\0\0\0\0", LogRange(0, 100)], b"instead.")
DAMAGE = {
    "no piece": bytes(4) + PAYLOAD[4:],
    "more pieces than bytes": b"\xff\1\0\0" + PAYLOAD[4:],
    "another answer of other size": PAYLOAD[:4] + b"\x09" + PAYLOAD[5:],
    "bytes that are a message": PAYLOAD[:20] + b"\1" + PAYLOAD[21:],
    "an empty piece": PAYLOAD[:16] + bytes(4) + PAYLOAD[20:],
    "a range across files": PAYLOAD[:24] + (65536 - 99).to_bytes(8, "little") + PAYLOAD[32:],
    "another length": PAYLOAD[:40] + b"\0\0\0\x69" + PAYLOAD[44:],
    "cut in its head": PAYLOAD[:7],
    "cut at its end": PAYLOAD[:-1],
    "longer": PAYLOAD + b"x",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_no_answerer_writes_ends_the_reader(tmp_path: Path, name: str) -> None:
    kit = ReaderKit(tmp_path, segment_bytes=65536)

    def work() -> None:
        error = ffi.new("int *")
        reader = lib.rmq_reader_open(kit.plane, 0, *(listener.fileno() for listener in kit.listeners), error)
        with socket.create_connection(kit.listeners[0].getsockname()) as client:
            client.sendall(request(ROUTE, {}))
            while (taken := kit.inbox_take()) is None:
                lib.rmq_reader_run(reader, 1_000_000)
            kit.verdict(taken[0], RECORDS, DAMAGE[name])
            lib.rmq_reader_run(reader, 1_000_000)

    status, said = ended(work, kit)
    kit.close()
    assert (status, "records.c" in said) == (lib.RMQ_EXIT_INVARIANT, True), said


def test_the_byte_map_of_the_payload() -> None:
    assert ffi.sizeof("struct rmq_records_head") == 8 and ffi.sizeof("struct rmq_record_piece") == 16
    payload = records_payload([b"\0\0\0\x68\0\0\0\0", LogRange(0x1122334455, 100, 3)], b"instead.")
    head = ffi.from_buffer("struct rmq_records_head *", payload[:8])
    pieces = ffi.from_buffer("struct rmq_record_piece[2]", payload[8:40])
    assert (head.piece_count, head.fallback_bytes) == (2, 8)
    assert [(piece.position, piece.size, piece.messages) for piece in pieces] == [
        (lib.RMQ_RECORD_INLINE, 8, 0), (0x1122334455, 100, 3),
    ]  # fmt: skip
    assert payload[40:] == b"\0\0\0\x68\0\0\0\0instead."
