"""The byte map of POP's memory: another map needs another RMQ_POP_VERSION."""

import pytest

from ringmq.native import ffi, lib

MAPS = {
    "rmq_pop_entry": (64, {
        "base_offset": 0, "present": 8, "acked": 16, "pop_time_ms": 24, "invisible_ms": 32, "start_delta": 36,
        "copied": 40, "window": 48, "client": 52, "revive_queue": 56, "state": 58, "attempts": 59, "check": 60,
    }),
    "rmq_pop_window": (64, {
        "id": 0, "queue_id": 4, "birth": 8, "next_offset": 16, "committed": 24, "last_pop_ms": 32, "check": 40,
        "order": 44, "reported_start": 48, "unmarked_start": 56,
    }),
    "rmq_pop_order": (512, {
        "base_offset": 0, "pop_time_ms": 8, "window": 16, "invisible_ms": 20, "start_delta": 24, "count": 28,
        "attempt_bytes": 30, "acked": 32, "returned": 36, "check": 40, "client": 44, "deltas": 48, "visible_ms": 176,
        "consumed": 304, "attempt": 368, "reserved1": 496,
    }),
}  # fmt: skip
STATES = {"FREE": 0, "OPEN": 1, "REVIVING": 2, "REVIVED": 3, "RETURNED": 4, "MOVING": 5}


@pytest.mark.parametrize("name", MAPS)
def test_the_byte_map(name: str) -> None:
    size, fields = MAPS[name]
    found = ffi.typeof(f"struct {name}")
    assert ffi.sizeof(found) == size
    assert {field: of.offset for field, of in found.fields} == fields
    assert lib.RMQ_POP_VERSION == 2


def test_numbers_of_states() -> None:
    assert {name: getattr(lib, f"RMQ_POP_{name}") for name in STATES} == STATES


def test_parts_begin_at_pages_and_hold_their_slots() -> None:
    layout = lib.rmq_pop_layout_of(65, 130)
    assert (layout.windows_at, layout.orders_at, layout.orders_max) == (4096, 3 * 4096, 66)
    assert (layout.entries_at, layout.bytes) == (12 * 4096, 15 * 4096)
    assert lib.rmq_pop_layout_of(1 << 20, 130).orders_max == 65_537
