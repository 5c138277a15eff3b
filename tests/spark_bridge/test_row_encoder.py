"""The C kernel makes of a row what the SDK makes of the same message; what cannot be a message is named."""

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ringmq.native import ffi, lib
from ringmq.remoting.batch import decode_batch
from ringmq.spark_bridge.sink.errors import RowError
from ringmq.spark_bridge.sink.row_encoder import (
    PROPERTIES_BYTES_MAX,
    EncodableRows,
    RowEncoder,
    encode_plain,
    sharding_hashes,
)
from ringmq.store.record import java_hash

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema([("value", pa.binary()), ("key", pa.string()), ("tags", pa.string()), ("headers", HEADERS)])
MAX = 4 << 20


def encode(batch: pa.RecordBatch, room: int = 1 << 20, index: list[int] | None = None) -> bytes:
    encoder, buffer = RowEncoder(), bytearray(room)
    encoder.start_batch()
    chosen = np.array(range(batch.num_rows) if index is None else index, np.int32)
    done = encoder.encode(EncodableRows(batch, MAX), chosen, buffer, 0)
    assert done.rows == len(chosen)
    return bytes(buffer[: done.bytes_used])


def elements(body: bytes) -> list[tuple[bytes, dict[str, str]]]:
    """(body, properties) of each element, by an independent walk."""
    found, at = [], 0
    while at < len(body):
        size, _, _, _, length = struct.unpack_from(">iIiii", body, at)
        text = body[at + 22 + length : at + size].decode()
        assert struct.unpack_from(">h", body, at + 20 + length)[0] == size - 22 - length
        pairs = dict(pair.split("\x01") for pair in text.split("\x02")[:-1])
        found.append((body[at + 20 : at + 20 + length], pairs))
        at += size
    return found


def row(chance: random.Random) -> dict[str, Any]:
    def word() -> str:
        return "".join(chance.choice("aé漢😀 =&") for _ in range(chance.randrange(1, 9)))

    headers = [{"key": f"h{n}", "value": word().encode()} for n in range(chance.randrange(4))]
    return {
        "value": chance.randbytes(chance.randrange(1, 300)),
        "key": word() if chance.random() < 0.7 else None,
        "tags": word() if chance.random() < 0.7 else None,
        "headers": headers if chance.random() < 0.8 else None,
    }


@pytest.mark.parametrize("seed", range(20))
def test_rows_equal_what_the_sdk_makes(seed: int) -> None:
    chance = random.Random(seed)
    rows = [row(chance) for _ in range(50)]
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    begin = chance.randrange(20)
    batch, kept = whole.slice(begin, 25), rows[begin : begin + 25]  # arrays with an offset and cut bitmaps
    index = sorted(chance.sample(range(25), 15))
    body = encode(batch, index=index)
    keys = [pairs["UNIQ_KEY"] for _, pairs in elements(body)]
    assert len(set(keys)) == 15 and {len(key) for key in keys} == {32}
    assert body == encode_plain([kept[number] for number in index], keys, 0)


def test_strings_and_large_types_are_the_same_rows() -> None:
    plain = pa.RecordBatch.from_pylist(
        [{"value": "wört", "key": b"k"}], pa.schema([("value", pa.string()), ("key", pa.binary())])
    )
    large = plain.cast(pa.schema([("value", pa.large_string()), ("key", pa.large_binary())]))
    assert [e[0] for e in elements(encode(plain))] == [e[0] for e in elements(encode(large))] == ["wört".encode()]


def test_uniq_keys_stay_distinct_beyond_what_a_millisecond_has() -> None:
    count = 70_000
    batch = pa.record_batch({"value": pa.array([b"x"] * count)})
    keys = {pairs["UNIQ_KEY"] for _, pairs in elements(encode(batch, 8 << 20))}
    assert len(keys) == count


def test_a_full_buffer_stops_at_a_whole_row_and_says_what_the_next_needs() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 100] * 10)})
    size = len(encode(batch)) // 10
    encoder, buffer = RowEncoder(), bytearray(3 * size + size // 2)
    encoder.start_batch()
    rows = EncodableRows(batch, MAX)
    done = encoder.encode(rows, np.arange(10, dtype=np.int32), buffer, 0)
    assert (done.rows, done.bytes_used, done.room_needed) == (3, 3 * size, size)
    assert not any(buffer[done.bytes_used :])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"value": None}, ("row 1", "value", "at least 1 byte")),
        ({"value": b""}, ("row 1", "value", "at least 1 byte")),
        ({"value": b"x" * (MAX + 1)}, ("row 1", "value", str(MAX + 1), "limit")),
        ({"key": "a\x01b"}, ("row 1", "key", "byte 0, 1 or 2")),
        ({"tags": "a\x02b"}, ("row 1", "tags", "byte 0, 1 or 2")),
        ({"key": "k" * PROPERTIES_BYTES_MAX}, ("row 1", "key", str(PROPERTIES_BYTES_MAX))),
        ({"headers": [{"key": "h", "value": b"\0"}]}, ("row 1", "headers", "byte 0, 1 or 2")),
        ({"headers": [{"key": "h", "value": b""}]}, ("row 1", "headers", "null or empty")),
        ({"headers": [{"key": "", "value": b"v"}]}, ("row 1", "headers", "null or empty")),
        ({"headers": [{"key": "h", "value": b"v" * 40_000}]}, ("row 1", "headers", str(PROPERTIES_BYTES_MAX))),
        ({"headers": [{"key": "UNIQ_KEY", "value": b"v"}]}, ("headers", "UNIQ_KEY")),
        ({"headers": [{"key": "DELAY", "value": b"3"}]}, ("headers", "DELAY")),
    ],
)
def test_rows_that_cannot_be_messages_are_named(values: dict[str, Any], words: tuple[str, ...]) -> None:
    good = {"value": b"good", "key": None, "tags": None, "headers": None}
    batch = pa.RecordBatch.from_pylist([good, {**good, **values}], SCHEMA)
    with pytest.raises(RowError) as caught:
        encode(batch, 8 << 20)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_null_header_is_none_whatever_its_buffers_hold() -> None:
    pairs = [pa.array(["hidden"]), pa.array([b"value"])]
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays(pairs, ["key", "value"], mask=pa.array([True]))
    )
    with pytest.raises(RowError, match="a header's key and value must not be null or empty"):
        encode(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}))


def test_properties_that_leave_no_room_for_a_value_are_named_with_a_limit_of_zero() -> None:
    batch = pa.record_batch({"value": pa.array([b"v"]), "key": pa.array(["k" * 500])})
    encoder = RowEncoder()
    encoder.start_batch()
    with pytest.raises(RowError, match=r"1 bytes are over the limit of 0$"):
        encoder.encode(EncodableRows(batch, 100), np.zeros(1, np.int32), bytearray(1000), 0)


def test_write_takes_the_bodies() -> None:
    """The same judgement that the broker has of a batch."""
    batch = pa.RecordBatch.from_pylist([row(random.Random(5)) for _ in range(20)], SCHEMA)
    body = bytearray(encode(batch))
    record, size = ffi.new("struct rmq_record_in *"), ffi.new("struct rmq_batch_size *")
    record.topic_length = 10
    assert lib.rmq_batch_measure(ffi.from_buffer("uint8_t *", body), len(body), MAX, record, size) == 0
    assert size.messages == 20
    assert len(decode_batch(bytes(body))) == 20


def test_sharding_hashes_are_javas() -> None:
    texts = ["", "a", "order-17", "ключ", "😀", None]
    expected = [0 if text is None else java_hash(text) for text in texts]
    assert sharding_hashes(pa.array(texts)).tolist() == expected
