"""From stored bytes to what the application sees; and the inbox between pulls and the application."""

import sys

import pytest

from ringmq.client import Compression, Message, MessageExt, MessageQueue
from ringmq.client.compression import compress_body
from ringmq.client.consuming.pull_decoding import (
    before_damage,
    queue_of,
    read_answer,
    read_messages,
    unpacked,
    unpacked_front,
)
from ringmq.remoting.batch import encode_batch
from ringmq.remoting.message import encode_message
from ringmq.remoting.subscription import build_subscription

QUEUE = MessageQueue("T", "b", 3)
ALL = build_subscription("T", "*")


def stored(body: bytes = b"x", offset: int = 0, **more: object) -> MessageExt:
    defaults: dict[str, object] = {"queue_id": 3, "queue_offset": offset}
    return MessageExt("T", body, **(defaults | more))  # type: ignore[arg-type]


def test_tags_that_only_collide_are_dropped() -> None:
    # "Aa" and "BB" have the same hash, so the broker lets both pass
    body = b"".join(
        encode_message(stored(tag.encode(), i, properties={"TAGS": tag})) for i, tag in enumerate(("Aa", "BB"))
    )
    messages = read_messages(body, QUEUE, 0, build_subscription("T", "BB"))
    assert [m.body for m in messages] == [b"BB"]


@pytest.mark.parametrize("algorithm", list(Compression))
def test_bodies_wait_compressed_and_are_decompressed_into_a_copy(algorithm: Compression) -> None:
    packed, bits = compress_body(b"y" * 5000, algorithm)
    (waiting,) = read_messages(encode_message(stored(packed, sys_flag=bits)), QUEUE, 0, ALL)
    message = unpacked(waiting)
    assert (message.body, message.sys_flag) == (b"y" * 5000, 0)
    assert (waiting.body, waiting.sys_flag) == (packed, bits)
    assert queue_of(message) == queue_of(waiting) == QUEUE


@pytest.mark.parametrize("algorithm", list(Compression))
def test_a_body_that_cannot_be_decompressed_is_handed_over_marked(
    algorithm: Compression, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.client.compression.DECOMPRESSED_BYTES_MAX", 4000)
    for body, bits in ((b"junk", 1 | algorithm << 8), compress_body(bytes(5000), algorithm)):
        caplog.clear()
        waiting = encode_message(stored(body, 7, sys_flag=bits, properties={"UNIQ_KEY": "an-id"}))
        message = unpacked(read_messages(waiting, QUEUE, 0, ALL)[0])
        assert (message.body, message.sys_flag) == (body, bits)
        (line,) = caplog.messages
        assert "message an-id of topic T" in line and "offset 7" in line and f"{len(body)} bytes" in line
    assert line.endswith("more than the limit of 4000 bytes when decompressed")


def test_a_missing_package_stops_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, bits = compress_body(b"y" * 5000, Compression.ZSTD)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(RuntimeError, match="pip install zstandard"):
        read_messages(encode_message(stored(packed, sys_flag=bits)), QUEUE, 0, ALL)
    assert read_messages(encode_message(stored(packed, sys_flag=bits & ~1)), QUEUE, 0, ALL)


def test_messages_are_unpacked_until_they_have_so_many_bytes() -> None:
    packed, bits = compress_body(bytes(1000), Compression.ZLIB)
    waiting = [stored(packed, offset, sys_flag=bits) for offset in range(9)]
    assert [len(message.body) for message in unpacked_front(waiting, 2001)] == [1000] * 3
    assert len(unpacked_front(waiting, 1)) == 1
    plain = [stored(bytes(1000), offset) for offset in range(9)]
    assert unpacked_front(plain, 1) is plain, "they are in memory as they are"
    assert len(unpacked_front(plain[:2] + waiting, 2001)) == 3


def test_inner_batches_are_split_and_read_from_the_middle() -> None:
    body = encode_batch([Message("T", b"%d" % i, {"TAGS": "t"}) for i in range(4)])
    batch = stored(body, 10, sys_flag=0xC0, properties={"INNER_NUM": "4", "INNER_BASE": "10"})
    messages = read_messages(encode_message(batch), QUEUE, 12, build_subscription("T", "t"))
    assert [(m.queue_offset, m.body, m.sys_flag) for m in messages] == [(12, b"2", 0), (13, b"3", 0)]


@pytest.mark.parametrize("algorithm", [None, Compression.ZLIB])
def test_inner_batches_are_split_up_to_a_bound(algorithm: Compression | None) -> None:
    body = encode_batch([Message("T", bytes(1000)) for i in range(4)])
    packed, bits = (body, 0) if algorithm is None else compress_body(body, algorithm)
    answer = b"".join(
        encode_message(stored(packed, at, sys_flag=0xC0 | bits, properties={"INNER_BASE": str(at)}))
        for at in range(0, 40, 4)
    )
    messages, readable_to = read_answer(answer, QUEUE, 1, ALL, split_bytes_max=8000)
    assert ([message.queue_offset for message in messages], readable_to) == (list(range(1, 8)), 8)
    assert len(read_answer(answer, QUEUE, 0, ALL, split_bytes_max=1 << 20)[0]) == 40
    behind = encode_message(stored(packed, 90, sys_flag=0xC0 | bits, properties={"INNER_BASE": "0"}))
    assert read_answer(behind * 9, QUEUE, 90, ALL, split_bytes_max=1) == ([], 91), "reading never steps back"


def test_an_inner_batch_of_too_many_messages_is_handed_over_whole(caplog: pytest.LogCaptureFixture) -> None:
    packed, bits = compress_body(encode_batch([Message("T", b"")]) * 32_768, Compression.ZLIB)
    (message,) = read_messages(encode_message(stored(packed, 0, sys_flag=0xC0 | bits)), QUEUE, 0, ALL)
    assert message.body == packed
    assert "more than 32767 messages" in caplog.text


@pytest.mark.parametrize("base", ["x", "-1", str(1 << 70), str((1 << 56) - 2), "9" * 5000])
def test_an_inner_batch_with_an_impossible_offset_is_handed_over_whole(
    base: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = encode_batch([Message("T", b"%d" % i, {}) for i in range(4)])
    batch = stored(body, 10, sys_flag=0xC0, properties={"INNER_NUM": "4", "INNER_BASE": base})
    (message,) = read_messages(encode_message(batch), QUEUE, 10, ALL)
    assert (message.queue_offset, message.body) == (10, body)
    assert "inner batch at" in caplog.text


def test_messages_from_the_retry_topic_carry_their_first_topic() -> None:
    retry = MessageQueue("%RETRY%g", "b", 0)
    again = MessageExt("%RETRY%g", b"", {"RETRY_TOPIC": "T"}, queue_id=0, reconsume_times=1)
    (message,) = read_messages(encode_message(again), retry, 0, build_subscription("%RETRY%g", "*"))
    assert (message.topic, message.broker_name) == ("T", "b")
    assert queue_of(message) == retry
    assert queue_of(MessageExt("T", b"", broker_name="b")) == MessageQueue("T", "b", 0)


def test_dead_letters_are_of_the_queue_they_were_read_from() -> None:
    for topic, stored_topic in (("%DLQ%g", "%DLQ%ns%g"), ("%DLQ%ns%g", "%DLQ%ns%g")):
        dead = MessageExt(stored_topic, b"", {"RETRY_TOPIC": "ns%T"}, queue_id=0, reconsume_times=1)
        queue = MessageQueue(topic, "b", 0)
        (message,) = read_messages(encode_message(dead), queue, 0, build_subscription(topic, "*"), "ns")
        assert (message.topic, queue_of(message)) == ("%DLQ%g", queue)


def test_a_copied_property_makes_no_message_of_the_retry_topic() -> None:
    copied = encode_message(stored(properties={"RETRY_TOPIC": "U"}))
    (message,) = read_messages(copied, QUEUE, 0, ALL)
    assert (message.topic, queue_of(message)) == (QUEUE.topic, QUEUE)


def test_what_is_cut_off_is_asked_for_again_and_then_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    cut = encode_message(stored(b"b", 5))[:-3]
    messages, readable_to = read_answer(encode_message(stored(b"a", 4)) + cut, QUEUE, 4, ALL)
    assert ([message.body for message in messages], readable_to) == ([b"a"], 5)
    assert "behind offset 5 cannot be read" in caplog.text
    assert read_answer(cut, QUEUE, 5, ALL) == ([], 6)
    assert read_answer(b"\0", QUEUE, 6, ALL) == ([], 7)


def test_of_records_that_cannot_be_read_only_they_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    records = [bytearray(encode_message(stored(b"%d" % i, i))) for i in range(4)]
    records[0][4:8] = b"junk"  # its magic
    records[2][84:88] = b"\x7f\xff\xff\xff"  # its body's length
    messages, readable_to = read_answer(b"".join(records), QUEUE, 0, ALL)
    assert ([message.body for message in messages], readable_to) == ([b"1", b"3"], None)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert ["at or behind offset 0" in errors[0], "at or behind offset 2" in errors[1]] == [True, True]


def test_a_body_with_a_wrong_crc_is_marked_and_delivered_alone() -> None:
    packed, bits = compress_body(b"y" * 500, Compression.ZLIB)
    batch = encode_batch([Message("T", b"%d" % i, {}) for i in range(2)])
    records = [
        bytearray(encode_message(message))
        for message in (
            stored(b"a", 0), stored(packed, 1, sys_flag=bits), stored(b"c", 2), stored(b"", 3),
            stored(batch, 4, sys_flag=0xC0, properties={"INNER_NUM": "2", "INNER_BASE": "4"}),
        )
    ]  # fmt: skip
    for record in (records[1], records[3], records[4]):
        record[11] ^= 1  # of the CRC: an empty body has none
    found = read_answer(b"".join(records), QUEUE, 0, ALL, check_crc=True)[0]
    assert [message.is_body_damaged for message in found] == [False, True, False, False, True, True]
    assert unpacked(found[1]).body == b"y" * 500 and unpacked(found[1]).is_body_damaged
    parts = []
    while found:
        part = before_damage(found)
        found = found[len(part) :]
        parts.append([message.queue_offset for message in part])
    assert parts == [[0], [1], [2, 3], [4], [5]]
    assert not any(message.is_body_damaged for message in read_messages(b"".join(records), QUEUE, 0, ALL))
