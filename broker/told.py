"""Which lines about trouble control writes: a trouble that lasts once, and not too many in a minute.

What peers can cause has a `Told` of its own, so that nobody outside can use up the lines of our own faults.
"""

from __future__ import annotations

AGAIN_MS = 60_000
"""A text that has not come for so long is news again."""
KNOWN_MAX = 1000


class Told:
    """The texts that last, and how many lines this minute has had."""

    def __init__(self, lines_per_minute: int) -> None:
        self._lines_max = lines_per_minute
        self._known: dict[str, int] = {}
        """Text -> when it came last, the latest at the end."""
        self._minute = 0
        self._lines = 0
        self._left_out = 0

    def line(self, text: str, now_ms: int) -> str | None:
        """The line to write now, None for nothing."""
        came_ms = self._known.pop(text, None)
        if came_ms is not None and now_ms - came_ms < AGAIN_MS:
            self._known[text] = now_ms
            return None
        if now_ms // 60_000 != self._minute:
            self._minute, self._lines = now_ms // 60_000, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return None
        self._lines += 1
        self._known[text] = now_ms
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        more = f"; {self._left_out} more were not told" if self._left_out else ""
        self._left_out = 0
        return text + more

    def forget(self, begin: str) -> None:
        """It is over: texts that begin so are news when they come again."""
        self._known = {text: came_ms for text, came_ms in self._known.items() if not text.startswith(begin)}
