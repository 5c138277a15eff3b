"""A throttle for log lines: a repeated text is written once, and the number of lines a minute is bounded.

Lines that peers can cause have a throttle of their own, so no peer uses up the lines of the broker's own faults.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

REPEAT_AFTER_MS = 60_000
"""The time without a text after which the text is written again."""
TEXTS_MAX = 1000
MINUTE_MS = 60_000
CAUSES_MAX = 256
"""Causes that are counted one by one. Further ones share one count."""
_OTHERS = "others"


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


@dataclass(slots=True)
class _Cause:
    text: str
    since_ms: int
    count: int = 0
    """Events without a line since `since_ms`."""


class CauseThrottle:
    """One line for the first event of a cause, then at most one a minute with the number of further events."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, _Cause] = {}

    def line(self, cause: Hashable, text: str, now_ms: int, count: int = 1) -> str | None:
        """Count `count` events, the last of them with this text. Return the line to write now, None if there is
        none."""
        if cause not in self._causes and len(self._causes) >= CAUSES_MAX:
            cause = _OTHERS
        known = self._causes.get(cause)
        if known is None:
            self._causes[cause] = _Cause(text, now_ms)
            return text if count == 1 else _with_count(text, count - 1)
        known.text = text
        known.count += count
        return None

    def due_lines(self, now_ms: int) -> Iterator[str]:
        """Return the lines of causes that had further events in the last minute. Quiet causes are forgotten."""
        for cause, known in list(self._causes.items()):
            if now_ms - known.since_ms < MINUTE_MS:
                continue
            if not known.count:
                del self._causes[cause]
                continue
            yield _with_count(known.text, known.count)
            known.since_ms, known.count = now_ms, 0


def _with_count(text: str, count: int) -> str:
    return f"{text}; {count} more of this cause"
