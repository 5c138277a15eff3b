"""Op records that recovery has found missing. The service stores them again.

Recovery finds a committed message without its op record only behind the newest op record that names a low offset. So
no new op record names one while such repairs are open: after a death, recovery would not find them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

RETRY_MS = 100


class Repairs:
    """Half-queue offsets of halves that are done, until an op record lists them. Times are of a monotonic clock."""

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._waiting = deque(offsets)
        self._in_flight = 0
        self._again_at_ms = 0

    @property
    def is_waiting(self) -> bool:
        """True if an offset has to be submitted."""
        return bool(self._waiting)

    def take(self, room: int, now_ms: int) -> list[int]:
        """The next offsets for a chain, at most `room`."""
        count = min(room, len(self._waiting)) if now_ms >= self._again_at_ms else 0
        self._in_flight += count
        return [self._waiting.popleft() for _ in range(count)]

    def give_back(self, offset: int) -> None:
        """The chain had no room for the offset that was taken last."""
        self._in_flight -= 1
        self._waiting.appendleft(offset)

    def is_last(self, count: int) -> bool:
        """True if a chain with `count` of the offsets taken has all that are open."""
        return not self._waiting and self._in_flight == count

    def ended(self, offset: int, now_ms: int, *, is_stored: bool) -> None:
        """The result of an offset that was taken."""
        self._in_flight -= 1
        if not is_stored:
            self._waiting.append(offset)
            self._again_at_ms = now_ms + RETRY_MS
