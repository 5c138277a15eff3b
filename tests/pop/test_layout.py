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
        "reserved0": 44, "reported_start": 48, "unmarked_start": 56,
    }),
}  # fmt: skip
STATES = {"FREE": 0, "OPEN": 1, "REVIVING": 2, "REVIVED": 3, "RETURNED": 4, "MOVING": 5}


@pytest.mark.parametrize("name", MAPS)
def test_the_byte_map(name: str) -> None:
    size, fields = MAPS[name]
    found = ffi.typeof(f"struct {name}")
    assert ffi.sizeof(found) == size
    assert {field: of.offset for field, of in found.fields} == fields
    assert lib.RMQ_POP_VERSION == 1


def test_numbers_of_states() -> None:
    assert {name: getattr(lib, f"RMQ_POP_{name}") for name in STATES} == STATES


def test_parts_begin_at_pages_and_hold_their_slots() -> None:
    layout = lib.rmq_pop_layout_of(65, 130)
    assert (layout.windows_at, layout.entries_at, layout.bytes) == (4096, 3 * 4096, 6 * 4096)
