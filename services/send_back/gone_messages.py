"""Messages that are sent back after retention has deleted them: counted, and told in the log now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.services.kit.log_lines import LogLines

GONE_COUNTER = 1
"""The place of the count among the counters of the worker `services`."""
TEXT = "send-back: retention has deleted messages before they were sent back, fileReservedTime is too short"


class GoneMessages:
    """Counts in `counters`, the counters of the worker's role."""

    def __init__(self, counters: Any, log_line: Callable[[str], None]) -> None:
        self._counters = counters
        self._log_line = LogLines(log_line, 1)

    def add(self) -> None:
        """Count a message. The first one, and the first one after a quiet minute, is told."""
        self._counters[GONE_COUNTER] += 1
        self._log_line(TEXT)
