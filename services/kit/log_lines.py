"""Log lines that may recur at each turn."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.remoting.log_throttle import LogThrottle
from ringmq.services.kit.clocks import monotonic_ms

LINES_PER_MINUTE = 10
"""Limit of log lines. Any peer can send failing requests at any rate."""


class LogLines:
    """Called with a text, it writes the text by `log_line`: the same one once a minute, and so many lines a minute."""

    def __init__(
        self,
        log_line: Callable[[str], None],
        lines_per_minute: int = LINES_PER_MINUTE,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._log_line, self._now_ms = log_line, now_ms
        self._throttle = LogThrottle(lines_per_minute)

    def __call__(self, text: str) -> None:
        line = self._throttle.line(text, self._now_ms())
        if line is not None:
            self._log_line(line)

    def forget(self, prefix: str) -> None:
        """Write the next text with this prefix: the trouble before has ended."""
        self._throttle.forget(prefix)
