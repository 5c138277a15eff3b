"""The loads that pop: what the native one makes of honest and lying brokers, and receipts as stock gives them."""

import base64
import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.load.pops import BadPopAnswerError, bit_set, popped_of
from ringmq.loadtest.load.tools import Loader, build_tools
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame, decode_payload, encode_frame
from ringmq.remoting.message import MessageExt, encode_message

GOLDEN = Path(__file__).parents[1] / "golden" / "pop"
QUEUES, EACH = 2, 40
POP_TIME_MS, REVIVE_QUEUE, BROKER = 1_700_000_000_000, 3, "fake"


class FakeBroker:
    """Answers pops of one topic from memory. `fault` is what it does wrong with message 7 of queue 1."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.acked: list[tuple[int, int]] = []
        self.refused: list[str] = []
        self._next = [0] * QUEUES
        self._turn = 0
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
                with self._lock:
                    code, fields, body = self._answer(request)
                peer.sendall(encode_frame(RemotingCommand.response_to(request, code, ext_fields=fields, body=body)))

    def _answer(self, request: RemotingCommand) -> tuple[int, dict[str, str], bytes]:
        match request.code:
            case RequestCode.GET_MAX_OFFSET:
                return 0, {"offset": str(EACH)}, b""
            case RequestCode.POP_MESSAGE:
                return self._pop(int(request.ext_fields["maxMsgNums"]))
            case RequestCode.ACK_MESSAGE:
                self._ack(request.ext_fields)
            case RequestCode.BATCH_ACK_MESSAGE:
                self._ack_all(json.loads(request.body))
            case other:
                self.refused.append(str(other))
        return 0, {}, b""

    def _pop(self, count: int) -> tuple[int, dict[str, str], bytes]:
        starts, offsets, body = [], [], b""
        self._turn += 1
        for queue in sorted(range(QUEUES), key=lambda queue: (queue + self._turn) % QUEUES):
            first = self._next[queue] + ((self.fault, queue, self._next[queue]) == ("skipped", 1, 7))
            taken = list(range(first, min(first + count, EACH)))
            if not taken:
                continue
            self._next[queue] = taken[-1] + (not (self.fault == "twice" and (queue, taken[-1]) == (1, 7)))
            if self.fault == "twice" and (queue, taken[-1]) == (1, 7):
                self.fault = ""
            flag = "1" if self.fault == "came back" and (queue, 7) == (1, taken[-1]) else "0"
            starts.append(f"{flag} {queue} {first}")
            offsets.append(f"{flag} {queue} {','.join(map(str, taken))}")
            body += b"".join(self._record(queue, one) for one in taken)
            count -= len(taken)
            if not count:
                break
        fields = {"popTime": str(POP_TIME_MS), "invisibleTime": "60000", "reviveQid": str(REVIVE_QUEUE), "restNum": "0"}
        if not body:
            return ResponseCode.POLLING_TIMEOUT, fields, b""
        return 0, fields | {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(offsets)}, body

    def _record(self, queue: int, offset: int) -> bytes:
        is_wrong = self.fault == "wrong place" and (queue, offset) == (1, 7)
        message = MessageExt("T", b"body %d" % offset, {"UNIQ_KEY": f"{queue}-{offset}"}, queue_id=queue)
        message.queue_offset = offset + is_wrong
        data = encode_message(message)
        return data.replace(b"body 7", b"bodY 7") if self.fault == "wrong crc" and queue == 1 else data

    def _ack(self, fields: dict[str, str]) -> None:
        start, pop_time, invisible, revive, flag, broker, queue, offset = fields["extraInfo"].split()
        assert (queue, offset) == (fields["queueId"], fields["offset"]) and int(start) <= int(offset)
        assert (pop_time, invisible, revive, flag, broker) == (str(POP_TIME_MS), "60000", "3", "0", BROKER)
        self.acked.append((int(queue), int(offset)))

    def _ack_all(self, body: dict[str, object]) -> None:
        assert body["brokerName"] == BROKER
        for ack in body["acks"]:  # type: ignore[attr-defined]
            assert (ack["c"], ack["t"], ack["r"]) == ("G", "T", "0")
            assert (ack["pt"], ack["it"], ack["rq"]) == (POP_TIME_MS, 60_000, REVIVE_QUEUE)
            bits = int.from_bytes(base64.b64decode(ack["b"]), "little")
            assert bit_set(bits) == ack["b"], "as Java writes it"
            self.acked += [(ack["q"], ack["so"] + bit) for bit in range(bits.bit_length()) if bits >> bit & 1]


@contextlib.contextmanager
def fake_broker(fault: str = "") -> Iterator[FakeBroker]:
    broker = FakeBroker(fault)
    try:
        yield broker
    finally:
        broker.close()


def run(broker: FakeBroker, **options: object) -> dict[str, object]:
    given: dict[str, object] = {"connections": 2, "depth": 2, "count": 32, "seconds": 20, **options}
    return Loader(build_tools(), broker.port).run(
        "pop", topic="T", group="G", queues=QUEUES, broker_name=BROKER, **given
    )


@pytest.mark.io_uring
@pytest.mark.parametrize("single_acks", [False, True], ids=["batch", "single"])
@pytest.mark.parametrize("count", [1, 3, 32])
def test_each_message_is_popped_and_acknowledged_once(single_acks: bool, count: int) -> None:
    with fake_broker() as broker:
        report = run(broker, count=count, single_acks=single_acks)
        everything = [(queue, offset) for queue in range(QUEUES) for offset in range(EACH)]
        assert report["ok"] is True, report
        assert report["popped"] == report["acked"] == report["expected"] == QUEUES * EACH
        assert sorted(broker.acked) == everything
        assert broker.refused == []


@pytest.mark.io_uring
def test_messages_are_left_open() -> None:
    with fake_broker() as broker:
        report = run(broker, count=1, leave_open=True)
        assert report["ok"] is True, report
        assert (report["popped"], report["acked"]) == (QUEUES * EACH, 0)
        assert broker.acked == []


@pytest.mark.io_uring
@pytest.mark.parametrize(
    ("fault", "counter"),
    [("twice", "twice"), ("skipped", "skipped"), ("wrong crc", "wrong_crc"), ("came back", "came_back"),
     ("wrong place", "bad_answers")],
)  # fmt: skip
def test_a_broker_that_lies_is_found_out(fault: str, counter: str) -> None:
    with fake_broker(fault) as broker:
        report = run(broker, count=1, connections=1, depth=1, seconds=1)
        assert report["ok"] is False
        assert int(str(report[counter])) > 0, report


def test_receipts_are_those_of_stocks_own_client() -> None:
    """The recorder has built its receipts as the Java client does. One run was broken off behind an answer."""
    recorded = [json.loads(line) for line in (GOLDEN / "outcomes.jsonl").read_text().splitlines()]
    wanted = [message["receipt"] for line in recorded for message in line.get("msgs", []) if "receipt" in message]
    lines = map(json.loads, (GOLDEN / "frames.jsonl").read_text().splitlines())
    found = []
    for line in lines:
        answer = decode_frame(bytes.fromhex(line["hex"]))
        if line["dir"] == "resp" and answer.code == ResponseCode.SUCCESS and answer.ext_fields.get("msgOffsetInfo"):
            found += [popped.receipt.text() for popped in popped_of(answer, "broker-p")]
    assert len(wanted) > 80
    missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not missing
    assert more == Counter(["1 1795209155688 5000 7 2 broker-p 0 1"])


def test_an_answer_whose_messages_are_elsewhere_is_refused() -> None:
    message = MessageExt("T", b"body", queue_id=1)
    message.queue_offset = 8
    fields = {
        "popTime": "1", "invisibleTime": "1", "reviveQid": "0", "restNum": "0", "startOffsetInfo": "0 1 7",
        "msgOffsetInfo": "0 1 7",
    }  # fmt: skip
    with pytest.raises(BadPopAnswerError):
        popped_of(RemotingCommand(0, ext_fields=fields, body=encode_message(message)), "b")
