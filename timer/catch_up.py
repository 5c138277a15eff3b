"""Log lines while overdue messages go out, behind a down time or a clock that was set forward."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

BEHIND_MS = 10_000
LINE_MS = 10_000


class CatchUp:
    """Says how far the delivery is: once it has been behind for a while, each ten seconds, and at the end."""

    def __init__(self, log_line: Callable[[str], None]) -> None:
        self._log_line = log_line
        self._line_at_ms: int | None = None
        self._begin: tuple[int, int] | None = None
        """Monotonic time and delivered messages at the first line."""

    def note(self, open_ms: int, now_ms: int, mono_ms: int, delivered: int) -> None:
        """Accept the time of the open slot and the number of delivered messages. Times in ms."""
        if now_ms - open_ms < BEHIND_MS:
            if self._begin is not None:
                since_ms, before = self._begin
                self._log_line(f"has caught up: {delivered - before} messages in {(mono_ms - since_ms) / 1000:.1f} s")
            self._line_at_ms = self._begin = None
        elif self._line_at_ms is None:
            self._line_at_ms = mono_ms + LINE_MS
        elif mono_ms >= self._line_at_ms:
            self._line_at_ms = mono_ms + LINE_MS
            self._begin = self._begin or (mono_ms, delivered)
            due = datetime.fromtimestamp(open_ms / 1000, UTC).isoformat(sep=" ")
            behind = (now_ms - open_ms) // 1000
            self._log_line(
                f"catches up: messages of {due} go out, {behind} s late; {delivered} delivered since the start"
            )
