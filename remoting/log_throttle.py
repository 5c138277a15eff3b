"""A throttle for log lines: a lasting trouble is written once, and each minute has room for a bounded number of lines.

Lines that peers can cause have a throttle of their own, so that no peer uses up the lines of the broker's own faults.
"""

from __future__ import annotations

REPEAT_AFTER_MS = 60_000
"""A text that has not come for this long is written again."""
TEXTS_MAX = 1000
MINUTE_MS = 60_000


class LogThrottle:
    """Remembers the texts of the last minute and counts the lines of this one."""

    def __init__(self, lines_per_minute: int) -> None:
        self._lines_max = lines_per_minute
        self._last_ms: dict[str, int] = {}
        """Text -> its last time; the latest text stands at the end."""
        self._minute = 0
        self._lines = 0
        self._dropped = 0

    def line(self, text: str, now_ms: int) -> str | None:
        """The line to write now; None when the text is a repetition or the minute is full."""
        last_ms = self._last_ms.pop(text, None)
        if last_ms is not None and now_ms - last_ms < REPEAT_AFTER_MS:
            self._last_ms[text] = now_ms
            return None
        if now_ms // MINUTE_MS != self._minute:
            self._minute, self._lines = now_ms // MINUTE_MS, 0
        if self._lines >= self._lines_max:
            self._dropped += 1
            return None
        self._lines += 1
        self._last_ms[text] = now_ms
        if len(self._last_ms) > TEXTS_MAX:
            del self._last_ms[next(iter(self._last_ms))]
        more = f"; {self._dropped} more lines were dropped" if self._dropped else ""
        self._dropped = 0
        return text + more

    def forget(self, prefix: str) -> None:
        """The trouble is over: texts with this prefix are written again when they come again."""
        self._last_ms = {text: last_ms for text, last_ms in self._last_ms.items() if not text.startswith(prefix)}
