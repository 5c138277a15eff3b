"""The native load of pops and pulls that wait: what it makes of honest and lying brokers."""

import contextlib
import json
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator

import pytest

from ringmq.loadtest.load.tools import Loader, Report, ToolError, build_tools
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_payload, encode_frame
from ringmq.remoting.message import MessageExt, encode_message

pytestmark = pytest.mark.io_uring
Answer = Callable[[int, dict[str, str], bytes], None]
ACK_CODES = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)


class FakeBroker:
    """Gives each message to the oldest waiting pop of each group. `fault`: what it does wrong with the third one."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.poll_ms: set[str] = set()
        self.acked: Counter[str] = Counter()
        self.ends: Counter[tuple[str, int]] = Counter()
        self._waiting: dict[tuple[str, str], deque[Answer]] = {}
        self._kept: dict[tuple[str, str], deque[MessageExt]] = {}
        self._sent: dict[str, list[MessageExt]] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        with contextlib.suppress(OSError):
            while head := stream.read(4):
                request = decode_payload(memoryview(stream.read(struct.unpack(">i", head)[0])))

                def answer(code: int, fields: dict[str, str], body: bytes, to: RemotingCommand = request) -> None:
                    response = RemotingCommand.response_to(to, code, ext_fields=fields, body=body)
                    with contextlib.suppress(OSError):
                        peer.sendall(encode_frame(response))

                with self._lock:
                    self._take(request, answer)

    def _take(self, request: RemotingCommand, answer: Answer) -> None:
        fields = request.ext_fields
        if request.code == RequestCode.POP_MESSAGE:
            key = fields["topic"], fields["consumerGroup"]
            self.poll_ms.add(fields["pollTime"])
            if self.fault == "full":
                answer(ResponseCode.POLLING_FULL, {}, b"")
                return
            self._waiting.setdefault(key, deque()).append(answer)
            self._kept.setdefault(key, deque(self._sent.get(key[0], [])))
            self._serve_key(key)
            return
        if request.code == RequestCode.SEND_MESSAGE_V2:
            self._store(fields["b"], int(fields["e"]), bytes(request.body))
        elif request.code == RequestCode.BATCH_ACK_MESSAGE:
            self.acked.update(ack["c"] for ack in json.loads(request.body)["acks"])
        elif request.code == RequestCode.ACK_MESSAGE:
            self.acked[fields["consumerGroup"]] += 1
        answer(2 if request.code in ACK_CODES and self.fault == "refused ack" else 0, {}, b"")

    def _store(self, topic: str, queue: int, body: bytes) -> None:
        is_third = sum(self.ends.values()) == 2
        message = MessageExt(topic, body, {"UNIQ_KEY": "k"}, queue_id=queue)
        message.queue_offset = self.ends[topic, queue]
        self.ends[topic, queue] += 1
        if is_third and self.fault == "lost":
            return
        if is_third and self.fault == "another":
            message.body = b"ABCDEFABCDEF" + body[12:]
        messages = [message] * (2 if is_third and self.fault == "twice" else 1)
        self._sent.setdefault(topic, []).extend(messages)
        for key in [key for key in self._waiting if key[0] == topic]:
            self._kept[key].extend(messages)
            self._serve_key(key)

    def _serve_key(self, key: tuple[str, str]) -> None:
        waiting, kept = self._waiting[key], self._kept[key]
        while waiting and kept:
            message = kept.popleft()
            place = f"0 {message.queue_id} {message.queue_offset}"
            fields = {"popTime": "1", "invisibleTime": "60000", "reviveQid": "3", "restNum": "0"}
            waiting.popleft()(0, {**fields, "startOffsetInfo": place, "msgOffsetInfo": place}, encode_message(message))


@contextlib.contextmanager
def fake_broker(fault: str = "") -> Iterator[FakeBroker]:
    broker = FakeBroker(fault)
    try:
        yield broker
    finally:
        broker.close()


def run(broker: FakeBroker, **options: object) -> Report:
    given: dict[str, object] = {"topic": "T", "group": "G", "queues": 2, "rate": 100, "seconds": 0.4, **options}
    return Loader(build_tools(), broker.port).run("wait", connections=4, depth=3, warmup=0.1, **given)


@pytest.mark.parametrize("single_acks", [False, True], ids=["batch", "single"])
def test_each_message_is_received_once_by_a_pop_that_waited(single_acks: bool) -> None:
    with fake_broker() as broker:
        report = run(broker, single_acks=single_acks, poll_ms=7000)
        assert report["ok"] is True, report
        assert report["sent"] == report["received"] == report["acked"] == 50
        assert 39 <= report["late_us"]["count"] == report["whole_us"]["count"] <= 40, "but those of the warm-up"
        assert report["late_us"]["max"] >= report["late_us"]["p99"] >= report["late_us"]["min"] > 0
        assert report["waiting"] == 4 * 3 and report["unanswered"] == 0
        assert broker.acked == {"G": 50} and broker.poll_ms == {"7000"}


def test_each_group_receives_each_message() -> None:
    with fake_broker() as broker:
        report = run(broker, groups=4)
        assert report["ok"] is True, report
        assert (report["sent"], report["received"]) == (50, 200)
        assert report["late_us"]["count"] == 4 * report["whole_us"]["count"] > 150
        assert report["whole_us"]["min"] > report["late_us"]["min"], "until the last one has it"
        assert broker.acked == {f"G-{number}": 50 for number in range(4)}


def test_topics_get_messages_by_turns() -> None:
    with fake_broker() as broker:
        report = run(broker, topics=2)
        assert report["ok"] is True, report
        assert (report["sent"], report["received"]) == (50, 50)
        assert {topic for topic, _ in broker.ends} == {"T-0", "T-1"}


def test_without_messages_pops_wait() -> None:
    with fake_broker() as broker:
        report = run(broker, rate=0)
        assert report["ok"] is True, report
        assert (report["sent"], report["received"], report["waiting"]) == (0, 0, 12)


@pytest.mark.parametrize(
    ("fault", "field", "value"),
    [("twice", "unknown", 1), ("another", "unknown", 1), ("lost", "received", 49), ("refused ack", "acked", 0)],
)
def test_a_broker_that_lies_is_found_out(fault: str, field: str, value: int) -> None:
    with fake_broker(fault) as broker:
        report = run(broker, drain=0.5)
        assert report["ok"] is False
        assert report[field] == value, report


def test_pops_that_may_not_wait_are_an_error() -> None:
    with fake_broker("full") as broker:
        report = run(broker, rate=0)
        assert report["ok"] is False
        assert list(report["errors"]) == ["209"], report


@pytest.mark.parametrize("options", [{"topics": 2, "groups": 2}, {"groups": 5}, {"queues": 65}])
def test_impossible_plans_are_refused(options: dict[str, object]) -> None:
    with fake_broker() as broker, pytest.raises(ToolError, match="those that wait"):
        run(broker, **options)
