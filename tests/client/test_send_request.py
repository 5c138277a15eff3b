"""What a send puts on the wire: the fast header equals the general one, limits and rules name what they refuse."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BodyRules,
    Compression,
    Message,
    MessageExt,
    MessageQueue,
    SendResult,
    SendStatus,
    compose_message,
)
from ringmq.client.compression import LEVELS, compress_body, decompress_body
from ringmq.client.producing.send_request import TopicHeader, prepare_batch, prepare_message
from ringmq.remoting.batch import decode_batch, encode_batch
from ringmq.remoting.codes import RequestCode, SerializeType
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.properties import decode_properties

RULES = BodyRules()


def next_key(now_ms: int) -> str:
    return f"KEY{now_ms}"


def test_the_fast_header_is_the_general_one() -> None:
    message = compose_message("T中", b"body", tags="tag", keys=["k1", "k2"], properties={"p": "ü"}, flag=-7)
    message.topic = "T"
    request = prepare_message(message, next_key, 1234, RULES)
    frame = TopicHeader("group", "T").encode(request, 3, 99)
    general = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2,
        {
            "a": "group", "b": "T", "c": "TBW102", "d": "4", "j": "0", "k": "false", "m": "false", "e": "3", "f": "0",
            "g": "1234", "h": "-7", "i": request.properties.decode(),
        },
        b"body",
        opaque=99,
        serialize_type=SerializeType.ROCKETMQ,
    )  # fmt: skip
    assert frame == encode_frame(general)


def test_the_fast_batch_body_is_the_general_one() -> None:
    messages = [compose_message("T", b"x" * i, tags="ü", flag=i) for i in range(5)]
    assert prepare_batch(messages, next_key, 5, RULES).body == encode_batch(messages)


def test_one_way_and_batch_differ_in_code_flag_and_mark() -> None:
    batch = prepare_batch([Message("T", b"1"), Message("T", b"22")], next_key, 5, RULES)
    (command,) = FrameDecoder().feed(TopicHeader("g", "T").encode(batch, 0, 1, oneway=True))
    assert (command.code, command.is_oneway, command.ext_fields["m"]) == (320, True, "true")
    assert [element.body for element in decode_batch(command.body)] == [b"1", b"22"]
    assert decode_properties(command.ext_fields["i"]) == {"WAIT": "true"}, "brokers store these behind each message's"


def test_a_message_gets_an_id_once_and_keeps_it() -> None:
    message = Message("T", b"")
    first = prepare_message(message, next_key, 1, RULES)
    second = prepare_message(message, next_key, 2, RULES)
    assert first.message_ids == second.message_ids == ("KEY1",)
    assert decode_properties(first.properties.decode()) == {"UNIQ_KEY": "KEY1", "WAIT": "true"}


@pytest.mark.parametrize("algorithm", [Compression.ZLIB, Compression.ZSTD, Compression.LZ4])
def test_bodies_from_4096_bytes_on_are_compressed(algorithm: Compression) -> None:
    rules = BodyRules(compression=algorithm)
    small = prepare_message(Message("T", b"x" * 4095), next_key, 1, rules)
    large = prepare_message(Message("T", b"x" * 4096), next_key, 1, rules)
    assert (small.sys_flag, small.body) == (0, b"x" * 4095)
    assert large.sys_flag == 1 | algorithm << 8
    assert decompress_body(large.body, large.sys_flag) == b"x" * 4096


@pytest.mark.parametrize(
    ("algorithm", "level", "limits"),
    [
        (Compression.ZLIB, 10, "ZLIB must be -1 to 9"),
        (Compression.ZLIB_OLD, -2, "-1 to 9"),
        (Compression.ZSTD, 23, "22"),
    ],
)
def test_a_level_that_no_body_could_be_compressed_with_is_refused(
    algorithm: Compression, level: int, limits: str
) -> None:
    with pytest.raises(ValueError, match=f"compression_level of .*{limits}, not {level}"):
        BodyRules(compression=algorithm, compression_level=level)


@pytest.mark.parametrize(("algorithm", "limits"), LEVELS.items())
def test_every_level_up_to_the_limits_compresses(algorithm: Compression, limits: tuple[int, int]) -> None:
    for level in limits:
        body, flag = compress_body(b"x" * 5000, algorithm, level)
        assert decompress_body(body, flag) == b"x" * 5000
    with pytest.raises(Exception):  # noqa: B017  # each library has its own
        compress_body(b"x" * 5000, algorithm, limits[1] + 1)


def test_compression_can_be_off_and_batches_are_never_compressed() -> None:
    plain = prepare_message(Message("T", b"x" * 9000), next_key, 1, BodyRules(compression=None))
    batch = prepare_batch([Message("T", b"x" * 9000)], next_key, 1, RULES)
    assert plain.sys_flag == batch.sys_flag == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("", b""), "blank"),
        (Message("a b", b""), "illegal characters"),
        (Message("x" * 128, b""), "limit is 127"),
        (Message("T", b"x" * (4 * 1024 * 1024 + 1)), "4194304"),
        (Message("T", b"", {"p": "x" * 32767}), "32767"),
        (Message("T", b"", {"p": "a\x01b"}), "U\\+0001"),
        (Message("T", b"", {"p": "a\x02b"}), "U\\+0002"),
    ],
)
def test_bad_messages_are_refused_before_anything_is_sent(message: Message, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        prepare_message(message, next_key, 1, RULES)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "at least one"),
        ([Message("A", b""), Message("B", b"")], "one topic"),
        ([Message("%RETRY%g", b"")], "retry topic"),
        ([Message("A", b"", {"DELAY": "3"})], "delayed"),
        ([Message("A", b"", {"TRAN_MSG": "true"})], "transactional"),
        ([Message("A", b""), Message("A", b"", {"WAIT": "false"})], "WAIT"),
        ([Message("A", b"x" * 3_000_000), Message("A", b"x" * 3_000_000)], "4194304"),
    ],
)
def test_bad_batches_are_refused(messages: list[Message], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        prepare_batch(messages, next_key, 1, RULES)


@pytest.mark.parametrize("body", ["text", "text" * 2000, None, 5])
def test_a_body_that_is_no_bytes_is_named(body: Any) -> None:
    wrong = Message("T", body)
    for prepare in (lambda: prepare_message(wrong, next_key, 1, RULES),
                    lambda: prepare_batch([Message("T", b"x"), wrong], next_key, 1, RULES)):  # fmt: skip
        with pytest.raises(TypeError, match=rf"a body is bytes, not {type(body).__name__}: text has to be encoded"):
            prepare()


def test_keys_hold_no_blank() -> None:
    with pytest.raises(ValueError, match="blank"):
        compose_message("T", b"", keys=["a b"])


def test_a_result_prints_as_one_line() -> None:
    result = SendResult(SendStatus.OK, MessageQueue("Orders", "broker-a", 1), 42, ("C0A8",), ("7F00",))
    assert repr(result) == "<SendResult OK Orders/broker-a/1 offset 42 C0A8>"
    batch = replace(result, status=SendStatus.FLUSH_DISK_TIMEOUT, message_ids=("A", "B"), recall_handle="h")
    assert repr(batch) == "<SendResult FLUSH_DISK_TIMEOUT Orders/broker-a/1 offset 42 2 messages with recall handle>"
    assert repr(replace(result, transaction_id="T")).endswith("C0A8 transaction T>")


@pytest.mark.parametrize("kind", [Message, MessageExt])
def test_the_page_of_fields_has_every_field(kind: type) -> None:
    page = (Path(__file__).parents[2] / "docs" / "messages.md").read_text()
    shown = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    properties = {name for name, value in vars(kind).items() if isinstance(value, property)}
    assert {field.name for field in fields(kind)} | properties <= shown
    assert shown <= {name for name in dir(MessageExt) if not name.startswith("_")} | {"body", "topic", "properties"}
