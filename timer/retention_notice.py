"""Retention and waiting messages: the oldest record that is needed, and a log line before retention may take it.

Retention by age leaves these records alone (`worker.roll_slots`). Above diskSpaceCleanForciblyRatio it takes files of
any age, the oldest first. The log line comes earlier, above diskMaxUsedSpaceRatio.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.native import ffi, lib
from ringmq.timer.timer_files import TimerFiles

PIECE_UNITS = 65_536
"""Units of one call: some milliseconds. A start has to pass the delivered ones of the oldest file."""
PERIOD_MS = 60_000


class OldestRecord:
    """Finds the CommitLog offset of the oldest record that a waiting message needs.

    `begin`: position in TimerLog before which no unit waits.
    """

    def __init__(self, files: TimerFiles, begin: int = 0) -> None:
        self._files = files
        self._position = ffi.new("int64_t *", max(begin, files.log_begin))

    @property
    def position(self) -> int:
        """Position in TimerLog before which no unit waits."""
        return int(self._position[0])

    def offset(self, open_ms: int) -> int | None:
        """Return the offset for slots at `open_ms` or later, which never goes back. None if none is needed or found."""
        struct = self._files.struct
        found = int(lib.rmq_timer_oldest(struct, self._position, struct.log_end, open_ms, PIECE_UNITS))
        return found if found >= 0 else None


class RetentionNotice:
    """Logs that retention may take records of waiting messages.

    `used_percent`: use of the disk by which retention decides.
    """

    def __init__(self, log_line: Callable[[str], None], used_percent: Callable[[], int]) -> None:
        self._log_line, self._used_percent = log_line, used_percent
        self._next_ms = 0

    def check(self, oldest: int | None, *, first_file_end: int, clean_percent: int, mono_ms: int) -> None:
        """Check once in PERIOD_MS.

        `oldest`: offset of the oldest record that is needed. `first_file_end`: the offset behind the oldest file of the
        CommitLog. `clean_percent`: diskMaxUsedSpaceRatio.
        """
        if oldest is None or mono_ms < self._next_ms:
            return
        self._next_ms = mono_ms + PERIOD_MS
        if oldest < first_file_end and (used := self._used_percent()) > clean_percent:
            self._log_line(
                f"the disk is {used} % used (diskMaxUsedSpaceRatio {clean_percent}), and the oldest CommitLog file has "
                "records of waiting timer messages: above diskSpaceCleanForciblyRatio retention takes it, and they are "
                "lost; make room on the disk"
            )
