"""Offsets beyond the end of the timer topic count as unknown: no record without a unit is passed over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.native import ffi, lib
from ringmq.services.log_view import LogBounds, LogView
from ringmq.store.record import Record, parse_record
from ringmq.timer.progress import Saved, believable
from ringmq.timer.recovery import recover_files, scan_begin
from ringmq.timer.timer_files import TimerFiles, TimerFilesFailedError
from ringmq.timer.timer_log import FOLDER, UNIT_BYTES, Magic
from tests.timer.kit import encode

OPEN_MS, UNITS, QUEUE_MAX, LOG_END = 1_800_000_000_000, 5, 9, 1 << 20
SOUND = Saved(OPEN_MS, QUEUE_MAX, QUEUE_MAX, OPEN_MS, 4096, 1000)


class Log(LogView):
    def __init__(self) -> None:
        pass

    def bounds(self) -> LogBounds:
        return LogBounds(100, LOG_END, LOG_END)


class OldLog(Log):
    def record(self, offset: int) -> bytes:
        return encode(0, offset, b"", store_ms=1)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[TimerFiles]:
    """Wheel and log with units for the first records of the timer topic."""
    files = TimerFiles(tmp_path, 1000, 172_800, 10_240)
    files.make_room(UNITS)
    for number in range(UNITS):
        unit = ffi.new("struct rmq_timer_unit *", {
            "enqueue_ms": OPEN_MS, "slot_ms": OPEN_MS + 5000, "magic": int(Magic.DEFAULT),
            "commit_log_offset": 1000 * number, "size": 100,
        })  # fmt: skip
        assert lib.rmq_timer_append(files.struct, unit) == 1
    yield files
    files.close()


def record_at(offset: int, size: int) -> Record | None:
    return parse_record(encode(offset // 1000, offset, b""))[1]


def start(files: TimerFiles, saved: Saved, lines: list[str]) -> tuple[int, int, int]:
    """Queue offset and known offset with which a start goes on, and where it begins to look for marks."""
    saved = believable(saved, QUEUE_MAX, lines.append)
    found = recover_files(
        files, saved, record_at, queue_min=0, queue_max=QUEUE_MAX, log_min=100, log_end=LOG_END, now_ms=OPEN_MS
    ).progress  # fmt: skip
    return found.queue_offset, found.known_offset, scan_begin(Log(), saved, LOG_END, 1 << 16)


def test_all_marks_tell_behind_a_cut_log_without_units() -> None:
    """Records of all earlier slots come again then, and no progress tells which of them are delivered."""
    log, saved, file_bytes = OldLog(), Saved(OPEN_MS, is_cut=True), 1 << 16
    assert scan_begin(log, saved, LOG_END, file_bytes) == LOG_END - file_bytes
    assert scan_begin(log, saved, LOG_END, file_bytes, is_rebuilt=True) == 100


@pytest.mark.parametrize(
    ("saved", "expected", "named"),
    [
        (SOUND, (QUEUE_MAX, QUEUE_MAX, 4096), ""),
        (Saved(OPEN_MS, 77, 0, 0, 4096), (UNITS, 0, 4096), "queueOffset 77 left out, as the timer topic ends at 9"),
        (Saved(OPEN_MS, 7, 10, OPEN_MS, 4096), (7, 0, 100), "known 10 left out"),
        (Saved(OPEN_MS, 77, 77, OPEN_MS), (UNITS, 0, 100), "queueOffset 77, known 77 left out"),
    ],
)
def test_a_start_goes_on_behind_the_newest_unit(
    files: TimerFiles, saved: Saved, expected: tuple[int, int, int], named: str
) -> None:
    lines: list[str] = []
    assert start(files, saved, lines) == expected
    assert len(lines) == bool(named) and named in "".join(lines)


def unseal(root: Path) -> None:
    """Make the units those of stock."""
    path = root / FOLDER / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for end in range(UNIT_BYTES, UNITS * UNIT_BYTES + 1, UNIT_BYTES):
        data[end - 8 : end] = bytes(8)
    path.write_bytes(data)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_units_whose_records_retention_has_taken_are_no_damage(
    files: TimerFiles, tmp_path: Path, is_sealed: bool
) -> None:
    """Timers were not in use for as long as records are kept."""
    if not is_sealed:
        unseal(tmp_path)
    saved, end = Saved(OPEN_MS, QUEUE_MAX, flushed_position=UNITS * UNIT_BYTES), files.log_end
    found = recover_files(
        files, saved, lambda offset, size: None, queue_min=7, queue_max=QUEUE_MAX, log_min=LOG_END - 1, log_end=LOG_END,
        now_ms=OPEN_MS,
    )  # fmt: skip
    assert found.progress.queue_offset == 7 and found.is_rebuilt and files.log_end == end


def test_a_newest_unit_of_stock_with_an_offset_before_its_neighbour_is_damage(
    files: TimerFiles, tmp_path: Path
) -> None:
    """Else its message would be lost: the queue offset of the progress lies behind it."""
    unseal(tmp_path)
    at = tmp_path / FOLDER / f"{0:020d}"
    data = bytearray(at.read_bytes())
    data[(UNITS - 1) * UNIT_BYTES + 28 : (UNITS - 1) * UNIT_BYTES + 36] = (500).to_bytes(8)
    at.write_bytes(data)
    saved = Saved(OPEN_MS, QUEUE_MAX, flushed_position=UNITS * UNIT_BYTES)

    def kept(offset: int, size: int) -> Record | None:
        return record_at(offset, size) if offset >= 1000 else None

    with pytest.raises(TimerFilesFailedError, match=f"position {(UNITS - 1) * UNIT_BYTES}: the unit is not as it was"):
        recover_files(
            files, saved, kept, queue_min=0, queue_max=QUEUE_MAX, log_min=1000, log_end=LOG_END, now_ms=OPEN_MS
        )
