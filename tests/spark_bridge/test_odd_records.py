"""Records of every kind, made byte by byte, by both walks, against the independent decoder."""

import tracemalloc
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from ringmq.client import Message
from ringmq.remoting.batch import encode_batch
from ringmq.spark_bridge.fallback_record import FallbackRecordError, StoredRecord, messages_of
from tests.spark_bridge import made_store as made
from tests.spark_bridge.made_store import MadeStore, inner_batch_bytes, properties_bytes
from tests.spark_bridge.plain_decoder import log_rows
from tests.spark_bridge.reading import BROKER, Spans, in_queue_order, rows_of, slice_of

TEXT = b"many words, many words, many words; " * 40


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    made_store = MadeStore(tmp_path / "store", file_bytes=64 << 10, units_per_file=5, batch_topics=frozenset({"B"}))
    append = made_store.append
    append(body=b"plain", properties=properties_bytes({"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "U1", "shop": "7"}))
    append(body=zlib.compress(TEXT), sys_flag=made.COMPRESSED)
    append(body=zlib.compress(TEXT), sys_flag=made.COMPRESSED | made.ZLIB, properties=properties_bytes({"a": "b"}))
    append(body=lz4.frame.compress(TEXT), sys_flag=made.COMPRESSED | made.LZ4)
    append(body=zstandard.compress(TEXT), sys_flag=made.COMPRESSED | made.ZSTD)
    append(body=b"half", sys_flag=made.PREPARED, is_dispatched=False)
    append(body=b"rolled back", sys_flag=made.ROLLBACK, is_dispatched=False)
    append(body=b"committed", sys_flag=made.COMMIT)
    append(body=b"", properties=properties_bytes({"only": "headers", "TAGS": "Köln"}))
    append(topic="long" * 40, queue_id=3, born_host="::1", store_host="fe80::1")
    append(properties=b"UNIQ_KEY\x01\xff\xfe\x02TAGS\x01ok\x02")
    append(properties=b"a\x01first\x02KEYS\x01\x02a\x01last\x02\x01none\x02none\x02end\x01open")
    append(body=bytes(30_000))
    for count in (1, 3):
        messages = [(f"inner {n}".encode(), properties_bytes({"KEYS": f"k{n}", "n": str(n)})) for n in range(count)]
        packed = inner_batch_bytes(messages)
        base = made_store.next_offsets.get(("B", 0), 0)
        known = properties_bytes({"INNER_NUM": str(count), "INNER_BASE": str(base)})
        append(topic="B", body=packed, sys_flag=made.INNER | made.UNWRAP, properties=known, messages=count)
        base = made_store.next_offsets["B", 0]
        known = properties_bytes({"INNER_NUM": str(count), "INNER_BASE": str(base)})
        flags = made.INNER | made.UNWRAP | made.COMPRESSED | made.ZSTD
        append(topic="B", body=zstandard.compress(packed), sys_flag=flags, properties=known, messages=count)
    append(body=bytes(range(256)) * 200)
    append(body=b"in the second file", stored_ms=made.STORED_MS + 5)
    return made_store


def everything(store: MadeStore) -> Spans:
    return {key: (0, end) for key, end in store.next_offsets.items()}


def log_parts(store: MadeStore, spans: Spans) -> list[Any]:
    borders = [*range(0, store.end, store.file_bytes), store.end]
    return [slice_of(store.root, spans, (begin, end)) for begin, end in pairwise(borders)]


@pytest.mark.parametrize(
    "how", [{}, {"batch_rows": 1}, {"batch_bytes": 700, "window_bytes": 700}, {"verify_crc": True}]
)
def test_both_walks_give_what_the_independent_decoder_gives(store: MadeStore, how: dict[str, Any]) -> None:
    expected = list(log_rows(store.root, BROKER))
    assert len(expected) == 13 + 8
    spans = everything(store)
    assert [row for part in log_parts(store, spans) for row in rows_of(part, **how)] == expected
    assert in_queue_order(rows_of(slice_of(store.root, spans), **how)) == in_queue_order(expected)


def test_half_and_rolled_back_messages_never_appear(store: MadeStore) -> None:
    bodies = [row["value"] for part in log_parts(store, everything(store)) for row in rows_of(part, ("value",))]
    assert b"committed" in bodies
    assert not {b"half", b"rolled back"} & set(bodies)


def test_text_that_is_no_utf8_is_replaced(store: MadeStore) -> None:
    rows = rows_of(slice_of(store.root, everything(store)), ("msg_id", "tags"))
    assert {"msg_id": "\ufffd\ufffd", "tags": "ok"} in rows


def test_of_equal_property_names_the_last_value_counts(store: MadeStore) -> None:
    rows = rows_of(slice_of(store.root, everything(store)), ("properties", "key"))
    assert {"properties": [("a", "last"), ("end", "open")], "key": None} in rows


def test_headers_are_what_the_application_has_set(store: MadeStore) -> None:
    headers = [row["headers"] for row in rows_of(slice_of(store.root, {("T", 0): (0, 3)}), ("headers",))]
    assert headers == [[{"key": "shop", "value": b"7"}], None, [{"key": "a", "value": b"b"}]]


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 3), (3, 7), (4, 5), (7, 8)])
def test_a_span_may_begin_and_end_inside_inner_batches(store: MadeStore, begin: int, end: int) -> None:
    expected = [row for row in log_rows(store.root, BROKER) if row["topic"] == "B" and begin <= row["offset"] < end]
    assert len(expected) == end - begin
    spans = {("B", 0): (begin, end)}
    assert rows_of(slice_of(store.root, spans)) == expected
    assert [row for part in log_parts(store, spans) for row in rows_of(part)] == expected
    assert rows_of(slice_of(store.root, spans), ("offset",)) == [{"offset": row["offset"]} for row in expected]


def test_records_of_an_earlier_topic_of_the_name_do_not_count(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    store.append(body=b"first life", is_dispatched=False)
    border = store.append(body=b"second life")
    part = slice_of(store.root, {("T", 0): (0, 1)}, (0, store.end), log_begin=border)
    assert [row["value"] for row in rows_of(part)] == [b"second life"]
    assert [row["value"] for row in rows_of(slice_of(store.root, {("T", 0): (0, 1)}))] == [b"second life"]


def test_the_newest_records_may_have_no_units(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    store.append()
    store.next_offsets["T", 0] = 1
    position = store.append(is_dispatched=False)
    part = slice_of(store.root, {("T", 0): (1, 2)}, (position, store.end))
    assert rows_of(part, ("offset", "partition")) == [{"offset": 1, "partition": 0}]


def test_inner_batches_are_split_one_message_at_a_time() -> None:
    body = encode_batch([Message("T", b"x")]) * 100_000
    record = StoredRecord(0, b"", "T", 0, 5, 0xC0, body, b"")
    tracemalloc.start()
    try:
        offsets = sum(message.queue_offset for message in messages_of(record, wants_body=True))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert offsets == sum(range(5, 100_005))
    cut = StoredRecord(0, b"", "T", 0, 5, 0xC0, body[:-1], b"")
    with pytest.raises(FallbackRecordError, match="lead out of it"):
        next(messages_of(cut, wants_body=True))
