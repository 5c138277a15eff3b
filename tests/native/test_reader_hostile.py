"""Clients that lie, dawdle, flood or never read: bounded, counted, and nobody else notices."""

import socket
import struct
import time
from contextlib import ExitStack
from typing import Any

import pytest
from plane_kit import LIVE
from reader_kit import Client, MakeKit, ReaderKit, connected, pull_frame, request, send_frame
from waiting import TIMEOUT_S, wait_until

from ringmq.native import lib


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    return make_kit("write", "dispatch", "read")


def frame(header: bytes, *, length: int | None = None, kind: int = 0, header_length: int | None = None) -> bytes:
    """A frame whose lengths may lie."""
    head = (kind << 24) | (len(header) if header_length is None else header_length)
    return struct.pack(">iI", 4 + len(header) if length is None else length, head) + header


JUNK = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "negative length": struct.pack(">iI", -1, 0),
    "length 3": struct.pack(">iI", 3, 0),
    "17 MiB": struct.pack(">iI", 17 << 20, 0),
    "header longer than frame": frame(b"{}", header_length=3),
    "serialise type 2": frame(b"{}", kind=2),
    "empty JSON header": frame(b""),
    "unclosed": frame(b'{"code":10'),
    "trailing": frame(b'{"code":10} x'),
    "code is text": frame(b'{"code":"ten"}'),
    "code too large": frame(b'{"code":4294967296}'),
    "deep": frame(b'{"x":' + b"[" * 40 + b"]" * 40 + b"}"),
    "mismatched": frame(b'{"x":[}]}'),
    "short binary": frame(bytes(12), kind=1),
}
WITH_OPAQUE = {
    "code is text": frame(b'{"code":"ten","opaque":0}'),
    "trailing": frame(b'{"code":10,"opaque":0} x'),
    "deep": frame(b'{"opaque":0,"x":' + b"[" * 40 + b"]" * 40 + b"}"),
    "short binary": frame(bytes(20), kind=1),
    "binary remark too long": frame(bytes(13) + struct.pack(">i", 100) + bytes(4), kind=1),
    "binary negative remark": frame(bytes(13) + struct.pack(">i", -1) + bytes(4), kind=1),
    "binary ext too long": frame(bytes(17) + struct.pack(">i", 100), kind=1),
    "binary key too long": frame(bytes(17) + struct.pack(">ih", 6, 100) + bytes(4), kind=1),
    "binary negative key": frame(bytes(17) + struct.pack(">ih", 6, -1) + bytes(4), kind=1),
    "binary value too long": frame(bytes(17) + struct.pack(">ihcI", 7, 1, b"k", 0xFFFFFFFF), kind=1),
}


@pytest.mark.parametrize(
    ("junk", "told"),
    [
        (JUNK["http"], JUNK["http"][:16]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        (JUNK["17 MiB"], JUNK["17 MiB"]),
        (JUNK["code is text"], JUNK["code is text"][:16]),
    ],
)
def test_control_hears_the_first_bytes_of_junk(kit: ReaderKit, junk: bytes, told: bytes) -> None:
    with connected(kit) as client:
        client.send(junk)
        record, payload = kit.take()
        assert (record.type, payload) == (lib.RMQ_INBOX_JUNK, told)
        assert (bytes(record.peer_host)[:4], record.peer_port) == (
            bytes([127, 0, 0, 1]),
            client.socket.getsockname()[1],
        )
        assert client.is_closed()


def test_junk_whose_length_comes_in_pieces_is_told_by_its_first_four_bytes(kit: ReaderKit) -> None:
    with connected(kit) as client:
        for count, byte in enumerate(b"GET ", 1):
            client.send(bytes([byte]))
            wait_until(lambda count=count: kit.counter(lib.RMQ_READ_BYTES_IN) >= count, "the byte to be received")
        assert kit.take()[1] == b"GET "
        assert client.is_closed()


def test_a_flood_of_junk_is_counted_and_does_not_fill_the_inbox(kit: ReaderKit) -> None:
    began = time.monotonic()
    for _ in range(100):
        with connected(kit) as client:
            client.send(JUNK["http"])
            assert client.is_closed()
    seconds = time.monotonic() - began
    told = 0
    while kit.inbox_take() is not None:
        told += 1
    untold = int(kit.header.ports.port[0].junk_dropped)
    assert told + untold == 100
    assert 8 <= told <= 8 * (seconds + 2)


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_broken_frames_close_the_connection(kit: ReaderKit, junk: bytes) -> None:
    with connected(kit) as neighbour, connected(kit) as client:
        client.send(junk)
        assert client.is_closed()
        assert neighbour.ask(send_frame("TopicA", b"x")).code == 0
    reason = lib.RMQ_READ_CLOSED_LARGE if junk == JUNK["17 MiB"] else lib.RMQ_READ_CLOSED_FRAME
    wait_until(lambda: kit.counter(reason) == 1, "the reason is counted")


@pytest.mark.parametrize("broken", WITH_OPAQUE.values(), ids=WITH_OPAQUE.keys())
def test_control_answers_headers_that_do_not_parse(kit: ReaderKit, broken: bytes) -> None:
    with connected(kit) as client:
        client.send(broken)
        record, payload = kit.take()
        assert (record.type, payload) == (lib.RMQ_INBOX_COLD_FRAME, broken)
        kit.verdict(record, lib.RMQ_VERDICT_DROP)
        assert client.ask(send_frame("TopicA", b"x")).code == 0


def test_good_frames_before_a_broken_one_are_answered_or_lost_but_never_mixed(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(send_frame("TopicA", b"good"), JUNK["http"])
        assert client.is_closed() or client.is_closed()


def test_half_frame_grows_too_old(make_kit: MakeKit) -> None:
    kit = make_kit("write", "read", partial_frame_timeout_ms=700)
    with connected(kit) as whole, connected(kit) as head, connected(kit) as client:
        head.send(b"\0\0")
        client.send(send_frame("TopicA", b"x" * 1000)[:-1])
        assert client.is_closed() and head.is_closed()
        assert whole.ask(send_frame("TopicA", b"x")).code == 0
    wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_PARTIAL) == 2, "the reason is counted")


def test_idle_connections_are_closed(make_kit: MakeKit) -> None:
    kit = make_kit("read", idle_connection_ms=2500)
    with connected(kit) as client:
        began = time.monotonic()
        assert client.is_closed()
        assert time.monotonic() - began > 1.5
    wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_IDLE) == 1, "the reason is counted")


def test_claims_over_the_reassembly_area_leave_room_for_small_frames(kit: ReaderKit) -> None:
    """The area holds 8 MiB; five clients claim 2 MiB each and send next to nothing."""
    with connected(kit) as neighbour:
        liars = [connected(kit) for _ in range(5)]
        for liar in liars:
            liar.__enter__().send(struct.pack(">iI", 2 << 20, 0) + bytes(6000))
        for _ in range(50):
            assert neighbour.ask(send_frame("TopicA", b"y" * 5000)).code == 0
        for liar in liars:
            liar.__exit__(None, None, None)
    with connected(kit) as client:  # all given back
        assert client.ask(send_frame("TopicA", b"z" * 200_000)).code == 0


CLAIM_BYTES = 100_000
"""So many have come of a frame of 2 MB: it has all of its memory."""


def claim(kit: ReaderKit, stack: ExitStack, count: int, total: int) -> list[Client]:
    """Clients that announce `total` bytes each and send so many of them that all of it is set aside."""
    before = kit.counter(lib.RMQ_READ_BYTES_IN)
    clients = [stack.enter_context(connected(kit)) for _ in range(count)]
    for client in clients:
        client.send(struct.pack(">iI", total, 0) + bytes(CLAIM_BYTES - 8))
    wait_until(lambda: kit.counter(lib.RMQ_READ_BYTES_IN) == before + CLAIM_BYTES * count, "all claims are heard")
    return clients


def test_claims_over_the_reassembly_area_refuse_no_frame_that_control_has_to_see(make_kit: MakeKit) -> None:
    """What large frames may have, three quarters, is claimed; sends to new topics wait for control all the same."""
    kit = make_kit("read")
    with ExitStack() as stack:
        claim(kit, stack, 3, (2 << 20) - 4)
        for number in range(20):
            client = stack.enter_context(connected(kit))
            client.send(send_frame(f"Fresh{number}", b"x" * 1000))
            record, payload = kit.take()
            assert record.pending != lib.RMQ_NONE and b"Fresh%d" % number in payload


def test_a_slow_control_leaves_half_of_the_small_frames_room(make_kit: MakeKit) -> None:
    """Claims as above; of the first quarter, 256 pages, frames kept for control get half."""
    kit = make_kit("write", "read", request_slots=4096, reassembly_bytes_max=4 << 20)
    with ExitStack() as stack:
        claim(kit, stack, 3, (1 << 20) - 4)
        taken = 0
        while (client := stack.enter_context(connected(kit))).is_quiet(0):
            client.send(send_frame("Fresh", b"x"))
            wait_until(
                lambda: (
                    not client.is_quiet(0)
                    or kit.header.asks.answerer[0].inbox.head != kit.header.asks.answerer[0].inbox.tail
                ),
                "a fate",
            )
            if not client.is_quiet(0):
                break
            kit.take()
            taken += 1
        assert (client.answer().remark or "").startswith("[OVERLOAD]")
        assert 122 < taken < 132
        neighbour = stack.enter_context(connected(kit))
        assert neighbour.ask(send_frame("TopicA", b"y" * 200_000)).code == 0


def test_who_waits_for_room_gets_that_of_one_claim_behind_its_pace(make_kit: MakeKit) -> None:
    """Two clients claim 2 MiB and send little, a third has sent most of its 2 MiB, a fourth little of a small frame
    that lies where large ones may not: one of the first two goes, and nobody else.
    """
    kit = make_kit("write", "read", partial_frame_timeout_ms=160_000, receive_buffer_count=256)
    data, small = send_frame("TopicA", b"b" * 2_000_000), send_frame("TopicA", b"s" * 20_000)
    with ExitStack() as stack:
        idle = claim(kit, stack, 2, len(data) - 4)
        slow, diligent, waiting = (stack.enter_context(connected(kit)) for _ in range(3))
        heard = kit.counter(lib.RMQ_READ_BYTES_IN) + 100 + len(data) - 1000
        slow.send(small[:100])
        diligent.send(data[:-1000])
        wait_until(lambda: kit.counter(lib.RMQ_READ_BYTES_IN) == heard, "these four came first")
        waiting.send(data)  # the buffers have room for all of it, however late its receive stops
        assert waiting.answer().opaque == 7
        for client, rest in ((slow, small[100:]), (diligent, data[-1000:])):
            client.send(rest)
            assert client.answer().opaque == 7
        assert sorted(client.is_quiet(0) for client in idle) == [False, True]
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_SHORTAGE) == 1, "the reason is counted")
    assert kit.counter(lib.RMQ_READ_STALLS) > 0 and kit.counter(lib.RMQ_READ_SHORT_MS) > 0


def test_claims_whose_room_does_not_help_are_left_alone(make_kit: MakeKit) -> None:
    """Three diligent clients have what large frames may have: a slow small one makes no room for the fourth."""
    kit = make_kit("write", "read", partial_frame_timeout_ms=160_000)
    data, small = send_frame("TopicA", b"b" * 2_000_000), send_frame("TopicA", b"s" * 20_000)
    with ExitStack() as stack:
        diligent = [stack.enter_context(connected(kit)) for _ in range(3)]
        slow, waiting = (stack.enter_context(connected(kit)) for _ in range(2))
        heard = kit.counter(lib.RMQ_READ_BYTES_IN) + 3 * (len(data) - 1000) + 100
        for client in diligent:
            client.send(data[:-1000])
        slow.send(small[:100])
        wait_until(lambda: kit.counter(lib.RMQ_READ_BYTES_IN) == heard, "these four came first")
        before = kit.header.roles[lib.RMQ_ROLE_READ].progress
        waiting.send(data[:50_000])  # more than a frame gets at first, not more than the receive buffers have room for
        wait_until(lambda: kit.header.roles[lib.RMQ_ROLE_READ].progress > before + 150, "some ticks have passed")
        assert kit.counter(lib.RMQ_READ_STALLS) > 0 and waiting.is_quiet(0)
        for client, rest in ((slow, small[100:]), (diligent[0], data[-1000:])):
            client.send(rest)
            assert client.answer().opaque == 7
        waiting.send(data[50_000:])
        assert waiting.answer().opaque == 7
    assert kit.counter(lib.RMQ_READ_CLOSED_SHORTAGE) == 0


def test_frame_larger_than_the_area_is_refused(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(struct.pack(">iI", 15 << 20, 0) + bytes(5000))
        assert client.is_closed()
    wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_LARGE) == 1, "the reason is counted")


def test_waiting_for_room_ends_when_others_finish(make_kit: MakeKit) -> None:
    """Four frames of 2 MiB do not fit at once into six MiB: the last one waits, all are answered."""
    kit = make_kit("write", "read", receive_buffer_count=256)
    kit.create_segment(1 << 20)
    body = b"b" * (2_000_000)
    frames = [send_frame("TopicA", body, opaque=n) for n in range(4)]
    contexts = [connected(kit) for _ in frames]
    clients = [context.__enter__() for context in contexts]
    for client, data in zip(clients, frames, strict=True):
        client.send(data[:1_000_000])
    for client, data in zip(clients, frames, strict=True):
        client.socket.setblocking(True)
        client.send(data[1_000_000:])
    for n, client in enumerate(clients):
        answer = client.answer()
        assert answer.opaque == n
        assert answer.code in (
            0,
            13,
            1,
        )  # a record of 2 MB has no room in a segment of 1 MiB: refused by write, not here
    for context in contexts:
        context.__exit__(None, None, None)


def test_client_that_never_reads_is_closed(make_kit: MakeKit) -> None:
    kit = make_kit("write", "dispatch", "read", send_stall_timeout_ms=700)
    kit.subscribe(kit.group(b"GROUP"), 1)
    with connected(kit) as producer, connected(kit) as client:
        for _ in range(32):
            assert producer.ask(send_frame("TopicA", b"x" * 4000)).code == 0
        wait_until(lambda: kit.queue(1, 0).max_offset == 32, "the queue has them")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.socket.settimeout(3)  # the broker takes nothing more, and closes before or after
        with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
            for _ in range(100_000):
                client.send(pull_frame("TopicA", "GROUP", 0))
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_SLOW) == 1, "the slow client is closed")
        assert producer.ask(send_frame("TopicA", b"x")).code == 0


def test_more_connections_than_allowed(make_kit: MakeKit) -> None:
    kit = make_kit(connections_max=4)
    for role in ("write", "read"):
        kit.start(role)
    contexts = [connected(kit) for _ in range(4)]
    clients = [context.__enter__() for context in contexts]
    assert [client.ask(send_frame("TopicA", b"x")).code for client in clients] == [0] * 4
    with connected(kit) as fifth:
        assert fifth.is_closed()
    clients[0].close()

    def is_served() -> bool:
        with connected(kit) as next_one:
            next_one.send(send_frame("TopicA", b"x"))
            return not next_one.is_closed()

    wait_until(is_served, "the place is free again")
    for context in contexts:
        context.__exit__(None, None, None)


def test_no_connection_is_taken_near_the_memory_limit(make_kit: MakeKit) -> None:
    kit = make_kit()
    for role in ("write", "read"):
        kit.start(role)
    with connected(kit) as old:
        assert old.ask(send_frame("TopicA", b"x")).code == 0
        kit.header.memory.level = lib.RMQ_MEMORY_NEAR
        with connected(kit) as new:
            assert new.is_closed()
        assert old.ask(send_frame("TopicA", b"x")).code == 0
        kit.header.memory.level = lib.RMQ_MEMORY_FREE
        with connected(kit) as later:
            assert later.ask(send_frame("TopicA", b"x")).code == 0


def test_full_request_ring_stalls_and_goes_on(make_kit: MakeKit) -> None:
    """Nobody consumes requests for a while: receiving stops, nothing is lost when write comes."""
    kit = make_kit(request_slots=8)
    kit.start("read")
    count = 500
    with connected(kit) as client, connected(kit) as other:
        client.socket.setblocking(False)
        data = b"".join(send_frame("TopicA", b"%d" % n, opaque=n) for n in range(count))
        sent = client.socket.send(data)
        other.send(send_frame("TopicA", b"other", opaque=1_000_000))
        wait_until(lambda: kit.counter(lib.RMQ_READ_STALLS), "the reader stalls")
        assert kit.header.ports.port[0].request.head == 8
        kit.start("write")
        client.socket.settimeout(TIMEOUT_S)
        client.send(data[sent:])
        assert sorted(client.answer().opaque for _ in range(count)) == list(range(count))
        assert other.answer().opaque == 1_000_000


def test_more_requests_in_flight_than_buffers(make_kit: MakeKit) -> None:
    """Sends pin their buffers until write answers: small ones move away, so that the others are still received."""
    kit = make_kit(receive_buffer_count=16, connections_max=200)
    kit.start("read")
    contexts = [connected(kit) for _ in range(100)]
    clients = [context.__enter__() for context in contexts]
    for n, client in enumerate(clients):
        client.send(send_frame("TopicA", b"x", opaque=n))
    wait_until(lambda: kit.header.ports.port[0].request.head == 100, "all are in the request ring")
    kit.start("write")
    assert [client.answer().opaque for client in clients] == list(range(100))
    for context in contexts:
        context.__exit__(None, None, None)


def test_large_requests_in_flight_leave_buffers_for_others(make_kit: MakeKit) -> None:
    """Sends of half a buffer each that write does not answer, more of them than buffers: pulls are served meanwhile."""
    kit = make_kit(receive_buffer_count=16)
    kit.subscribe(kit.group(b"GROUP"), 1)
    kit.start("read")
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(kit)) for _ in range(40)]
        for n, client in enumerate(clients):
            client.send(send_frame("TopicA", b"x" * 2000, opaque=n))
            wait_until(lambda n=n: kit.header.ports.port[0].request.head == n + 1, "the send is in the request ring")
        other = stack.enter_context(connected(kit))
        assert other.ask(pull_frame("TopicA", "GROUP", 0)).remark == "NO_MESSAGE_IN_QUEUE"
        kit.start("write")
        assert [client.answer().opaque for client in clients] == list(range(40))
    assert [data[view.body_at : view.body_at + view.body_length] for _, data, view in kit.records()] == [
        b"x" * 2000
    ] * 40


def test_sends_without_any_room_are_refused_before_they_take_the_last_buffers(make_kit: MakeKit) -> None:
    kit = make_kit(receive_buffer_count=16, reassembly_bytes_max=64 << 10)
    kit.subscribe(kit.group(b"GROUP"), 1)
    kit.start("read")
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(kit)) for _ in range(40)]
        kept, refused = [], []
        for client in clients:
            client.send(send_frame("TopicA", b"x" * 2000))
            wait_until(
                lambda client=client: kit.header.ports.port[0].request.head > len(kept) or not client.is_quiet(0),
                "the send is taken or answered",
            )
            (kept if kit.header.ports.port[0].request.head > len(kept) else refused).append(client)
        answers = [client.answer() for client in refused]
        assert {(answer.code, (answer.remark or "")[:10]) for answer in answers} == {(2, "[OVERLOAD]")}
        assert len(kept) == 11 + 8 + 2  # buffers until few are left, half of the blocks, buffers but the last two
        other = stack.enter_context(connected(kit))
        assert other.ask(pull_frame("TopicA", "GROUP", 0)).remark == "NO_MESSAGE_IN_QUEUE"
        kit.start("write")
        assert {client.answer().code for client in kept} == {0}
        assert refused[0].ask(send_frame("TopicA", b"x")).code == 0


def test_a_few_bytes_that_wait_leave_their_buffer_while_there_are_blocks(make_kit: MakeKit) -> None:
    """Sends that write does not answer hold half of the blocks and all buffers but the last; then a client stalls."""
    kit = make_kit("read", receive_buffer_count=16, reassembly_bytes_max=64 << 10, request_slots=4096)
    with ExitStack() as stack:
        for n in range(21):
            stack.enter_context(connected(kit)).send(send_frame("TopicA", b"x" * 2000))
            wait_until(lambda n=n: kit.header.ports.port[0].request.head == n + 1, "the send is in the request ring")
        client = stack.enter_context(connected(kit))
        asked: list[Any] = []
        for _ in range(64):
            client.send(request(105, {"topic": "A"}))
            asked.append(kit.take()[0])
        client.send(*(request(105, {"topic": "B"}) for _ in range(4)))
        wait_until(lambda: kit.counter(lib.RMQ_READ_STALLS) == 1, "control has enough of the client's requests")
        for record in asked:
            kit.verdict(record, lib.RMQ_VERDICT_DROP)
        assert all(b'"B"' in kit.take()[1] for _ in range(4))
        assert client.is_quiet(0)


def pipeline_pulls(kit: ReaderKit, stack: ExitStack, producer: Client) -> Client:
    """A client that asks for 3 MiB and reads nothing; the producer is served meanwhile."""
    client = stack.enter_context(connected(kit))
    client.send(*(pull_frame("TopicA", "GROUP", 0, opaque=n) for n in range(24)))
    assert producer.ask(send_frame("TopicA", b"x" * 100)).code == 0
    return client


def fill_queue(kit: ReaderKit, producer: Client) -> None:
    """32 messages of 4,000 bytes, the answer to each of the pulls; who reads none has 16 KiB of them in its socket."""
    kit.subscribe(kit.group(b"GROUP"), 1)
    kit.listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    for _ in range(32):
        assert producer.ask(send_frame("TopicA", b"x" * 4000)).code == 0
    wait_until(lambda: kit.queue(1, 0).max_offset == 32, "the queue has them")


def test_clients_that_never_read_leave_buffers_for_others(make_kit: MakeKit) -> None:
    kit = make_kit("write", "dispatch", "read", receive_buffer_count=16, send_queue_bytes_max=1 << 20)
    with ExitStack() as stack:
        producer = stack.enter_context(connected(kit))
        fill_queue(kit, producer)
        slow = [pipeline_pulls(kit, stack, producer) for _ in range(16)]
        wait_until(lambda: kit.counter(lib.RMQ_READ_STALLS) >= len(slow), "all of them wait")
        for client in slow:  # none is closed: what they sent waits in blocks, and in order
            assert [client.answer().opaque for _ in range(8)] == list(range(8))


def test_who_keeps_the_last_buffers_longest_without_reading_is_closed(make_kit: MakeKit) -> None:
    """As above with next to no blocks: those who began to wait first go, the others stay."""
    kit = make_kit(
        "write", "dispatch", "read",
        receive_buffer_count=16, send_queue_bytes_max=1 << 20, reassembly_bytes_max=32 << 10,
    )  # fmt: skip
    with ExitStack() as stack:
        producer = stack.enter_context(connected(kit))
        fill_queue(kit, producer)
        slow = [pipeline_pulls(kit, stack, producer) for _ in range(24)]
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_SLOW) > 0, "somebody was closed")
        assert kit.counter(lib.RMQ_READ_CLOSED_SLOW) < len(slow)
        assert slow[-1].answer().opaque == 0
        with pytest.raises(EOFError):
            while True:
                slow[0].answer()


def test_successor_waits_for_its_predecessors_requests(make_kit: MakeKit) -> None:
    kit = make_kit()
    kit.request(1, 0, b"of the dead", properties=b"UNIQ_KEY\x01D\x02", generation=1)
    kit.header.roles[lib.RMQ_ROLE_READ].generation = 2
    kit.start("read")
    with connected(kit) as client:
        client.send(send_frame("TopicA", b"of the living"))
        assert client.is_quiet(0.2)
        kit.start("write")
        assert client.answer().code == 0


def test_a_send_that_waited_and_went_to_control_gives_its_time_to_no_other(make_kit: MakeKit) -> None:
    kit = make_kit(request_slots=8)
    topic = kit.wide_topic(b"TopicB")
    kit.start("read")
    with connected(kit) as first, connected(kit) as client:
        first.send(*(send_frame("TopicA", b"x", opaque=number) for number in range(8)))
        wait_until(lambda: kit.header.ports.port[0].request.head == 8, "the ring is full")
        client.send(send_frame("TopicB", b"waits"))
        wait_until(lambda: kit.counter(lib.RMQ_READ_STALLS), "the reader stalls")
        lib.rmq_topic_set(kit.plane, topic, 0)
        time.sleep(2)  # span: far more than a busy machine lets a send wait
        kit.start("write")
        assert len({first.answer().opaque for _ in range(8)}) == 8
        record, _ = kit.take()
        lib.rmq_topic_set(kit.plane, topic, LIVE | 6 | 4 << 8 | 4 << 24)
        kit.verdict(record, lib.RMQ_VERDICT_REDO)
        assert client.answer().code == 0
        assert client.ask(send_frame("TopicB", b"at once")).code == 0
    queued = kit.header.latency[lib.RMQ_ROLE_READ][lib.RMQ_READ_LATENCY_QUEUED]
    wait_until(lambda: sum(queued.counts) == 10, "all are counted")
    assert queued.sum_ns < 2_000_000_000
