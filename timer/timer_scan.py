"""TimerLog read in order from its oldest waiting unit on, and TimerWheel compared with it.

The loops are in native/src/timer/timer_files.h. The worker `timer` runs them at each start, `ringmq store verify` and
`ringmq doctor` without a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ringmq.native import ffi, lib

PIECE_UNITS = 1 << 18
"""Units of a piece of a scan: some milliseconds."""
LOG_NAME, WHEEL_NAME = "TimerLog", "TimerWheel"


class ScanRange(Struct, frozen=True):
    """Positions and times of the files by the progress on disk."""

    flushed_position: int = 0
    """TimerLog was on disk up to there."""
    open_ms: int = 0
    """Slots before it are delivered."""
    waits_from: int = 0
    """Units before this position are of slots before `open_ms`."""
    is_of_stock: bool = False
    """True if a stock broker may have had the wheel since: its recovery leaves counts of slots behind."""

    def begin(self, log_begin: int, file_bytes: int) -> int:
        """Return the position from which on the log is read: the begin of a file. One more full file than needed, as
        stock does, tells of messages that came too late for their slots."""
        position = max(log_begin, min(self.waits_from, self.flushed_position - file_bytes))
        return position - position % file_bytes


class TimerScan:
    """A scan of a struct rmq_timer_files whose chains are empty."""

    def __init__(self, files: Any, wanted: ScanRange) -> None:
        self.files, self._wanted = files, wanted
        begin = wanted.begin(int(files.log_begin), int(files.file_bytes))
        self.struct = ffi.new(
            "struct rmq_timer_scan *",
            {
                "begin": begin,
                "sound_until": wanted.flushed_position,
                "open_ms": wanted.open_ms,
                "is_of_stock": wanted.is_of_stock,
            },
        )
        self.wheel = ffi.new("struct rmq_timer_wheel_check *", {"lost": -1, "contradicts": -1})
        lib.rmq_timer_scan_begin(self.struct)

    def steps(self) -> Iterator[None]:
        """Read the log, in pieces."""
        while not self.struct.is_over:
            lib.rmq_timer_scan(self.files, self.struct, PIECE_UNITS)
            yield

    def compare(self, *, mends: bool) -> None:
        """Compare the wheel with the log. `mends`: write slots that differ again."""
        lib.rmq_timer_check_wheel(self.files, self.struct, mends, self.wheel)

    def log_fault(self, oldest_record: int | None) -> str:
        """Return why the log cannot be used, empty if it can. `oldest_record`: CommitLog offset of the oldest record of
        the timer topic. Without older ones than the log's first unit, retention may have taken the units before it."""
        if self.struct.is_damaged:
            return f"{LOG_NAME}, position {self.struct.position}: no unit as it was written, and the log was longer"
        begin, first = int(self.files.log_begin), ffi.new("struct rmq_timer_unit *")
        is_cut = max(self.struct.cut, self.wheel.lost) >= 0 or self._wanted.waits_from < begin
        is_cut = is_cut and oldest_record is not None and lib.rmq_timer_unit_at(self.files, begin, first)
        if is_cut and oldest_record < first.commit_log_offset:
            return f"{LOG_NAME} begins at position {begin}, and units of waiting messages before it are missing"
        if self.wheel.contradicts >= 0:
            position = self.wheel.contradicts
            return f"{LOG_NAME}, position {position}: the unit belongs to another slot than the timer wheel says"
        return ""

    @property
    def differing_slots(self) -> int:
        """Slots of the wheel that differ from the log, without those of units that were not on disk."""
        return int(self.wheel.differs + self.wheel.miscounted)

    def wheel_fault(self) -> str:
        """Return how the wheel differs from the log, empty if it does not."""
        count = self.differing_slots
        return f"{count} slots of {WHEEL_NAME} from {self.wheel.first_ms} ms on differ from {LOG_NAME}" if count else ""
