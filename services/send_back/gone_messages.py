"""Messages that are sent back after retention has deleted them: counted, and told in the log now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.broker.requests.retry_ask import GONE_COUNTER
from ringmq.remoting.log_throttle import LogThrottle

TEXT = "send-back: retention has deleted messages before they were sent back, fileReservedTime is too short"


class GoneMessages:
    """Counts in `counters`, the counters of the worker's role. `now_ms` is a monotonic clock."""

    def __init__(self, counters: Any, now_ms: Callable[[], int], tell: Callable[[str], None]) -> None:
        self._counters = counters
        self._now_ms = now_ms
        self._tell = tell
        self._lines = LogThrottle(1)

    def add(self) -> None:
        """Count a message. The first one, and the first one after a quiet minute, is told."""
        self._counters[GONE_COUNTER] += 1
        line = self._lines.line(TEXT, self._now_ms())
        if line is not None:
            self._tell(line)
