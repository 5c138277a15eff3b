"""Dispatch fields three ways: plain-Python reference, the kernel uncompiled and compiled, and the C core."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.native import ffi, lib
from ringmq.store.kernels.dispatch_fields import dispatch_fields, reference
from ringmq.store.message_store import MessageStore
from ringmq.store.record_values import is_topic_name
from tests.store.golden_stores import basic_config
from tests.store.test_torn_tail import encode


def _places(data: bytes) -> tuple[list[int], list[int]]:
    rows = ffi.new("struct rmq_record_view[]", 8192)
    at, reason = ffi.new("uint64_t *"), ffi.new("int *")
    count = lib.rmq_log_scan(ffi.from_buffer(data), 0, len(data), 0, 1, rows, 8192, at, reason)
    return [rows[i].position for i in range(count)], [rows[i].total_size for i in range(count)]


def c_fields(data: bytes) -> tuple[list[int], list[int], list[int]]:
    table = ffi.gc(lib.rmq_queue_table_new(ffi.new("uint64_t[2]", [1, 2])), lib.rmq_queue_table_free)
    rows, hashes = ffi.new("struct rmq_log_row[]", 8192), ffi.new("int32_t[]", 65536)
    count, at, reason = ffi.new("size_t *"), ffi.new("uint64_t *"), ffi.new("int *")
    got = lib.rmq_log_table(ffi.from_buffer(data), 0, len(data), 0, table, ffi.NULL, rows, 8192, hashes, 65536, count,
                            at, reason)  # fmt: skip
    return [rows[i].tags_code for i in range(got)], [rows[i].key_count for i in range(got)], list(hashes[0 : count[0]])


def _assert_equal(data: bytes, *, plain: bool) -> None:
    positions, sizes = _places(data)
    wanted = reference(data, positions, sizes)
    assert c_fields(data) == tuple(wanted)
    array = np.frombuffer(data, np.uint8)
    got = dispatch_fields(array, np.array(positions, np.int64), len(wanted[2]), plain=plain)
    assert tuple(column.tolist() for column in got) == tuple(wanted)


def test_golden_records(golden_basic: Path, expected: dict[str, Any]) -> None:
    store = MessageStore(basic_config(golden_basic))
    end = expected["commitLogMaxOffset"]
    for start in store.commit_log.files.starts:
        rest = store.commit_log.files.rest(start, end)
        assert rest is not None
        positions, sizes = [], []
        for offset, size in store.commit_log.places(start, min(end, start + 1048576)):
            positions.append(offset - start)
            sizes.append(size)
        wanted = reference(rest, positions, sizes)
        array = np.frombuffer(rest, np.uint8)
        got = dispatch_fields(array, np.array(positions, np.int64), len(wanted[2]))
        assert tuple(column.tolist() for column in got) == tuple(wanted)


text = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=12)
words = st.lists(text, max_size=5).map(" ".join)
topics = text.filter(lambda name: is_topic_name(name.encode()))
pairs = st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "", "TAG"]), words), max_size=8)


@settings(max_examples=60)
@given(st.lists(st.tuples(pairs, topics, st.binary(max_size=40)), min_size=1, max_size=4))
def test_any_properties(records: list[tuple[list[tuple[str, str]], str, bytes]]) -> None:
    data = b""
    for i, (properties, topic, body) in enumerate(records):
        raw = "".join(f"{name}\x01{value}\x02" for name, value in properties).encode()
        data += encode(i, len(data), body, raw, topic.encode())
    _assert_equal(data, plain=True)
    _assert_equal(data, plain=False)


@settings(max_examples=60)
@given(st.binary(max_size=40))
def test_malformed_utf8_is_hashed_alike_by_kernel_and_c(junk: bytes) -> None:
    tag = junk.translate(None, b"\x00\x01\x02")
    data = encode(0, 0, b"", b"TAGS\x01" + tag + b"\x02")
    tags_codes, _, _ = dispatch_fields(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), 8)
    assert tags_codes.tolist() == c_fields(data)[0]
    if b"\xed" not in tag:  # Python takes a surrogate's three bytes one by one, Java and we together
        assert tags_codes.tolist() == reference(data, [0], [len(data)])[0]


def test_too_many_keys_is_an_error_not_an_overrun() -> None:
    data = encode(0, 0, b"", b"KEYS\x01a b c\x02")
    with pytest.raises(ValueError, match="more than 2 keys"):
        dispatch_fields(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), 2)
