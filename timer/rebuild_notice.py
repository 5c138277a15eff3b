"""Log lines of a rebuild of wheel and TimerLog: one at its begin, one at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RebuildNotice:
    """Silent unless `is_rebuilt`. `queue_offset`, `queue_end`: the records of the timer topic from which the files are
    rebuilt. `tally`: struct rmq_timer_tally."""

    def __init__(
        self, queue_offset: int, queue_end: int, tally: Any, log_line: Callable[[str], None], *, is_rebuilt: bool
    ) -> None:
        self._begin, self._end, self._tally, self._log_line = queue_offset, queue_end, tally, log_line
        self._is_over = not is_rebuilt or queue_offset >= queue_end
        if not self._is_over:
            log_line(
                f"rebuilds wheel and TimerLog from {queue_end - queue_offset} records of the timer topic (offsets "
                f"{queue_offset} to {queue_end - 1})"
            )

    def note(self, queue_offset: int) -> None:
        """Accept the offset of the next record."""
        if self._is_over or queue_offset < self._end:
            return
        self._is_over = True
        self._log_line(
            f"has rebuilt wheel and TimerLog: {self._end - self._begin} records, {self._tally.enqueued} units, "
            f"{self._tally.done_before} were delivered before"
        )
