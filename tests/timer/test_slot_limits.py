"""A slot beside a flood of recalls: bounded memory for each, and no message is taken for a recalled one."""

from pathlib import Path

import pytest

from ringmq.native import ffi, lib
from tests.timer.kit import SECRET, private_bytes

SLOT_MS = 1_800_000_000_000
RECALLS, MESSAGES, KEYS_MAX = 300_000, 1000, 1 << 16
MEMORY_BYTES = 64 * KEYS_MAX + (1 << 20)
"""A key has 16 bytes. The table is at most half full, and is copied as it grows."""


def key_of(number: int) -> bytes:
    number += 1  # 0, 0 is no key
    return (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "little") + number.to_bytes(8, "little")


@pytest.fixture
def record() -> object:
    return ffi.new("struct rmq_timer_record *", {"exact_ms": SLOT_MS + 1, "has_key": 1})


def add_deletes(slot: object, record: object, numbers: range) -> None:
    key = ffi.buffer(record.key)  # type: ignore[attr-defined]
    for number in numbers:
        key[:] = key_of(number)
        assert lib.rmq_timer_slot_add(slot, number, lib.RMQ_TIMER_DEFAULT | lib.RMQ_TIMER_DELETE, record) == 0


def deleted(slot: object, record: object, numbers: range) -> int:
    """Messages of these keys that a delete names."""
    key, count = ffi.buffer(record.key), 0  # type: ignore[attr-defined]
    for number in numbers:
        key[:] = key_of(number)
        count += lib.rmq_timer_slot_deletes(slot, record.key)  # type: ignore[attr-defined]
    return count


def test_any_number_of_recalls_of_unknown_keys_is_held_in_bounded_memory(tmp_path: Path, record: object) -> None:
    slot = ffi.gc(lib.rmq_timer_slot_open(SLOT_MS, 1 << 20, 0, SECRET), lib.rmq_timer_slot_close)
    folder = ffi.new("char[]", bytes(tmp_path))
    lib.rmq_timer_slot_limit_deletes(slot, KEYS_MAX, folder)
    before = private_bytes()
    add_deletes(slot, record, range(RECALLS))
    assert private_bytes() - before < MEMORY_BYTES < 64 * RECALLS // 2
    assert not list(tmp_path.iterdir()) and not lib.rmq_timer_slot_waiting(slot)
    assert deleted(slot, record, range(RECALLS, RECALLS + MESSAGES)) == 0
    assert deleted(slot, record, range(0, RECALLS, RECALLS // MESSAGES)) == MESSAGES


@pytest.mark.parametrize("folder", ["", "/nonexistent", "here"])
@pytest.mark.parametrize("keys_max", [3, 31, 32, 33, 64, 500])
def test_no_delete_is_lost_where_tables_end(tmp_path: Path, record: object, keys_max: int, folder: str) -> None:
    slot = ffi.gc(lib.rmq_timer_slot_open(SLOT_MS, 1 << 20, 0, SECRET), lib.rmq_timer_slot_close)
    kept = ffi.new("char[]", bytes(tmp_path) if folder == "here" else folder.encode())
    lib.rmq_timer_slot_limit_deletes(slot, keys_max, kept if folder else ffi.NULL)
    for _ in range(3):  # a key that comes again takes no room
        add_deletes(slot, record, range(300))
    assert deleted(slot, record, range(300)) == 300
    assert deleted(slot, record, range(300, 2000)) == 0
