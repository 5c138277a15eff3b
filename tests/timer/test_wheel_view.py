"""The exporter reads from the wheel: messages by time to delivery, full slots."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from ringmq.native import ffi, lib
from ringmq.timer.wheel_view import BOUNDS_S, WheelView, read_wheel
from tests.timer.kit import MemoryFiles

NOW_MS = 1_800_000_000_123
EMPTY: Mapping[int, int] = MappingProxyType({})


def wheel(folder: Path, precision_ms: int, messages: dict[int, int], deletes: Mapping[int, int] = EMPTY) -> None:
    """Write a wheel with `messages` and `deletes` by time of their slot."""
    files = MemoryFiles(1, 52 * 4000, precision_ms=precision_ms)
    for magic, units in ((lib.RMQ_TIMER_DEFAULT, messages), (lib.RMQ_TIMER_DELETE, deletes)):
        for slot_ms, count in units.items():
            for _ in range(count):
                unit = ffi.new("struct rmq_timer_unit *", {"slot_ms": slot_ms, "magic": magic, "size": 1})
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
    assert view.messages == sum(view.by_bound) + view.beyond, "the slot before the present is closed"
    in_view = 2 if precision_ms == 1000 else 1  # a day of slots of 100 ms is longer than the window
    assert view.full_slots == in_view
    fullest_ms = 86_400_000 if in_view == 2 else 86_399_000
    assert (view.fullest_messages, view.fullest_in_ms) == (at[fullest_ms], present + fullest_ms - NOW_MS)


def test_recalled_messages_do_not_wait_and_overdue_ones_do(tmp_path: Path) -> None:
    present = NOW_MS - NOW_MS % 1000
    ahead = {4000: 2, 90_000_000: 8}
    closed, overdue, recalled = {-5000: 16}, {-3000: 1, -1000: 4}, {4000: -1, 90_000_000: -3}
    wheel(tmp_path, 1000, {present + ms: count for ms, count in (ahead | closed | overdue).items()}, {
        present + ms: -count for ms, count in recalled.items()
    })  # fmt: skip
    view = read_wheel(tmp_path, NOW_MS, 1000, 172_800, 20, open_ms=present - 3000)
    assert (view.messages, view.by_bound[0], view.beyond) == (1 + 4 + 1 + 5, 1, 5)


def test_slots_of_an_earlier_round_are_empty(tmp_path: Path) -> None:
    wheel(tmp_path, 1000, {NOW_MS - lib.RMQ_TIMER_SLOTS * 1000 + 2000: 5})
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()


def test_no_wheel_or_a_short_one_holds_nothing(tmp_path: Path) -> None:
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()
    (tmp_path / "timerwheel").write_bytes(b"short")
    assert read_wheel(tmp_path, NOW_MS, 1000, 10, 0) == WheelView()
