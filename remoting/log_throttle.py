"""A throttle for log lines: a repeated text is written once, and the number of lines a minute is bounded.

Lines that peers can cause have a throttle of their own, so no peer uses up the lines of the broker's own faults.
"""

from __future__ import annotations

REPEAT_AFTER_MS = 60_000
"""The time without a text after which the text is written again."""
TEXTS_MAX = 1000
MINUTE_MS = 60_000


class LogThrottle:
    """Remembers the texts of the last minute and counts the lines of the current one."""

    def __init__(self, lines_per_minute: int) -> None:
        self._lines_max = lines_per_minute
        self._last_ms: dict[str, int] = {}
        """Text -> its last time, the latest text last."""
        self._minute = 0
        self._lines = 0
        self._dropped = 0

    def line(self, text: str, now_ms: int) -> str | None:
        """Return the line to write now, None if the text is a repetition or the minute is full."""
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
        """Forget the texts with this prefix after the end of a trouble, so that its next occurrence is written."""
        self._last_ms = {text: last_ms for text, last_ms in self._last_ms.items() if not text.startswith(prefix)}
