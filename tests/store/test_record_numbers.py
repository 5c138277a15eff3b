"""Numbers that clients write as text: hostile text is no number, in C as in Python, and nothing raises."""

import json
import struct
from collections.abc import Callable
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
from ringmq.store.unsupported import find_unsupported
from ringmq.store.unsupported_pop import PopLedger
from tests.store.golden_stores import basic_config
from tests.store.test_torn_tail import FILE_BYTES, encode, small_config

HOSTILE = ["x", "²", "٣", "1_0", " 1", "1 ", "", "-", "+", "9" * 5000, "1e9", "-5", "2147483648", "NaN", "0x10"]
texts = st.one_of(st.sampled_from(HOSTILE), st.integers().map(str), st.text("+-0123456789", max_size=14))


def count_in_c(properties: bytes, sys_flag: int, is_batch: bool) -> int:
    keys = ffi.new("struct rmq_dispatch_keys *")
    kept = ffi.from_buffer(properties)
    lib.rmq_dispatch_keys_find(kept, len(properties), keys)
    return int(lib.rmq_message_count(keys, sys_flag, is_batch))


@settings(max_examples=500, deadline=None)
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
    assert find_unsupported(config) == []


# ---- what stock left for itself ----


def ledger_of(*entries: tuple[str, bytes]) -> PopLedger:
    ledger = PopLedger()
    for tag, body in entries:
        raw = encode(0, 0, body, f"TAGS\x01{tag}\x02".encode())
        _, record = records.parse_record(raw)
        assert record is not None
        ledger.add(record)
    return ledger


CHECK_POINT = {"t": "T", "c": "G", "q": 0, "so": 10, "pt": 1000, "it": 500, "n": 2}


def test_a_check_point_counts_its_messages() -> None:
    ledger = ledger_of(("ck", json.dumps(CHECK_POINT).encode()))
    assert (ledger.messages, ledger.due_ms, ledger.unknown) == (2, 1500, 0)


@pytest.mark.parametrize(
    "changes",
    [{"n": 1 << 40}, {"n": -1}, {"n": "x"}, {"d": list(range(5000))}, {"d": ["x"]}, {"pt": "a", "it": "b"}, {"so": 1.5},
     {"q": [1]}, {"it": None}, {"d": "abc"}, {"so": 1 << 70}],
)  # fmt: skip
def test_an_impossible_check_point_is_one_unknown_record(changes: dict[str, object]) -> None:
    sound = json.dumps({**CHECK_POINT, "q": 1}).encode()
    ledger = ledger_of(("ck", sound), ("ck", json.dumps(CHECK_POINT | changes).encode()))
    assert (ledger.messages, ledger.due_ms, ledger.unknown) == (2, 1500, 1)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{", b"\xff", b"7", b'{"n":' + b"9" * 5000 + b"}"])
def test_a_body_that_is_no_check_point_is_unknown(body: bytes) -> None:
    assert ledger_of(("ck", body), ("ack", body), ("bAck", body)).unknown == 3


@pytest.mark.parametrize("text", ["²", "9" * 5000, "1_0"])
def test_hostile_times_and_offsets_of_stock_are_passed_over(
    basic_copy: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A client can write to these topics of a stock broker."""
    before = {entry.kind: entry.count for entry in find_unsupported(basic_config(basic_copy))}
    parse: Callable[[bytes], dict[str, str]] = records.parse_properties
    monkeypatch.setattr(
        records, "parse_properties",
        lambda raw: {name: text if name == "TIMER_OUT_MS" else value for name, value in parse(raw).items()},
    )  # fmt: skip
    after = {entry.kind: entry.count for entry in find_unsupported(basic_config(basic_copy))}
    assert after == before


@pytest.mark.parametrize("offset", [0, 1 << 40, -1, -(1 << 63)])
def test_an_offset_id_names_the_place_that_the_record_names(offset: int) -> None:
    """A damaged record may name any place."""
    found = records.parse_record(encode(0, offset, b"body", b""))[1]
    assert found is not None and found.commit_log_offset == offset
    assert records.offset_message_id(found) == f"{0:016X}{offset % (1 << 64):016X}"
