"""Frames left to control: inbox records, verdicts, what follows when control dies or is full."""

import socket
import threading
import time
from contextlib import ExitStack

import pytest
from reader_kit import BOTH, MakeKit, ReaderKit, connected, pull_frame, request, send_frame
from waiting import wait_until

from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame

SEND, REDO, DROP, CLOSE = lib.RMQ_VERDICT_SEND, lib.RMQ_VERDICT_REDO, lib.RMQ_VERDICT_DROP, lib.RMQ_VERDICT_CLOSE
HEARTBEAT, LOCK, ROUTE, SEND_BACK = 34, 41, 105, 36
SERVICES = 1
"""Number of the answerer `services` in the plane of a kit."""
CLOCK_STEP_NS = 1_000_000
"""A reader may count in whole milliseconds."""


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    for role in ("write", "read"):
        kit.start(role)
    return kit


def answer_frame(opaque: int, remark: str = "", body: bytes = b"") -> bytes:
    """An answer as control encodes it."""
    return encode_frame(RemotingCommand(code=0, opaque=opaque, flag=1, remark=remark or None, body=body))


def test_record_says_who_and_what(kit: ReaderKit) -> None:
    frame = request(ROUTE, {"topic": "T"}, b"body", opaque=5)
    with connected(kit) as client:
        began_ns = time.monotonic_ns()
        client.send(frame)
        record, payload = kit.take()
        host, port = client.socket.getsockname()
        assert payload == frame
        assert (record.type, record.role, record.role_generation) == (lib.RMQ_INBOX_COLD_FRAME, lib.RMQ_ROLE_READ, 1)
        assert (bytes(record.peer_host)[:4], record.peer_port, record.peer_v6) == (bytes([127, 0, 0, 1]), port, 0)
        assert (record.frame_length, record.listener, host) == (len(frame), 0, "127.0.0.1")
        assert began_ns - CLOCK_STEP_NS <= record.received_mono_ns <= time.monotonic_ns()
        kit.verdict(record, SEND, answer_frame(5, "fine"))
        assert client.answer().remark == "fine"


@pytest.mark.parametrize("state", TenureState)
@pytest.mark.parametrize("flags", [0, lib.RMQ_ROLE_OF_MASTER])
def test_a_request_that_a_master_alone_does_goes_to_control_of_another_broker(
    kit: ReaderKit, flags: int, state: TenureState
) -> None:
    """Control has the answer of a slave. The worker of the code is dormant there."""
    kit.header.roles[lib.RMQ_ROLE_SERVICES].flags, kit.marks.tenure = flags, Tenure(state).word
    is_control = bool(flags) and state is not TenureState.MASTER
    with connected(kit) as client:
        frame = request(SEND_BACK, {"group": "G"})
        client.send(frame)
        assert kit.take(0 if is_control else SERVICES)[1] == frame
        client.send(request(ROUTE, {}))
        assert kit.take(0)[1] == request(ROUTE, {})
    assert kit.header.roles[lib.RMQ_ROLE_SERVICES].activation_requested == (not is_control)


def test_answers_in_chunks_do_not_mix(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {}, opaque=1), request(ROUTE, {}, opaque=2))
        first, second = kit.take()[0], kit.take()[0]
        one, two = answer_frame(1, body=b"1" * 30_000), answer_frame(2, body=b"2" * 100)
        kit.verdict(first, SEND, one[:10], last=0)
        kit.verdict(first, SEND, one[10:20_000], last=0)
        kit.verdict(second, SEND, two)
        client.send(send_frame("TopicA", b"x", opaque=3))
        assert {client.answer().opaque, client.answer().opaque} == {2, 3}
        kit.verdict(first, SEND, one[20_000:])
        whole = client.answer()
        assert (whole.opaque, whole.body) == (1, b"1" * 30_000)


def test_control_speaks_first(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {}, flag=2))
        record, _ = kit.take()
        kit.verdict(record, DROP)
        notice, question = request(40, {"consumerGroup": "G"}, flag=2), request(307, {"consumerGroup": "G"}, opaque=77)
        for frame in (notice, question):
            kit.verdict(record, SEND, frame[:7], last=0, pending=lib.RMQ_NONE)
            kit.verdict(record, SEND, frame[7:], pending=lib.RMQ_NONE)
            assert client.read_frame() == frame
        client.send(answer_frame(77, "one question"), answer_frame(77, "two answers"), request(ROUTE, {}))
        answer, payload = kit.take()
        assert (answer.pending, decode_frame(payload).remark) == (lib.RMQ_NONE, "one question")
        assert kit.take()[1] == request(ROUTE, {})
    wait_until(lambda: kit.counter(lib.RMQ_READ_STALE) == 1, "what nobody asked for is counted")


def test_half_a_frame_of_control_ends_with_its_connection(kit: ReaderKit) -> None:
    """The next connection of the same place hears nothing of it."""
    old, notice = (request(40, {"consumerGroup": group}, flag=2) for group in ("OLD", "NEW"))
    with connected(kit) as client:
        client.send(request(ROUTE, {}, opaque=1))
        gone, _ = kit.take()
        kit.verdict(gone, SEND, old[:50], last=0, pending=lib.RMQ_NONE)
        kit.verdict(gone, SEND, answer_frame(1))
        assert client.answer().opaque == 1
    assert kit.take()[0].type == lib.RMQ_INBOX_CLOSED
    with connected(kit) as client:
        client.send(request(ROUTE, {}))
        record, _ = kit.take()
        assert (record.connection, record.connection_generation) == (gone.connection, gone.connection_generation + 1)
        kit.verdict(record, SEND, notice, pending=lib.RMQ_NONE)
        assert client.read_frame() == notice


@pytest.mark.parametrize("serialise", BOTH)
def test_redo_after_the_topic_was_made(kit: ReaderKit, serialise: SerializeType) -> None:
    with connected(kit) as client:
        client.send(send_frame("Fresh", b"x" * 5000, "a\x01b\x02UNIQ_KEY\x01K\x02", serialise=serialise))
        record, payload = kit.take()
        assert len(payload) < record.frame_length - 4999
        kit.wide_topic(b"Fresh")
        kit.verdict(record, REDO)
        assert client.answer().ext_fields["transactionId"] == "K"
    ((_, data, view),) = kit.records()
    assert data[view.body_at : view.body_at + view.body_length] == b"x" * 5000


def test_redo_without_end_is_refused(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(send_frame("Nowhere", b"x"))
        for _ in range(4):
            kit.verdict(kit.take()[0], REDO)
        answer = client.answer()
        assert (answer.code, answer.ext_fields["MSG_REGION"]) == (2, "DefaultRegion")


def test_close_verdict(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {}))
        kit.verdict(kit.take()[0], CLOSE)
        assert client.is_closed()
        assert kit.take()[0].type == lib.RMQ_INBOX_CLOSED


def test_closed_is_reported_for_those_that_control_knows(kit: ReaderKit) -> None:
    with connected(kit) as stranger, connected(kit) as client:
        client.send(request(ROUTE, {}))
        record, _ = kit.take()
        stranger.close()
        client.close()
        closed, _ = kit.take()
    assert (closed.type, closed.connection, closed.connection_generation) == (
        lib.RMQ_INBOX_CLOSED, record.connection, record.connection_generation,
    )  # fmt: skip
    kit.verdict(record, SEND, answer_frame(1))  # too late: dropped
    with connected(kit) as other:
        assert other.ask(send_frame("TopicA", b"x")).code == 0
    assert kit.inbox_take() is None


def test_verdicts_of_another_time_are_stale(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {}, opaque=1))
        record, _ = kit.take()
        kit.verdict(record, SEND, answer_frame(1, "right"))
        assert client.answer().remark == "right"
        client.send(request(ROUTE, {}, opaque=2))
        again, _ = kit.take()
        assert again.pending != record.pending
        kit.verdict(record, SEND, answer_frame(2, "an old verdict for the same place"))
        record.role_generation, record.pending = 0, again.pending
        kit.verdict(record, SEND, answer_frame(2, "for a reader that is gone"))
        kit.verdict(again, SEND, answer_frame(2, "right again"))
        assert client.answer().remark == "right again"


@pytest.mark.parametrize("serialise", BOTH)
def test_control_dies(kit: ReaderKit, serialise: SerializeType) -> None:
    with connected(kit) as producer, connected(kit) as consumer, connected(kit) as orderly:
        producer.send(send_frame("Nowhere", b"x", opaque=4, serialise=serialise))
        consumer.send(request(HEARTBEAT, {}, b"{}", serialise=serialise))
        orderly.send(request(LOCK, {}, b"{}", serialise=serialise))
        old = [kit.take()[0] for _ in range(3)]
        kit.header.roles[lib.RMQ_ROLE_CONTROL].generation = 2
        lib.rmq_role_wake(kit.plane, lib.RMQ_ROLE_READ)
        busy = producer.answer()
        assert (busy.code, busy.opaque, busy.serialize_type) == (2, 4, serialise)
        for client in (consumer, orderly):
            while not client.is_closed():
                pass  # the answer SYSTEM_BUSY may come before the end
        for record in old:
            kit.verdict(record, SEND, answer_frame(4, "from the grave"))
        assert producer.ask(send_frame("TopicA", b"x", opaque=9)).opaque == 9


def test_full_inbox_is_overload(kit: ReaderKit) -> None:
    with connected(kit) as client:
        inbox, head = kit.header.asks.answerer[0].inbox, -1
        while client.is_quiet(0):
            head = inbox.head
            client.send(request(ROUTE, {}, b"x" * 50_000))
            wait_until(lambda head=head: inbox.head != head or not client.is_quiet(0), "it is taken or answered")
        assert inbox.head == head
        answer = client.answer()
        assert (answer.code, (answer.remark or "")[:10]) == (2, "[OVERLOAD]")
        assert client.ask(send_frame("TopicA", b"hot")).code == 0
        assert client.is_quiet()
        while kit.inbox_take():
            pass
        client.send(request(ROUTE, {}, opaque=1000))
        kit.verdict(kit.take()[0], SEND, answer_frame(1000))
        assert client.answer().opaque == 1000


def test_body_over_the_limit_of_cold_requests(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {}, bytes((4 << 20) + 1)))
        answer = client.answer()
    assert answer.code == 13
    assert "4194304" in (answer.remark or "") and "4194305" in (answer.remark or "")


def test_header_over_the_limit_of_cold_requests(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(request(ROUTE, {"topic": "T" * (256 << 10)}, opaque=6))
        answer = client.answer()
        assert (answer.code, answer.opaque) == (13, 6)
        assert "at most 262144 bytes" in (answer.remark or "")
        client.send(request(ROUTE, {"topic": "T" * (200 << 10)}, opaque=7))
        assert kit.take()[0].frame_length > 200 << 10


def test_held_pull_goes_through_control_and_back(kit: ReaderKit) -> None:
    kit.start("dispatch")
    with connected(kit) as client:
        client.send(pull_frame("TopicA", "LATE", 0, sys_flag=2))
        record, _ = kit.take()
        kit.subscribe(kit.group(b"LATE"), 1)
        kit.verdict(record, REDO)
        assert client.is_quiet()
        with connected(kit) as producer:
            assert producer.ask(send_frame("TopicA", b"x")).code == 0
        assert client.answer().code == 0


def test_a_flood_of_cold_frames_waits_for_its_verdicts(make_kit: MakeKit) -> None:
    """One connection may have 64 frames with control, half of all; the others are still heard."""
    kit = make_kit("read", request_slots=1024)
    count = 600
    with connected(kit) as flood, connected(kit) as other:
        flood.send(*(request(ROUTE, {}, opaque=n) for n in range(count)))
        taken = [kit.take()[0] for _ in range(64)]
        other.send(request(ROUTE, {}, opaque=7))
        record = kit.take()[0]
        assert record.connection != taken[0].connection
        kit.verdict(record, SEND, answer_frame(7))
        assert other.answer().opaque == 7
        answered = set()
        while len(answered) < count:
            for record in taken:
                kit.verdict(record, SEND, answer_frame(len(answered)))
                answered.add(flood.answer().opaque)
            taken = [kit.take()[0]] if len(answered) < count else []


def test_many_floods_share_what_control_takes(make_kit: MakeKit) -> None:
    """Twelve floods together have at most 128 frames, and one each, ahead of a frame that comes later."""
    kit = make_kit("read", request_slots=1024)
    with ExitStack() as stack:
        floods = [stack.enter_context(connected(kit)) for _ in range(12)]
        for flood in floods:
            flood.send(*(request(ROUTE, {}, opaque=n) for n in range(300)))
        for turn in range(1, 4):
            wait_until(lambda turn=turn: kit.counter(lib.RMQ_READ_STALLS) >= turn * len(floods), "every flood waits")
            ahead = []
            with connected(kit) as other:
                other.send(request(ROUTE, {}, opaque=777))
                while b'"opaque":777' not in (taken := kit.take())[1]:
                    ahead += [taken[0]] if taken[0].type == lib.RMQ_INBOX_COLD_FRAME else []
                kit.verdict(taken[0], SEND, answer_frame(777))
                assert other.answer().opaque == 777
            assert len(floods) <= len(ahead) <= 128 + len(floods)
            assert len({record.connection for record in ahead}) == len(floods)
            for record in ahead:
                kit.verdict(record, SEND, answer_frame(1))


def test_answers_that_nobody_asked_for_do_not_reach_control(make_kit: MakeKit) -> None:
    kit = make_kit("read", inbox_bytes=16 << 20)
    with connected(kit) as flood, connected(kit) as other:
        flood.send(*[answer_frame(1, body=bytes(1 << 20))] * 18, request(ROUTE, {}, opaque=6))
        assert decode_frame(kit.take()[1]).opaque == 6
        other.send(request(ROUTE, {}, opaque=7))
        assert decode_frame(kit.take()[1]).opaque == 7


def test_a_flood_of_large_cold_frames_waits_for_its_verdicts(make_kit: MakeKit) -> None:
    """Bytes are counted, too: 18 requests of 1 MiB would fill the inbox; one of 4 MiB is taken when none waits."""
    kit = make_kit("read", inbox_bytes=16 << 20)
    bodies = [bytes(4 << 20), *[bytes(1 << 20)] * 18, b""]
    with connected(kit) as flood, connected(kit) as other:
        sender = threading.Thread(
            target=lambda: flood.send(*(request(ROUTE, {}, body, opaque=n) for n, body in enumerate(bodies)))
        )
        sender.start()
        for n in range(len(bodies)):
            record, payload = kit.take()
            assert decode_frame(payload).opaque == n
            if n < len(bodies) - 1:
                other.send(request(ROUTE, {}, opaque=100 + n))
                others, payload = kit.take()
                assert decode_frame(payload).opaque == 100 + n
                kit.verdict(others, SEND, answer_frame(100 + n))
                assert other.answer().opaque == 100 + n
            kit.verdict(record, SEND, answer_frame(n))
            assert flood.answer().opaque == n
        sender.join()


def test_large_cold_frames_leave_half_of_the_inbox_to_small_ones(make_kit: MakeKit) -> None:
    kit = make_kit("read", inbox_bytes=16 << 20, reassembly_bytes_max=32 << 20)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(kit)) for _ in range(6)]
        for client in clients[:2]:
            client.send(request(ROUTE, {}, bytes(3 << 20)))
        ring = kit.header.asks.answerer[0].inbox
        wait_until(lambda: ring.head - ring.tail > 6 << 20, "two are in the inbox")
        for client in clients[2:]:
            answer = client.ask(request(ROUTE, {}, bytes(3 << 20)))
            assert (answer.code, (answer.remark or "")[:10]) == (2, "[OVERLOAD]")
            client.send(request(ROUTE, {}, bytes(60_000)))
        assert [kit.take()[0].frame_length > 60_000 for _ in range(6)] == [True] * 6
        answered = clients[2]
        answered.send(request(ROUTE, {}, bytes(3 << 20)))
        assert len(kit.take()[1]) > 3 << 20


def test_held_pulls_with_much_to_say_take_turns(make_kit: MakeKit) -> None:
    """Eight woken pulls of 200 KB each on a connection that may queue 1 MiB (a quarter before it has to wait)."""
    kit = make_kit("write", "dispatch", "read", send_queue_bytes_max=1 << 20)
    kit.subscribe(kit.group(b"GROUP"), 1)
    with connected(kit) as producer, connected(kit) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.send(*(pull_frame("TopicA", "GROUP", 0, queue=n % 4, sys_flag=2, opaque=n) for n in range(8)))
        for queue in range(4):
            assert producer.ask(send_frame("TopicA", b"x" * 200_000, queue=queue)).code == 0
        answers = [client.answer() for _ in range(8)]
    assert sorted(answer.opaque for answer in answers) == list(range(8))
    assert {answer.code for answer in answers} == {0}
