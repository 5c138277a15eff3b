"""Numbers that clients write as text: hostile text is no number, in C as in Python, and nothing raises."""

import struct
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.dispatch_backlog import dispatch_backlog
from ringmq.store.message_store import MessageStore
from ringmq.store.record_numbers import decimal, message_count, small_number
from ringmq.store.recovery import survey
from tests.store.test_torn_tail import FILE_BYTES, encode, small_config

HOSTILE = ["x", "²", "٣", "1_0", " 1", "1 ", "", "-", "+", "9" * 5000, "1e9", "-5", "2147483648", "NaN", "0x10"]
texts = st.one_of(st.sampled_from(HOSTILE), st.integers().map(str), st.text("+-0123456789", max_size=14))


def count_in_c(properties: bytes, sys_flag: int, is_batch: bool) -> int:
    keys = ffi.new("struct rmq_dispatch_keys *")
    kept = ffi.from_buffer(properties)
    lib.rmq_dispatch_keys_find(kept, len(properties), keys)
    return int(lib.rmq_message_count(keys, sys_flag, is_batch))


@settings(max_examples=200)
@given(texts, st.sampled_from([0, layout.INNER_BATCH]), st.booleans())
@example("0" * 5000 + "7", layout.INNER_BATCH, True)
@example("-0", layout.INNER_BATCH, True)
@example("+2147483647", layout.INNER_BATCH, False)
def test_c_and_python_count_the_same_messages(text: str, sys_flag: int, is_batch: bool) -> None:
    raw = f"INNER_NUM\x01{text}\x02".encode()
    ours = message_count(records.parse_properties(raw), sys_flag, is_batch_queue=is_batch)
    assert ours == count_in_c(raw, sys_flag, is_batch)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_no_number(text: str) -> None:
    assert small_number(text) in (0, -5)
    assert decimal(text) == (2147483648 if text == "2147483648" else None)


def test_digits_are_a_number_of_63_bits() -> None:
    assert [decimal("007"), decimal("0"), decimal(str((1 << 63) - 1)), decimal(str(1 << 63))] == [
        7, 0, (1 << 63) - 1, None,
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_the_tail_of_a_store_is_read_past_a_hostile_number_of_messages(tmp_path: Path, text: str) -> None:
    raw = bytearray(encode(0, 0, b"body", f"INNER_NUM\x01{text}\x02".encode()))
    struct.pack_into(">I", raw, 36, layout.INNER_BATCH)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(raw).ljust(FILE_BYTES, b"\0"))
    (tmp_path / "abort").write_text("4711")
    config = small_config(tmp_path)
    (tail,) = dispatch_backlog(MessageStore(config), survey(config)).values()
    assert [record.messages for record in tail] == [1]


@pytest.mark.parametrize("offset", [0, 1 << 40, -1, -(1 << 63)])
def test_an_offset_id_names_the_place_that_the_record_names(offset: int) -> None:
    """A damaged record may name any place."""
    found = records.parse_record(encode(0, offset, b"body", b""))[1]
    assert found is not None and found.commit_log_offset == offset
    assert records.offset_message_id(found) == f"{0:016X}{offset % (1 << 64):016X}"
