"""The exporter reads from the wheel: messages by time to delivery, full slots."""

from pathlib import Path

import pytest

from ringmq.broker.exporter.timer_wheel import BOUNDS_S, WheelView, read_wheel
from ringmq.native import ffi, lib
from tests.timer.kit import MemoryFiles

NOW_MS = 1_800_000_000_123


def wheel(folder: Path, precision_ms: int, messages: dict[int, int]) -> None:
    """Write a wheel with `messages` by time of their slot."""
    files = MemoryFiles(1, 52 * 4000, precision_ms=precision_ms)
    for slot_ms, count in messages.items():
        for _ in range(count):
            unit = ffi.new("struct rmq_timer_unit *", {"slot_ms": slot_ms, "magic": 1, "size": 1})
            assert lib.rmq_timer_append(files.struct, unit)
    (folder / "timerwheel").write_bytes(ffi.buffer(files.wheel))


@pytest.mark.parametrize("precision_ms", [100, 1000])
def test_messages_count_by_time_to_delivery(tmp_path: Path, precision_ms: int) -> None:
    present = NOW_MS - NOW_MS % precision_ms
    at = {0: 1, 4000: 2, 5000: 4, 59_000: 8, 3_600_000: 16, 86_399_000: 32, 86_400_000: 64, -1000: 128}
    wheel(tmp_path, precision_ms, {present + ms: count for ms, count in at.items()})
    view = read_wheel(tmp_path, NOW_MS, precision_ms, 172_800, 20)
    assert dict(zip(BOUNDS_S, view.by_bound, strict=True)) == {
        5: 3, 60: 12, 300: 0, 900: 0, 3600: 0, 14_400: 16, 28_800: 0, 86_400: 32,
    }  # fmt: skip
    in_view = 2 if precision_ms == 1000 else 1  # a day of slots of 100 ms is longer than the window
    assert view.full_slots == in_view
    fullest_ms = 86_400_000 if in_view == 2 else 86_399_000
    assert (view.fullest_messages, view.fullest_in_ms) == (at[fullest_ms], present + fullest_ms - NOW_MS)


def test_slots_of_an_earlier_round_are_empty(tmp_path: Path) -> None:
    wheel(tmp_path, 1000, {NOW_MS - lib.RMQ_TIMER_SLOTS * 1000 + 2000: 5})
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()


def test_no_wheel_or_a_short_one_holds_nothing(tmp_path: Path) -> None:
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()
    (tmp_path / "timerwheel").write_bytes(b"short")
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()
