"""Pulls that control answers itself and that have found no message. Control holds them until a message may match, at
most for the requested time.

Only pulls of BatchCQ topics and of subscriptions with very many tags are held here. Read workers hold all others.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.requests.request import Connection, Request

HELD_MAX = 10_000
HOLD_MAX_MS = 300_000


class HeldPull(Struct, frozen=True):
    """A held pull. `is_due()`: True if the queue has grown beyond the requested offset."""

    request: Request
    deadline_ms: int
    is_due: Callable[[], bool]


class HeldPulls:
    """All held pulls."""

    def __init__(self) -> None:
        self._held: list[HeldPull] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, request: Request, suspend_ms: int, is_due: Callable[[], bool]) -> bool:
        """Hold the pull. False if it must be answered at once."""
        if suspend_ms <= 0 or len(self._held) >= HELD_MAX:
            return False
        self._held.append(HeldPull(request, request.now_ms + min(suspend_ms, HOLD_MAX_MS), is_due))
        return True

    def take_due(self, now_ms: int) -> list[Request]:
        """Pulls to run again. They may not be held again."""
        due = [held for held in self._held if now_ms >= held.deadline_ms or held.is_due()]
        if due:
            gone = {id(held) for held in due}
            self._held = [held for held in self._held if id(held) not in gone]
        return [held.request for held in due]

    def shorten(self, deadline_ms: int) -> None:
        """Let no pull wait beyond `deadline_ms`."""
        self._held = [replace(held, deadline_ms=min(held.deadline_ms, deadline_ms)) for held in self._held]

    def drop(self, connection: Connection) -> None:
        """Drop the pulls of a connection that has ended."""
        self._held = [held for held in self._held if held.request.connection != connection]
