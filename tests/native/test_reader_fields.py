"""Odd fields of sends and pulls: the reader and control read the same, or the field is refused by name.

Control approves what its own reader can read. If the read worker cannot read it, the two would go on for ever.
"""

import json
import struct
from dataclasses import dataclass

import pytest
from reader_kit import BOTH, Client, MakeKit, ReaderKit, connected, pull_frame, send_frame
from waiting import wait_until

from ringmq.native import lib
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import decode_frame, encode_frame
from ringmq.remoting.errors import RequestError
from ringmq.remoting.request_headers import decode_request_header, decode_send_header

DROP, REDO = lib.RMQ_VERDICT_DROP, lib.RMQ_VERDICT_REDO
TEXTS = [
    "+1", "-0", "+0", "007", " 1", "1 ", "1.0", "1e3", "", "\u0663", "\uff11", "0x1", "+", "-", "--1", "+-1", "1_0",
    "1,0", "true", "null", "NaN", "1\0", "1\ud83d", "'1'", '"1"', "0" * 40 + "1", "+" + "0" * 500, "9" * 40,
    "1" + "0" * 5000, *(str(sign * (1 << bits) + more) for sign in (1, -1) for bits in (31, 63) for more in (-1, 0, 1)),
]  # fmt: skip
TOKENS = [
    "1", "-0", "+1", "007", "1.0", "1.50", "1e3", "-1", "2147483648", "99999999999999999999", "true", "false", "null",
    "NaN", "Infinity", "{}", "[1]", '{"a":"}"}', '"\\u0031"', '"\\u002b\\u0031"', '"1\\/"', '"\\u0663"', '"\\ud83d"',
    '"\\q"', '"' + "\\u0030" * 25 + '1"', "1x", ".5", "1.",
]  # fmt: skip
SEND_FIELDS = {"queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "reconsumeTimes": "j"}
LONG_NAMES = SEND_FIELDS | {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "properties": "i",
    "unitMode": "k", "batch": "m",
}  # fmt: skip
PULL_FIELDS = [
    "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion",
]  # fmt: skip


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    kit.subscribe(kit.group(b"GROUP"), 1)
    for role in ("write", "dispatch", "read"):
        kit.start(role)
    return kit


@dataclass(frozen=True)
class Form:
    """A frame whose fields can be replaced by any text, or by any JSON."""

    frame: bytes

    def with_text(self, name: str, text: str) -> bytes:
        command = decode_frame(self.frame)
        if command.serialize_type is SerializeType.JSON:
            return self.with_json(name, json.dumps(text))
        command.ext_fields[name] = text
        return encode_frame(command)

    def with_json(self, name: str, token: str) -> bytes:
        command = decode_frame(self.frame)
        fields = {key: json.dumps(value) for key, value in command.ext_fields.items()} | {name: token}
        pairs = ",".join(f'"{key}":{value}' for key, value in fields.items())
        header = f'{{"code":{command.code},"opaque":{command.opaque},"extFields":{{{pairs}}}}}'.encode()
        return struct.pack(">iI", 4 + len(header) + len(command.body), len(header)) + header + command.body


def odd_frames(form: Form, name: str) -> list[bytes]:
    frames = [form.with_text(name, text) for text in TEXTS]
    if decode_frame(form.frame).serialize_type is SerializeType.JSON:
        frames += [form.with_json(name, token) for token in TOKENS]
    return frames


def send_form(code: int, serialise: SerializeType) -> Form:
    frame = send_frame("TopicA", b"body", serialise=serialise)
    command = decode_frame(frame)
    if code == 10:
        letters = command.ext_fields
        command.ext_fields = {name: letters[letter] for name, letter in LONG_NAMES.items()}
    command.code = code
    return Form(encode_frame(command))


def value_of(frame: bytes, attribute: str) -> int | None:
    """The value of a field as control reads it. None if it refuses the request with the name of the field."""
    try:
        command = decode_frame(frame)
        header = decode_send_header(command) if command.code in (10, 310, 320) else decode_request_header(command)
    except RequestError as error:
        assert error.code == 1 and error.field
        return None
    value = getattr(header, attribute)
    return 0 if value is None else int(value)


def outcome(kit: ReaderKit, client: Client, frame: bytes) -> object:
    """What the reader makes of the frame without control: what was stored, the answer, or "cold"."""
    before = int(kit.marks.append_offset)
    client.send(frame)
    taken: list[object] = []

    def look() -> bool:
        record = kit.inbox_take()
        if record is not None:
            kit.verdict(record[0], DROP)
            taken.append("cold")
        return bool(taken) or not client.is_quiet(0.001)

    wait_until(look, "an answer or a cold frame")
    if taken:
        return taken[0]
    answer = client.answer()
    if decode_frame(frame).code not in (10, 310, 320):
        return (answer.code, answer.ext_fields, answer.body)
    assert answer.code == 0, answer.remark
    ((_, _, view),) = kit.records(before)
    return {
        "queueId": view.queue_id, "sysFlag": view.sys_flag, "bornTimestamp": view.born_time_ms, "flag": view.flag,
        "reconsumeTimes": view.reconsume_times,
    }  # fmt: skip


def attribute_of(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("code", [10, 310, 320])
def test_numbers_of_sends(kit: ReaderKit, code: int, serialise: SerializeType) -> None:
    form, read = send_form(code, serialise), 0
    with connected(kit) as client:
        for name, letter in SEND_FIELDS.items():
            field = name if code == 10 else letter
            for frame in odd_frames(form, field):
                value, found = value_of(frame, attribute_of(name)), outcome(kit, client, frame)
                if value is None:
                    assert found == "cold", (frame, found)
                    continue
                plain = outcome(kit, client, form.with_text(field, str(value)))
                if isinstance(found, dict) and isinstance(plain, dict):
                    read += 1
                    if name == "queueId" and value < 0:  # the broker chooses
                        found["queueId"] = plain["queueId"] = value
                    assert found[name] == value, frame
                assert found == plain, frame
    assert read > 40


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("code", [11, 361])
def test_numbers_of_pulls(kit: ReaderKit, code: int, serialise: SerializeType) -> None:
    form, read = Form(pull_frame("TopicA", "GROUP", 0, code=code, serialise=serialise)), 0
    with connected(kit) as client:
        for _ in range(3):
            assert client.ask(send_frame("TopicA", b"body")).code == 0
        wait_until(lambda: kit.queue(1, 0).max_offset == 3, "the queue has all messages")
        for name in PULL_FIELDS:
            for frame in odd_frames(form, name):
                value, found = value_of(frame, attribute_of(name)), outcome(kit, client, frame)
                if value is None:
                    assert found == "cold", (frame, found)
                    continue
                read += found != "cold"
                assert found == outcome(kit, client, form.with_text(name, str(value))), frame
    assert read > 40


def approved(kit: ReaderKit, client: Client, frame: bytes) -> tuple[int, str | None]:
    """Code and remark of the answer if control approves the frame, at most once."""
    client.send(frame)
    redone: list[bool] = []

    def look() -> bool:
        record = None if redone else kit.inbox_take()
        if record is not None:
            kit.verdict(record[0], REDO)
            redone.append(True)
        return not client.is_quiet(0.001)

    wait_until(look, "an answer")
    answer = client.answer()
    return answer.code, answer.remark


TEXT_CASES = [
    ("b", '"Topic\\u0041"', 0, None), ("b", '"T\\u006fpic\\u0041"', 0, None), ("b", "1.50", 1, "field b"),
    ("b", "007", 1, "field b"), ("i", "12", 0, None), ("i", "true", 0, None), ("i", "1.50", 1, "field i"),
    ("i", '"k\\u0001\\ud83dz\\u0002"', 0, None), ("i", '"k\\u0001\\v\\u0002"', 0, None),
    ("i", '"k\\u0001\\x41"', 1, "field i"), ("m", '"\\u0066alse"', 0, None), ("a", "1.50", 0, None),
    ("e", '"' + "\\u0030" * 40 + '"', 1, "field e"), ("zone", "{}", 1, "an object or a list"),
    ("\\u0061", '"x"', 1, "whose name has escapes"),
]  # fmt: skip


@pytest.mark.parametrize("code", [310, 320])
def test_text_of_sends_is_read_or_refused_once_control_has_approved_it(kit: ReaderKit, code: int) -> None:
    form = send_form(code, SerializeType.JSON)
    with connected(kit) as client:
        for name, token, expected, named in TEXT_CASES:
            answer, remark = approved(kit, client, form.with_json(name, token))
            assert (answer, (named or "") in (remark or "")) == (expected, True), (name, token, remark)
        wide = form.with_json("x0", '"","' + '":"","'.join(f"x{n}" for n in range(1, 41)) + '":""')
        answer, remark = approved(kit, client, wide)
        assert answer == 1 and "more fields than the limit of 40" in (remark or "")
    properties = [
        data[view.properties_at : view.properties_at + view.properties_length] for _, data, view in kit.records()
    ]
    assert any(b"k\x01?z\x02" in text for text in properties)
    assert any(b"k\x01\v\x02" in text for text in properties)


def test_an_escaped_word_makes_a_batch(kit: ReaderKit) -> None:
    """Control reads the escapes, too: stored as a single message, the batch would be unreadable."""
    element = struct.pack(">iiiii", 26, 0, 0, 0, 4) + b"body" + struct.pack(">h", 0)
    command = decode_frame(send_form(320, SerializeType.JSON).frame)
    command.body = element
    with connected(kit) as client:
        assert client.ask(Form(encode_frame(command)).with_json("m", '"\\u0074RUE"')).code == 0
    ((_, data, view),) = kit.records()
    assert data[view.body_at : view.body_at + view.body_length] == b"body"


@pytest.mark.parametrize(
    ("name", "token", "expected", "named"),
    [
        ("topic", '"Topic\\u0041"', 0, None), ("consumerGroup", '"\\u0047ROUP"', 0, None),
        ("expressionType", '"T\\u0041G"', 0, None), ("subscription", '"\\u002a"', 0, None),
        ("topic", "1.50", 1, "field topic"), ("consumerGroup", "007", 1, "field consumerGroup"),
        ("subscription", "1.50", 1, "field subscription"), ("zone", "[]", 1, "an object or a list"),
    ],
)  # fmt: skip
def test_text_of_pulls_is_read_or_refused_once_control_has_approved_it(
    kit: ReaderKit, name: str, token: str, expected: int, named: str | None
) -> None:
    form = Form(pull_frame("TopicA", "GROUP", 0, sys_flag=4, suspend_ms=0, subscription="*"))
    with connected(kit) as client:
        assert client.ask(send_frame("TopicA", b"body")).code == 0
        wait_until(lambda: kit.queue(1, 0).max_offset == 1, "the queue has the message")
        answer, remark = approved(kit, client, form.with_json(name, token))
    assert (answer, (named or "") in (remark or "")) == (expected, True), remark


def test_a_pull_without_a_version_of_its_subscription(kit: ReaderKit) -> None:
    command = decode_frame(pull_frame("TopicA", "GROUP", 0))
    del command.ext_fields["subVersion"]
    with connected(kit) as client:
        assert client.ask(send_frame("TopicA", b"body")).code == 0
        wait_until(lambda: kit.queue(1, 0).max_offset == 1, "the queue has the message")
        assert client.ask(encode_frame(command)).code == 0
