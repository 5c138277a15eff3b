"""Stored messages, batches, properties, ids, tags and names."""

import struct
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.remoting.batch import BadBatch, decode_batch, encode_batch
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import Compression, compression_of, with_compression, without_compression
from ringmq.remoting.message import (
    BadMessage,
    Message,
    MessageExt,
    decode_message,
    decode_messages,
    encode_message,
)
from ringmq.remoting.message_id import UniqKeyGenerator, decode_offset_id, encode_offset_id
from ringmq.remoting.names import check_group, check_topic, is_system_topic
from ringmq.remoting.properties import decode_properties, encode_properties
from ringmq.remoting.subscription import build_subscription, java_string_hash, tags_code

V4 = ("127.0.0.1", 10911)
V6 = ("fe80::1", 10911)


def message(topic: str = "T", born: tuple[str, int] = V4, store: tuple[str, int] = V4) -> MessageExt:
    return MessageExt(
        topic=topic,
        body=b"body",
        properties={"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U"},
        flag=-3,
        queue_id=1,
        queue_offset=2,
        commit_log_offset=0x1234,
        born_timestamp_ms=1700000000000,
        born_host=born,
        store_timestamp_ms=1700000000001,
        store_host=store,
        reconsume_times=4,
        prepared_transaction_offset=5,
    )


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize(
    ("topic", "magic"),
    [("T", 0xDAA320A7), ("t" * 127, 0xDAA320A7), ("t" * 128, 0xDAA320AB), ("t" * 255, 0xDAA320AB)],
)
def test_stored_form_both_ways(born: tuple[str, int], store: tuple[str, int], topic: str, magic: int) -> None:
    data = encode_message(message(topic, born, store))
    assert int.from_bytes(data[4:8], "big") == magic
    decoded, end = decode_message(data + b"next", check_crc=True)
    assert end == len(data) == decoded.store_size
    assert (decoded.topic, decoded.born_host, decoded.store_host) == (topic, born, store)
    assert (decoded.flag, decoded.reconsume_times, decoded.prepared_transaction_offset) == (-3, 4, 5)
    assert (decoded.tags, decoded.keys, decoded.msg_id) == ("TagA", ["k1", "k2"], "U")
    assert encode_message(decoded) == data


def test_decoding_stops_at_the_first_bad_message() -> None:
    good = encode_message(message())
    for cut in range(len(good)):
        assert len(decode_messages(good + good[:cut])) == 1
        with pytest.raises(BadMessage):
            decode_message(good[:cut])
    assert decode_messages(b"") == []
    assert len(decode_messages(good * 3 + b"\0\0\0\x08junk")) == 3


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (0, -1, "total size"),
        (0, 90, "total size"),
        (0, 1 << 30, "total size"),
        (4, 0x0BD43194, "magic"),
        (84, -1, "body length"),
        (84, 1 << 30, "body length"),
    ],
)
def test_lying_lengths_are_named(at: int, value: int, field: str) -> None:
    data = bytearray(encode_message(message()))
    struct.pack_into(">i", data, at, value)
    with pytest.raises(BadMessage) as caught:
        decode_message(bytes(data))
    assert caught.value.field == field


def test_a_damaged_body_is_seen_only_when_asked() -> None:
    data = bytearray(encode_message(message()))
    data[88] ^= 1
    assert decode_message(bytes(data))
    with pytest.raises(BadMessage) as caught:
        decode_message(bytes(data), check_crc=True)
    assert caught.value.field == "body CRC"


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_body_that_leaves_no_room_for_what_follows(left: int) -> None:
    data = bytearray(encode_message(message(store=V6)))
    struct.pack_into(">i", data, 96, len(data) - 100 - left)
    with pytest.raises(BadMessage) as caught:
        decode_message(bytes(data))
    assert caught.value.field in ("total size", "topic length", "properties length")


@given(st.data())
def test_any_damage_decodes_or_raises(data: st.DataObject) -> None:
    damaged = bytearray(encode_message(message(store=V6)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_message(bytes(damaged))
    except BadMessage as error:
        assert error.field


def test_batches_both_ways() -> None:
    messages = [Message("T", b"x" * n, {"UNIQ_KEY": f"U{n}"}, flag=n) for n in range(4)]
    body = encode_batch(messages)
    elements = decode_batch(body)
    assert [(e.flag, e.body, e.properties.decode()) for e in elements] == [
        (m.flag, m.body, encode_properties(m.properties)) for m in messages
    ]
    assert decode_batch(b"") == []
    ends = {len(encode_batch(messages[:n])) for n in range(5)}
    for cut in range(len(body)):
        if cut in ends:
            assert len(decode_batch(body[:cut])) < 4
            continue
        with pytest.raises(BadBatch) as caught:
            decode_batch(body[:cut])
        assert caught.value.code == 13


def test_a_batch_element_with_too_many_properties_is_refused() -> None:
    with pytest.raises(BadBatch) as caught:
        encode_batch([Message("T", b"", {"p": "v" * 32768})])
    assert caught.value.limit == 32767


@given(st.binary(max_size=120))
def test_any_batch_decodes_or_raises(data: bytes) -> None:
    try:
        decode_batch(data)
    except BadBatch as error:
        assert error.field


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01\x02b\x02\x01c\x02d\x01e\x02", {"d": "e"}),
        ("\x02\x02a\x01b\x01c\x02", {"a": "b\x01c"}),
    ],
)
def test_properties_read_as_stock_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


def test_offset_ids() -> None:
    assert encode_offset_id("1.2.3.4", 10911, 0x1234) == "0102030400002A9F0000000000001234"
    assert decode_offset_id("0102030400002A9F0000000000001234") == ("1.2.3.4", 10911, 0x1234)
    long = encode_offset_id("fe80::1", 10911, 7)
    assert len(long) == 56
    assert decode_offset_id(long) == ("fe80::1", 10911, 7)
    for text in ("0102030400002A9F00000000000012", "Z" * 32):
        with pytest.raises(ValueError):
            decode_offset_id(text)


def test_unique_keys_follow_the_month_and_the_counter() -> None:
    generator = UniqKeyGenerator("192.0.2.2", 0x455A, 0x4E0E2F2A, counter=0xFFFF)
    start = int(datetime(2026, 11, 1).timestamp() * 1000)
    first, second = generator.next_key(start + 0x6684A5E2), generator.next_key(start)
    assert first == "C0000202455A4E0E2F2A6684A5E2FFFF"
    assert second.endswith("000000000000")
    december = int(datetime(2026, 12, 1).timestamp() * 1000)
    january = int(datetime(2027, 1, 1).timestamp() * 1000)
    assert generator.next_key(december - 1)[20:28] == f"{december - 1 - start:08X}"
    assert generator.next_key(december)[20:28] == "00000000"
    assert generator.next_key(january + 5)[20:28] == "00000005"
    assert len(UniqKeyGenerator("::1", 1, 2).next_key(start)) == 56


def test_unique_keys_of_one_millisecond_differ() -> None:
    generator = UniqKeyGenerator("127.0.0.1", 1, 2)
    assert len({generator.next_key(1700000000000) for _ in range(65536)}) == 65536


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("TagA", 2598919),
        ("TAG_ORDER_CREATED_EVENT", -1713161555),
        ("中文", 646394),
        ("", 0),
        (None, 0),
        ("😀", 1772899),
    ],
)
def test_tag_hashes_are_javas(tag: str | None, code: int) -> None:
    assert tags_code(tag) == code


def test_subscriptions() -> None:
    assert build_subscription("T", None).is_all
    assert build_subscription("T", "*").is_all
    two = build_subscription("T", " TagA || TagB||", sub_version=9)
    assert (two.tags_set, two.sub_version) == ({"TagA", "TagB"}, 9)
    assert two.code_set == {2598919, java_string_hash("TagB")}
    assert java_string_hash("Aa") == java_string_hash("BB")
    collided = build_subscription("T", "Aa")
    assert collided.code_set == {java_string_hash("BB")}
    assert not collided.matches_tags("BB")
    assert collided.matches_tags("Aa")
    assert build_subscription("T", "a > 1", "SQL92").expression_type == "SQL92"


@pytest.mark.parametrize(("expression", "kind"), [("||", None), (" || ", "TAG"), ("", "SQL92"), (None, "SQL92")])
def test_subscriptions_that_name_nothing(expression: str | None, kind: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        build_subscription("T", expression, kind)
    assert caught.value.code == 23


@pytest.mark.parametrize("name", ["a", "%RETRY%g", "a|b-c_9", "t" * 127])
def test_legal_topics(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize("name", ["", "  ", "a b", "bad*", "ü", "a\n", "t" * 128, "%RETRY%" + "t" * 121])
def test_illegal_topics(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_topic(name)
    assert caught.value.code == 29
    assert "topic" in str(caught.value)


def test_group_names_are_shorter() -> None:
    check_group("g" * 120)
    with pytest.raises(RequestError) as caught:
        check_group("g" * 121)
    assert caught.value.limit == 120


def test_system_topics() -> None:
    assert is_system_topic("rmq_sys_anything")
    assert is_system_topic("TBW102")
    assert not is_system_topic("Orders")


@pytest.mark.parametrize("compression", list(Compression))
def test_compression_bits(compression: Compression) -> None:
    flag = with_compression(0x4, compression)
    assert compression_of(flag) is compression
    assert compression_of(0x4) is None
    assert without_compression(flag) == 0x4
