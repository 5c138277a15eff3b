"""Bad input against a running broker: each kind has its defined outcome and disturbs nobody else.

A neighbour sends all the while on a connection of its own; every test ends by asking whether it noticed anything.
"""

import json
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame
from ringmq.remoting.message import decode_message
from tests.conformance.wire import SHORT_NAMES, batch_body, send_fields, shortened
from tests.raw_client import PULL, SEND, SEND_BATCH, SEND_V2, RawClient, private_bytes, pull_fields
from tests.waiting import TIMEOUT_S, wait_until

PARTIAL_TIMEOUT_MS = 500
FRAME_MAX = 16 << 20
BODY_MAX = 4 << 20
LATENCY_MAX_S = 10.0  # a busy machine; what would be wrong is a neighbour that waits for a hostile client's timeout
MEMORY_GROWTH_MAX = 120 << 20
SETTINGS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "ringmqPartialFrameTimeoutMs": 100_000,
    "ringmqSendStallTimeoutMs": 100_000,
    "ringmqSendQueueBytesMax": 1 << 20,
}
IMPATIENT = {"ringmqPartialFrameTimeoutMs": PARTIAL_TIMEOUT_MS, "ringmqSendStallTimeoutMs": 1500}
"""For tests of these timeouts alone: a client that the machine lets wait would meet them, too."""


class Neighbour:
    """A well-behaved client that sends one message after the other."""

    def __init__(self, address: str) -> None:
        self._client = RawClient(address)
        self._stop = threading.Event()
        self.sent = 0
        self.slowest_s = 0.0
        self.trouble: str | None = None
        assert self._client.send("Neighbour", b"first").code == 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.002):
                began = time.monotonic()
                answer = self._client.send("Neighbour", b"good morning")
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                if answer.code != 0:
                    raise AssertionError(f"answered {answer.code}: {answer.remark}")
                self.sent += 1
        except (AssertionError, OSError) as error:
            self.trouble = repr(error)

    def assert_undisturbed(self) -> None:
        """It goes on sending, nothing was refused or late."""
        before = self.sent
        wait_until(lambda: self.trouble or self.sent > before + 2, "the neighbour goes on sending")
        assert self.trouble is None
        slowest_s, self.slowest_s = self.slowest_s, 0.0  # a late one is told once, not by every test behind it
        assert slowest_s < LATENCY_MAX_S

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        self._client.close()


@contextmanager
def served(store: Path, settings: Mapping[str, object]) -> Iterator[RunningBroker]:
    """A broker with a neighbour, for the tests of this file."""
    with RunningBroker(store, settings) as running:
        workers = running.worker_pids()
        neighbour = Neighbour(running.address)
        running.neighbour = neighbour  # type: ignore[attr-defined]
        try:
            yield running
        finally:
            neighbour.stop()
        assert workers.items() <= running.worker_pids().items(), "no worker has died"
        assert running.stop() == 0


@contextmanager
def undisturbed(broker: RunningBroker) -> Iterator[RunningBroker]:
    """What happens meanwhile disturbs nobody else."""
    memory = broker_memory(broker)
    yield broker
    broker.neighbour.assert_undisturbed()  # type: ignore[attr-defined]
    assert broker_memory(broker) - memory < MEMORY_GROWTH_MAX


@pytest.fixture(scope="module")
def patient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with served(tmp_path_factory.mktemp("hostile") / "store", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def impatient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with served(tmp_path_factory.mktemp("impatient") / "store", SETTINGS | IMPATIENT) as running:
        yield running


@pytest.fixture
def broker(patient_broker: RunningBroker) -> Iterator[RunningBroker]:
    with undisturbed(patient_broker):
        yield patient_broker


@pytest.fixture
def impatient(impatient_broker: RunningBroker) -> Iterator[RunningBroker]:
    with undisturbed(impatient_broker):
        yield impatient_broker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as connected:
        yield connected


def broker_memory(broker: RunningBroker) -> int:
    return private_bytes([broker.process.pid, *broker.worker_pids().values()])


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def closes(broker: RunningBroker, data: bytes) -> bool:
    with RawClient(broker.address) as client:
        client.send_bytes(data)
        return client.receive() is None


# --- frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), id="tls"),
        pytest.param(b"\xff" * 4096, id="ff"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(struct.pack(">iI", -1, 0), id="length -1"),
        pytest.param(struct.pack(">iI", -(2**31), 0), id="length int min"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="length 3"),
        pytest.param(struct.pack(">iI", 2**31 - 1, 10), id="length int max"),
        pytest.param(struct.pack(">iI", FRAME_MAX - 3, 10), id="one byte over 16 MiB"),
        pytest.param(struct.pack(">iI", 8, 5) + b"abcd", id="header longer than its frame"),
        pytest.param(struct.pack(">iI", 100, 0xFFFFFF) + bytes(96), id="header length of 16 MiB"),
    ],
)
def test_impossible_frames_end_the_connection(broker: RunningBroker, data: bytes) -> None:
    assert closes(broker, data)


@pytest.mark.parametrize("kind", [2, 3, 127, 255])
def test_an_unknown_serialisation_ends_the_connection(broker: RunningBroker, kind: int) -> None:
    """There is no telling in which form an answer would be understood."""
    assert closes(broker, frame(b"{}", kind=kind))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="none"),
        pytest.param(b"not json", id="no json"),
        pytest.param(b"[1,2,3]", id="a list"),
        pytest.param(b'{"code":10', id="cut off"),
        pytest.param(b'{"code":10,"opaque":{}}', id="opaque is an object"),
        pytest.param(b'{"code":10,"opaque":2147483648}', id="opaque over int32"),
        pytest.param(b'{"a":' * 5000 + b"1" + b"}" * 5000, id="nested 5000 deep"),
    ],
)
def test_a_header_without_an_opaque_ends_the_connection(broker: RunningBroker, header: bytes) -> None:
    assert closes(broker, frame(header, b"body"))
    assert closes(broker, frame(b"\0" * 12, b"body", kind=1))


def answered(client: RawClient, data: bytes) -> RemotingCommand:
    """The answer to a frame with opaque 79, while another request of the connection is under way."""
    client.send_bytes(data)
    other = client.send_request(9999, {})
    answers = {answer.opaque: answer for answer in (client.receive(), client.receive()) if answer is not None}
    assert sorted(answers) == sorted([79, other]), answers
    assert answers[other].code == 3
    return answers[79]


@pytest.mark.parametrize(
    ("header", "named"),
    [
        pytest.param(b'{"code":"ten","opaque":79}', "header field code = 'ten' is not an integer", id="code is text"),
        pytest.param(b'{"code":99999999999,"opaque":79}', "code = 99999999999 is outside int32", id="code over int32"),
        pytest.param(b'{"code":310,"opaque":79,"extFields":{"e":"1"', "text ends there", id="cut off"),
        pytest.param(b'{"code":310,"opaque":79,"extFields":{"e":Infinity}}', "found 'Infinity}}'", id="infinity"),
        pytest.param(b'{"code":310,"opaque":79,"extFields":{"i":"\\q"}}', "bad escape", id="escape"),
        pytest.param(b'{"code":310,"opaque":79,"extFields":[]}', "extFields is a list, not an object", id="list"),
    ],
)
def test_a_header_that_does_not_parse_is_answered(client: RawClient, header: bytes, named: str) -> None:
    """Stock closes the connection, with all its requests."""
    answer = answered(client, frame(header, b"body"))
    assert answer.code == 1
    assert named in str(answer.remark)


def test_a_one_way_request_and_a_response_that_do_not_parse_are_dropped(client: RawClient) -> None:
    for flag in (1, 2, 3):
        client.send_bytes(frame(b'{"code":310,"opaque":79,"flag":%d,}x' % flag, b"body"))
    assert client.ask(9999, {}).code == 3


@pytest.mark.parametrize("code", [SEND, SEND_V2])
def test_half_a_character_is_stored_as_stock_does(client: RawClient, code: int) -> None:
    """Node.js and Python's json write half an emoji as a lone surrogate. Java's bytes of it are "?"."""
    fields = send_fields("Halves", 0, {"K": "a?"})
    named = {key: str(value) for key, value in (fields if code == SEND else shortened(fields)).items()}
    header = b'{"code":%d,"opaque":79,"remark":"\\ud83d","extFields":%s}' % (code, json.dumps(named).encode())
    answer = answered(client, frame(header.replace(b"a?", b"a\\ud83d"), b"body"))
    assert answer.code == 0, answer
    queue_id, queue_offset = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
    wait_until(lambda: pulled(client, "Halves", queue_id, queue_offset), "the message can be read")
    message, _ = decode_message(pulled(client, "Halves", queue_id, queue_offset))
    assert message.properties["K"] == "a?"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda header: header + b"\0", id="NUL behind"),
        pytest.param(lambda header: b"\xef\xbb\xbf" + header, id="byte order mark"),
        pytest.param(lambda header: header.replace(b":79,", b":79.0,"), id="79.0"),
        pytest.param(lambda header: header.replace(b'"e": "0"', b'"e": "+0"'), id="+0"),
        pytest.param(lambda header: header.replace(b'"a"', b'"x": NaN, "a"'), id="NaN"),
    ],
)
def test_headers_that_fastjson_reads(client: RawClient, change: Callable[[bytes], bytes]) -> None:
    named = {key: str(value) for key, value in shortened(send_fields("Halves", 0, {})).items()}
    header = b'{"code":310,"opaque":79,"extFields":%s}' % json.dumps(named).encode()
    assert change(header) != header
    assert answered(client, frame(change(header), b"body")).code == 0


def test_a_send_that_only_control_can_read_is_refused(client: RawClient) -> None:
    """Control would approve it again and again."""
    named = {key: str(value) for key, value in shortened(send_fields("Halves", 0, {})).items()}
    header = b'{"code":310,"opaque":79,"extFields":%s,}' % json.dumps(named).encode()
    answer = answered(client, frame(header, b"body"))
    assert (answer.code, answer.remark) == (1, "the header of a request with code 310 is no standard JSON")


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(struct.pack(">hBhii", 10, 0, 1, 79, 0), id="no remark"),
        pytest.param(struct.pack(">hBhiii", 10, 0, 1, 79, 0, -5) + bytes(4), id="remark length -5"),
        pytest.param(struct.pack(">hBhiii", 10, 0, 1, 79, 0, 2**31 - 1) + bytes(4), id="remark length int max"),
        pytest.param(struct.pack(">hBhiiii", 10, 0, 1, 79, 0, 0, 1000), id="entries cut off"),
        pytest.param(struct.pack(">hBhiiiiH", 10, 0, 1, 79, 0, 0, 2, 60000), id="key over its area"),
        pytest.param(
            struct.pack(">hBhiiiiH", 10, 0, 1, 79, 0, 0, 7, 1) + b"a" + struct.pack(">i", -9), id="value length -9"
        ),
    ],
)
def test_a_binary_header_that_lies_is_answered(client: RawClient, header: bytes) -> None:
    answer = answered(client, frame(header, b"body", kind=1))
    assert (answer.code, answer.serialize_type) == (1, SerializeType.ROCKETMQ)
    assert answer.remark


def test_text_that_is_no_utf_8_is_read_with_replacement_characters(client: RawClient) -> None:
    """As stock: the field is then simply not the one that is needed."""
    client.send_bytes(frame(b'{"code":10,"opaque":1,"extFields":{"topi\xff":"x"}}', b"body"))
    answer = client.receive()
    assert answer is not None
    assert (answer.code, answer.remark) == (1, "SendMessageRequestHeader: the required field producerGroup is missing")


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 40, 100_000])
def test_half_frames_are_closed_after_the_timeout(impatient: RunningBroker, size: int) -> None:
    whole = encode_frame(RemotingCommand.request(SEND_V2, {"b": "T"}, bytes(200_000)))
    began = time.monotonic()
    assert closes(impatient, whole[:size])
    assert PARTIAL_TIMEOUT_MS / 1000 * 0.8 < time.monotonic() - began < 10


def test_slow_loris_on_500_connections(impatient: RunningBroker) -> None:
    """Each claims 64 KiB to 1 MiB and gives a byte now and then; all are closed, the neighbour is served meanwhile."""
    clients = [RawClient(impatient.address) for _ in range(500)]
    for number, client in enumerate(clients):
        client.send_bytes(struct.pack(">iI", 65_536 << number % 5, 100) + b"{")
    alive = list(clients)

    def are_closed() -> bool:
        for client in alive:
            client.send_bytes(b" ")
        alive[:] = [client for client in alive if client.is_open()]
        return not alive

    wait_until(are_closed, "all are closed")
    for client in clients:
        client.close()


# --- codes and fields -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [9999, -1, 0, 2**31 - 1])
def test_an_unknown_code(client: RawClient, code: int) -> None:
    answer = client.ask(code, {"some": "field"}, b"body")
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
    assert client.send("Neighbour", b"the connection is still good").code == 0


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("name", ["topic", "queueId", "sysFlag", "bornTimestamp", "flag", "producerGroup"])
@pytest.mark.parametrize("code", [SEND, SEND_V2, SEND_BATCH])
def test_a_send_without_a_needed_field(client: RawClient, code: int, name: str, kind: SerializeType) -> None:
    fields = send_fields("Fields", 0, {})
    del fields[name]
    body = batch_body([(b"body", {})]) if code == SEND_BATCH else b"body"
    answer = client.ask(code, fields if code == SEND else shortened(fields), body, kind)
    wire_name = name if code == SEND else SHORT_NAMES[name]
    assert answer.code == 1
    assert answer.remark == f"SendMessageRequestHeader: the required field {wire_name} is missing"


@pytest.mark.parametrize("name", ["queueId", "sysFlag", "bornTimestamp", "flag", "reconsumeTimes"])
@pytest.mark.parametrize("value", ["zero", "1.5", "99999999999999999999", ""])
def test_a_send_with_a_wrongly_typed_field(client: RawClient, name: str, value: str) -> None:
    answer = client.ask(SEND, send_fields("Fields", 0, {}) | {name: value}, b"body")
    assert answer.code == 1, answer
    assert name in str(answer.remark)


@pytest.mark.parametrize("code", [SEND, SEND_V2, SEND_BATCH])
@pytest.mark.parametrize(
    ("name", "value"),
    [("sysFlag", str(bit)) for bit in (-(1 << 31), *(1 << n for n in range(31)), -1)]
    + [("bornTimestamp", str(value)) for value in (-(1 << 63), -1, (1 << 63) - 1)]
    + [(name, str(value)) for name in ("flag", "reconsumeTimes", "queueId") for value in (-(1 << 31), -1)],
)
def test_a_send_with_an_extreme_value_is_refused_or_can_be_read(
    client: RawClient, code: int, name: str, value: str
) -> None:
    """What is stored must be a record with possible values: bits that say how long hosts are come from the broker."""
    fields = send_fields("Extreme", 0, {}) | {name: value, "batch": str(code == SEND_BATCH).lower()}
    body = batch_body([(b"body", {})]) if code == SEND_BATCH else b"body"
    answer = client.ask(code, fields if code == SEND else shortened(fields), body)
    if answer.code:
        assert answer.code in (13, 16) and f"{name} = {value}" in str(answer.remark), answer
        assert name == "sysFlag" and int(value) & 0xCC
        return
    queue_id, queue_offset = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
    assert 0 <= queue_id < 4
    wait_until(lambda: pulled(client, "Extreme", queue_id, queue_offset), "the message can be read")
    message, _ = decode_message(pulled(client, "Extreme", queue_id, queue_offset))
    assert (message.queue_id, message.queue_offset, message.born_host[0]) == (queue_id, queue_offset, "127.0.0.1")
    if name == "sysFlag":
        assert message.sys_flag & 0x30 == 0
    elif name == "bornTimestamp":
        assert message.born_timestamp_ms == int(value)


def pulled(client: RawClient, topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The body of a pull, empty where nothing was found."""
    fields = pull_fields(topic, queue_id) | {"queueOffset": str(queue_offset)}
    answer = client.ask(PULL, fields)
    return bytes(answer.body) if answer.code == 0 else b""


@pytest.mark.parametrize(
    "name", ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"]
)
def test_a_pull_without_a_needed_field(client: RawClient, name: str) -> None:
    fields = pull_fields("Neighbour")
    del fields[name]
    answer = client.ask(PULL, fields)
    assert answer.code == 1
    assert name in str(answer.remark)


@pytest.mark.parametrize(
    "name", ["queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis"]
)
def test_a_pull_with_a_wrongly_typed_field(client: RawClient, name: str) -> None:
    answer = client.ask(PULL, pull_fields("Neighbour") | {name: "many"})
    assert answer.code == 1
    assert name in str(answer.remark)


# --- names, queues --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["a b", "../../etc", "a/b", "caf\u00e9", "a\x00b", "a\nb", "T$", "*"])
@pytest.mark.parametrize("code", [SEND, SEND_V2, SEND_BATCH])
def test_a_topic_name_with_an_illegal_character(client: RawClient, code: int, topic: str) -> None:
    fields = send_fields(topic, 0, {})
    body = batch_body([(b"body", {})]) if code == SEND_BATCH else b"body"
    answer = client.ask(code, fields if code == SEND else shortened(fields), body)
    assert answer.code == 29
    assert "topic" in str(answer.remark)


@pytest.mark.parametrize("topic", ["t" * 128, "t" * 256, "t" * 60_000])
def test_a_topic_name_that_is_too_long(client: RawClient, topic: str) -> None:
    answer = client.send(topic, b"body")
    assert answer.code == 29
    assert "topic" in str(answer.remark) and "127" in str(answer.remark)
    answer = client.pull(topic)
    assert answer.code == 17
    assert "topic" in str(answer.remark)


@pytest.mark.parametrize("queue_id", [4, 100, 2**31 - 1])
@pytest.mark.parametrize("batch", [False, True])
def test_an_unknown_queue_id_of_a_send(client: RawClient, queue_id: int, batch: bool) -> None:
    assert client.send("Queues", b"made").code == 0
    fields = shortened(send_fields("Queues", queue_id, {}, batch=str(batch).lower()))
    body = batch_body([(b"body", {})]) if batch else b"body"
    answer = client.ask(SEND_BATCH if batch else SEND_V2, fields, body)
    assert answer.code == 29, answer
    assert f"queueId[{queue_id}] is illegal" in str(answer.remark)


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_an_unknown_queue_id_of_a_pull(client: RawClient, queue_id: int) -> None:
    assert client.send("Queues", b"made").code == 0
    answer = client.pull("Queues", queue_id)
    assert answer.code == 29, answer
    assert f"queueId[{queue_id}] is illegal" in str(answer.remark)


# --- bodies and properties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [SEND, SEND_V2])
def test_an_empty_body(client: RawClient, code: int) -> None:
    fields = send_fields("Bodies", 0, {})
    answer = client.ask(code, fields if code == SEND else shortened(fields))
    assert answer.code == 1
    assert answer.remark == "the message body is empty, at least 1 byte is needed"


@pytest.mark.parametrize("batch", [False, True])
def test_a_body_over_4_mib(client: RawClient, batch: bool) -> None:
    body = batch_body([(bytes(BODY_MAX), {})]) if batch else bytes(BODY_MAX + 1)
    fields = shortened(send_fields("Bodies", 0, {}, batch=str(batch).lower()))
    answer = client.ask(SEND_BATCH if batch else SEND_V2, fields, body)
    assert answer.code == 13
    assert "body" in str(answer.remark) and str(BODY_MAX) in str(answer.remark)


def test_a_body_of_exactly_4_mib_is_taken(client: RawClient) -> None:
    assert client.send("Bodies", bytes(BODY_MAX)).code == 0


@pytest.mark.parametrize("length", [32_767, 32_768, 100_000])
def test_properties_over_32_kib(client: RawClient, length: int) -> None:
    answer = client.send("Bodies", b"body", pairs={"K": "v" * (length - 3)})
    assert answer.code == 13
    assert "properties" in str(answer.remark) and "32767" in str(answer.remark)


@pytest.mark.parametrize("code", [SEND, SEND_V2])
@pytest.mark.parametrize("pairs", [{"K": "a\x00b"}, {"K\x00": "v"}, {"KEYS": "\x00"}])
def test_a_nul_in_properties(client: RawClient, code: int, pairs: dict[str, str]) -> None:
    """In the last record of the log it would look like a torn one."""
    assert client.send("Bodies", b"made").code == 0
    fields = send_fields("Bodies", 0, pairs)
    for kind in SerializeType:
        answer = client.ask(code, fields if code == SEND else shortened(fields), b"body", kind)
        assert answer.code == 13
        assert "properties" in str(answer.remark) and "NUL" in str(answer.remark)


@pytest.mark.parametrize("pairs", [{"K": "a\x00b"}, {"K\x00": "v"}])
def test_a_nul_in_the_properties_of_a_batch_element(client: RawClient, pairs: dict[str, str]) -> None:
    before = client.ask(30, {"topic": "Bodies", "queueId": 0}).ext_fields["offset"]
    fields = shortened(send_fields("Bodies", 0, {}, batch="true"))
    answer = client.ask(SEND_BATCH, fields, batch_body([(b"good", {}), (b"bad", pairs)]))
    assert answer.code == 13
    assert "properties of an element of the batch" in str(answer.remark) and "NUL" in str(answer.remark)
    assert client.ask(30, {"topic": "Bodies", "queueId": 0}).ext_fields["offset"] == before, "nothing was stored"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"abc", id="shorter than a size"),
        pytest.param(batch_body([(b"x" * 10, {})])[:-1], id="cut off"),
        pytest.param(batch_body([(b"x" * 10, {})]) + b"\0", id="one byte more"),
        pytest.param(struct.pack(">iiiii", 40, 0, 0, 0, -1) + bytes(20), id="body length -1"),
        pytest.param(struct.pack(">iiiii", 40, 0, 0, 0, 2**31 - 1) + bytes(20), id="body length int max"),
        pytest.param(struct.pack(">iiiii", 22, 0, 0, 0, 0) + struct.pack(">h", -1), id="properties length -1"),
        pytest.param(
            struct.pack(">iiiii", 22, 0, 0, 0, 0) + struct.pack(">h", 32767), id="properties length short max"
        ),
    ],
)
def test_a_malformed_batch(client: RawClient, body: bytes) -> None:
    assert client.send("Bodies", b"made").code == 0
    answer = client.ask(SEND_BATCH, shortened(send_fields("Bodies", 0, {}, batch="true")), body)
    assert answer.code == (13 if body else 1), answer
    assert "body" in str(answer.remark)
    assert client.send("Bodies", b"the connection is still good").code == 0


@pytest.mark.parametrize("pairs", [{"DELAY": "3"}, {"TRAN_MSG": "true"}])
def test_a_batch_element_with_a_pair_for_single_messages(client: RawClient, pairs: dict[str, str]) -> None:
    fields = shortened(send_fields("Bodies", 0, {}, batch="true"))
    answer = client.ask(SEND_BATCH, fields, batch_body([(b"good", {"DELAY": "0"}), (b"bad", pairs)]))
    assert answer.code == 13
    assert "only a single message may have DELAY > 0 or TRAN_MSG = true" in str(answer.remark)


@pytest.mark.parametrize("raw", [b"novalue\x02", b"K\x01v\x02\x02", b"\x01v\x02", b"K\x01v\x02tail"])
def test_broken_pairs_of_a_batch_element(client: RawClient, raw: bytes) -> None:
    body = struct.pack(">iiiii", 0, 0, 0, 0, 1) + b"x" + struct.pack(">h", len(raw)) + raw
    answer = client.ask(SEND_BATCH, shortened(send_fields("Bodies", 0, {}, batch="true")), body)
    assert answer.code == 13
    assert "properties of an element of the batch" in str(answer.remark) and "pair" in str(answer.remark)


def test_the_size_field_of_a_batch_element_is_not_looked_at(client: RawClient) -> None:
    """As stock: the lengths of body and properties say where an element ends."""
    fields = shortened(send_fields("Bodies", 0, {}, batch="true"))
    for size in (-1, 0, 2**31 - 1):
        body = struct.pack(">iiiii", size, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
        assert client.ask(SEND_BATCH, fields, body).code == 0


# --- many and slow --------------------------------------------------------------------------------------------


def test_10_000_idle_connections(broker: RunningBroker) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = 10_000 if hard >= 12_000 else 2_000
    host, port = broker.address.split(":")
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
        with RawClient(broker.address) as one_more:
            assert one_more.send("Neighbour", b"served beside them").code == 0
        broker.neighbour.assert_undisturbed()  # type: ignore[attr-defined]
        last = sockets[-1]
        last.sendall(encode_frame(RemotingCommand.request(9999)))
        assert last.recv(100)
    finally:
        for each in sockets:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with RawClient(broker.address) as later:
        assert later.send("Neighbour", b"served after them").code == 0


def test_a_client_that_never_reads_its_pull_answers_is_closed(impatient: RunningBroker) -> None:
    with RawClient(impatient.address) as producer:
        for _ in range(32):
            assert producer.send("Unread", bytes(8000)).code == 0
        wait_until(lambda: producer.ask(30, {"topic": "Unread", "queueId": 0}).ext_fields["offset"] == "32", "readable")
    before = peak = broker_memory(impatient)
    slow = RawClient(impatient.address, timeout_s=0.2)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = encode_frame(
        RemotingCommand.request(PULL, {k: str(v) for k, v in pull_fields("Unread").items()}, opaque=1)
    )

    def is_closed() -> bool:
        nonlocal peak
        try:
            slow.socket.send(request * 50)
        except TimeoutError:
            peak = max(peak, broker_memory(impatient))
        except (BrokenPipeError, ConnectionResetError):
            return True
        return False

    wait_until(is_closed, "the broker gives up on it")
    slow.close()
    assert peak - before < 64 << 20
